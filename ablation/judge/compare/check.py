"""May two arms be paired? The same seeds, the same items, the same asked of each; else a line that says what differs.

    check(parent, child, allow) -> notes          ConfigError where they may not
    common_items(arms) -> arms                    with the items that all runs of all arms have

Values of what was asked differently are no pairs. Where the prompt is the change that is compared, the caller says so.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace
from functools import reduce

import numpy as np

from ablation.contract.errors import ConfigError
from ablation.judge.compare.arms import Arm
from ablation.readers.sheet import Sheet, some

ALLOWED = ("prompt", "target", "task")  # what may differ, if the caller says so


def check(parent: Arm, child: Arm, allow: Set[str] = frozenset()) -> list[str]:
    """Refuse to pair what does not go together; return what the reader should know.

    Raises:
        ConfigError: other seeds, subsets, metrics or items, or other prompts, targets or tasks that are not in `allow`.
    """
    notes = list(_seeds(parent, child))
    common = sorted(parent.runs.keys() & child.runs.keys())
    for seed in common:
        ours, theirs = parent.runs[seed], child.runs[seed]
        _subsets(parent, child, ours, theirs)
        for subset, sheet in ours.items():
            notes += _pair(sheet, theirs[subset], allow)
            _items(parent.runs[common[0]][subset], sheet)  # items are drawn once for all seeds
    return list(dict.fromkeys(notes))


def _seeds(parent: Arm, child: Arm) -> Iterator[str]:
    if parent.seeded != child.seeded and max(len(parent.runs), len(child.runs)) > 1:
        without, other = (child, parent) if parent.seeded else (parent, child)
        problem = f"{without.name} is one run without a seed, {other.name} has seeds {_list(other.seeds)}"
        raise ConfigError(without.name, "seeds", None, problem, "name its seed in its path, or give --seed-from REGEX")
    if parent.seeded != child.seeded:  # one run on each side
        return
    common = parent.runs.keys() & child.runs.keys()
    if not common:
        problem = f"{parent.name} has {_list(parent.seeds)}, {child.name} has {_list(child.seeds)}: none in common"
        raise ConfigError(
            "compare", "seeds", None, problem, "runs are paired by seed: --seed-from REGEX says which is which"
        )
    for arm in (parent, child):
        if left := sorted(arm.runs.keys() - common):
            yield f"seeds {_list(left)} of {arm.name} have no partner and are left out"


def _list(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _subsets(parent: Arm, child: Arm, ours: dict[str, Sheet], theirs: dict[str, Sheet]) -> None:
    if ours.keys() != theirs.keys():
        only = [
            f"{arm.name} alone has {', '.join(sorted(left))}"
            for arm, left in ((parent, ours.keys() - theirs.keys()), (child, theirs.keys() - ours.keys()))
            if left
        ]
        raise ConfigError("compare", "tasks", None, "; ".join(only), "give the files of the same tasks on both sides")


def _pair(ours: Sheet, theirs: Sheet, allow: Set[str]) -> Iterator[str]:
    for key in ("metric", "filter"):
        a, b = getattr(ours, key), getattr(theirs, key)
        if a != b:
            raise ConfigError(
                theirs.source, key, b, f"{ours.source} has {a!r}", f"name one that both have with --{key}"
            )
    _items(ours, theirs)
    versions = ours.facts.version, theirs.facts.version
    if "task" not in allow and None not in versions and versions[0] != versions[1]:
        problem = f"task {ours.subset} is version {versions[1]}, and {versions[0]} in {ours.source}"
        raise ConfigError(theirs.source, "", None, problem, "evaluate both with one version, or give --allow task")
    for name in sorted(ours.asked.keys() | theirs.asked.keys()):
        if name not in ours.asked or name not in theirs.asked:
            yield f"{name}s cannot be compared: only one side has them"
            continue
        differing = np.flatnonzero(ours.asked[name] != theirs.asked[name])
        if not len(differing):
            continue
        share = f"the {name} of {len(differing)} of {len(ours.items)} items"
        if name not in allow:
            named = some(ours.items[differing].tolist())
            problem = f"{share} of {ours.subset} is not that of {ours.source}: {named}"
            raise ConfigError(theirs.source, "", None, problem, f"compare what was asked alike, or give --allow {name}")
        yield f"{share} of {ours.subset} differs between the two sides, as --allow {name} permits"
    hashes = ours.facts.task_hash, theirs.facts.task_hash
    if not ours.asked and "task" not in allow and None not in hashes and hashes[0] != hashes[1]:
        problem = f"task_hash {hashes[1]} of {ours.subset} is not that of {ours.source}, {hashes[0]}"
        raise ConfigError(theirs.source, "", None, problem, "compare what was asked alike, or give --allow task")
    if ours.facts.repeats != theirs.facts.repeats:
        often = f"{ours.facts.repeats} times on one side, {theirs.facts.repeats} on the other"
        yield f"{ours.subset}: items were asked {often}"


def _items(ours: Sheet, theirs: Sheet) -> None:
    if ours.items.equals(theirs.items):
        return
    only_ours, only_theirs = ours.items.difference(theirs.items), theirs.items.difference(ours.items)
    if len(only_ours) == len(ours.items):
        problem = f"no item of {ours.subset} is in common with {ours.source}: {some(only_theirs.tolist(), 2)}"
        raise ConfigError(
            theirs.source, "", None, f"{problem}; there {some(only_ours.tolist(), 2)}", "were they the same data?"
        )
    parts = [f"lacks {len(only_ours)} ({some(only_ours.tolist())})"] if len(only_ours) else []
    parts += [f"has {len(only_theirs)} more ({some(only_theirs.tolist())})"] if len(only_theirs) else []
    problem = f"of the items of {ours.subset} in {ours.source} it {' and '.join(parts)}"
    raise ConfigError(theirs.source, "", None, problem, "evaluate both on all, or give --common-items")


def common_items(arms: Sequence[Arm]) -> tuple[list[Arm], list[str]]:
    """The arms with the items that every run has, by subset, and how many were left out."""
    notes = []
    kept = {}
    for subset in dict.fromkeys(sheet.subset for arm in arms for sheet in arm.sheets):
        held = [sheet.items for arm in arms for sheet in arm.sheets if sheet.subset == subset]
        items = reduce(lambda a, b: a if a is b or a.equals(b) else a.intersection(b), held).sort_values()
        if not len(items):
            raise ConfigError("compare", subset, None, "no item is in common to all runs", "were they the same data?")
        kept[subset] = items
        if left := max(map(len, held)) - len(items):
            notes.append(f"{subset}: {left} items that not every run has are left out, as --common-items asks")
    cut = [
        replace(
            arm,
            runs={
                seed: {name: s if s.items.equals(kept[name]) else s.only(kept[name]) for name, s in run.items()}
                for seed, run in arm.runs.items()
            },
        )
        for arm in arms
    ]
    return cut, notes

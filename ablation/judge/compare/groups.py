"""Sorts files into runs of groups, and checks whether two groups may be paired.

Groups are paired by seed and by item. An item's prompt must be the same in both, unless the caller says that the
prompt is the change under comparison.
"""

import glob
import itertools
import os
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from dataclasses import dataclass, replace
from functools import reduce
from pathlib import Path

import numpy as np
import pandas as pd

from ablation.config.names import suggest
from ablation.config.variant_tree import natural
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import alone, counted, fixed, percent, stated
from ablation.judge.outcomes import Outcome, outcome_values
from ablation.readers import table
from ablation.readers.arrays import Frame, Values
from ablation.readers.evaluation import (
    evaluations_below,
    is_whole,
    reader_of,
    whole_of,
    without_retried,
    without_unfinished,
)
from ablation.readers.seeds import seed_in, without_seed
from ablation.readers.sheet import ANY, REPEATED, Errors, Sheet, Wanted, date_in, newer, short, some

DEFAULT_NAMES = ("baseline", "candidate")


def with_outcome(sheet: Sheet, outcome: Outcome) -> Sheet:
    """Return the sheet with the outcome of each item's samples in place of their mean.

    Raises:
        ConfigError: there are fewer samples of an item, or they are not right or wrong.
    """
    samples = sheet.facts.repeats

    def refusal(problem: str, remedy: str = "use --metric to name a metric whose values are 0 or 1") -> ConfigError:
        return ConfigError(sheet.source, outcome.option, outcome.k, problem, remedy)

    if outcome.k > samples:
        problem = f"each item has only {samples} sample{'s' * (samples != 1)}"
        raise refusal(problem, "sample each item more often, or reduce K")
    values, odd = outcome_values(sheet.values, samples, outcome)
    if odd is not None:
        raise refusal(f"some samples of {short(str(sheet.items[odd]))} have a score other than 0 or 1")
    if sheet.facts.larger_is_better is False:
        raise refusal("needs a metric for which larger values are better")
    facts = replace(sheet.facts, reported=None, stderr=None, larger_is_better=True)
    return replace(sheet, metric=f"{outcome.kind}@{outcome.k} of {sheet.metric}", values=values, facts=facts)


@dataclass(frozen=True)
class Options:
    """Options of reading evaluation files."""

    wanted: Wanted = ANY
    seed_from: str | None = None  # a regular expression with one group
    latest: bool = False  # of several evaluations of one run, the newest file
    at: str | None = None  # only files in a folder of this name, a checkpoint say, in a group that has it
    outcome: Outcome | None = None  # of an item's samples, in place of their mean
    independent: bool = False  # runs share nothing: each file, or folder of several tasks' files, is one


@dataclass(frozen=True)
class Group:
    """The baseline or the candidate of a comparison."""

    name: str
    runs: dict[int, dict[str, Sheet]]  # {seed: {subset: sheet}}
    seeded: bool  # whether its files tell seeds; else it is one run
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()  # why no answer may rest on it

    @property
    def seeds(self) -> list[int]:
        """The group's seeds, in order."""
        return sorted(self.runs)

    @property
    def sheets(self) -> list[Sheet]:
        """The sheets of all runs of the group."""
        return [sheet for seed in self.seeds for sheet in self.runs[seed].values()]


@dataclass(frozen=True)
class Files:
    """The files of one group, and notes on what was left out of their folders."""

    paths: Sequence[Path]
    notes: Sequence[str] = ()

    def sheets(self, name: str, wanted: Wanted) -> Iterator[Sheet]:
        """Yield the sheets of all files."""
        return _sheets(self.paths, wanted)


@dataclass(frozen=True)
class Side:
    """The sheets of one system, if several are in the same files."""

    read: Sequence[Sheet]
    paths: Sequence[Path] = ()  # shared with the others
    notes: Sequence[str] = ()

    def sheets(self, name: str, wanted: Wanted) -> list[Sheet]:
        """Return the sheets that were read."""
        return list(self.read)


Evaluated = Files | Frame | Values | Side


def sides_by(given: Sequence[Evaluated], options: Options) -> dict[str, Side]:
    """Return a side for each value of the columns of a table, or settings of an evaluation, named by `wanted.by`.

    Raises ConfigError if a file has none of this name, or there is one value only.
    """
    by = options.wanted.by
    sheets: dict[str, list[Sheet]] = {}
    for sheet in itertools.chain.from_iterable(each.sheets("table", options.wanted) for each in given):
        settings = sheet.facts.settings
        if absent := [name for name in by if name not in settings]:
            raise ConfigError(
                sheet.source,
                "--by",
                absent[0],
                "the file has no column or setting of this name",
                suggest(absent[0], settings),
            )
        sheets.setdefault(" ".join(one_line(settings[name], 60) for name in by), []).append(sheet)
    if len(sheets) < 2:
        problem = f"separates the files into only one system, {next(iter(sheets), '')}"
        raise ConfigError("compare", "--by", ",".join(by), problem, "name the files of other systems too")
    notes = [note for each in given for note in each.notes]
    return {name: Side(read, (), () if at else notes) for at, (name, read) in enumerate(sheets.items())}


def sides_of(words: Sequence[str]) -> list[Files]:
    """Return a side for each path or match of a pattern; none if all are runs of one system.

    Raises ConfigError as `expand`, or if the paths differ in their seeds only.
    """
    places = [
        place for word in words for place in ([word] if Path(word).exists() else sorted(glob.glob(word)) or [word])
    ]
    seeds = [seed_in(place) for place in places]
    stems = {without_seed(place, said) for place, said in zip(places, seeds, strict=True)}
    if len(places) > 1 and len(stems) == 1 and all(seeds):
        problem = f"{some(places)} differ only in their seed"
        raise ConfigError("compare", "", None, problem, "name the runs of another system after --with")
    return [expand([place]) for place in places]


def expand(words: Iterable[str], base: Path = Path()) -> Files:
    """Return the files behind the arguments: each is a file, a folder with evaluations below it, or a pattern."""
    files: dict[Path, None] = {}
    notes: list[str] = []
    for word in words:
        path = base / word
        if path.is_dir() and is_whole(path):
            matches, problem = [path], ""
        elif path.is_dir():
            matches, problem = evaluations_below(path, notes.append, tables=False), ""
        elif path.is_file():
            matches, problem = [whole_of(path)], ""
        elif path.exists():  # a pipe, say, which would be waited for
            matches, problem = [], "is not a file"
        else:
            found = list(map(Path, sorted(glob.glob(str(path), recursive=True))))
            matches = [whole_of(each) for each in found if each.is_file() or is_whole(each)]
            for folder in found if not matches else []:
                matches += evaluations_below(folder, notes.append, tables=False)
            problem = "no file has this name or matches it as a pattern"
        if not matches:
            raise ConfigError(str(path), "", None, problem, "name files, a folder, or a pattern in quotes")
        files |= dict.fromkeys(matches)
    return Files(list(files), notes)


def read_group(name: str, files: Evaluated, options: Options) -> Group:
    """Read one group's files, or array, and find which run each is.

    Raises:
        ConfigError: a file cannot be read, its seed cannot be determined, or a run was evaluated twice.
    """
    notes = list(files.notes)
    paths = files.paths
    if options.at is not None and not (chosen := at_place(paths, options.at)):
        notes.append(f"{name} has no file at {options.at}, so all its files are used")
    elif options.at is not None:
        paths = chosen
    paths = without_retried(paths, notes.append)
    doubts: list[str] = []
    if options.latest:
        paths = without_unfinished(paths, notes.append, doubts.append)
    wanted = options.wanted
    sheets = list((Files(paths) if isinstance(files, Files) else files).sheets(name, wanted))
    if options.outcome is not None:
        sheets = [with_outcome(sheet, options.outcome) for sheet in sheets]
    if lacking := [task for task in options.wanted.tasks if task not in {sheet.subset for sheet in sheets}]:
        remedy = "name the files of its evaluation, or leave out the task"
        raise ConfigError("compare", "--tasks", lacking[0], f"{name} was not evaluated on this task", remedy)
    seeds = _numbered(sheets) if options.independent else _seeds(sheets, options.seed_from)
    runs: dict[int, dict[str, Sheet]] = {}
    for sheet, seed in zip(sheets, seeds, strict=True):
        run_sheets = runs.setdefault(0 if seed is None else seed, {})
        other = run_sheets.get(sheet.subset)
        if other is not None and not (options.latest and other.source != sheet.source):
            if other.source == sheet.source and (apart := _apart([s for s in sheets if s.source == sheet.source])):
                problem = f"holds several systems, which differ in {', '.join(apart)}"
                raise ConfigError(
                    sheet.source, "", None, problem, f"compare them with --by {','.join((*wanted.by, *apart))}"
                )
            which = "" if seed is None else f", seed {seed},"
            problem = f"{name}{which} was also evaluated on {sheet.subset} in {other.source}"
            remedy = _one_of([each.source for each, s in zip(sheets, seeds, strict=True) if s == seed])
            raise ConfigError(sheet.source, "", None, problem, remedy)
        if other is None or newer(sheet.source, other.source):
            run_sheets[sheet.subset] = sheet
    subsets = {subset for run in runs.values() for subset in run}
    for seed, run in runs.items():
        if missing := sorted(subsets - run.keys()):
            problem = f"seed {seed} was not evaluated on {', '.join(missing)}, but other seeds were"
            raise ConfigError(
                name, "", None, problem, "evaluate it on these tasks, too, or choose other tasks with --tasks"
            )
    return Group(name, dict(sorted(runs.items())), None not in seeds, tuple(notes), tuple(doubts))


def _apart(sheets: Sequence[Sheet]) -> list[str]:
    """Return the settings in which the systems of one file differ."""
    settings = [sheet.facts.settings for sheet in sheets]
    return [name for name in settings[0] if len({str(values.get(name)) for values in settings}) > 1]


def at_place(paths: Sequence[Path], place: str | None) -> list[Path]:
    """Return the files in a folder with this name, or with this name before the suffix."""
    return [path for path in paths if place in (*path.parts, path.stem)]


def _one_of(sources: Sequence[Path]) -> str:
    """Return the remedy for several evaluations of one run: choose one, or name the seeds."""
    sources = list(dict.fromkeys(sources))
    if len(sources) < 2:
        return REPEATED
    folders = [
        column for column in zip(*(source.parent.parts for source in sources), strict=False) if len({*column}) > 1
    ]
    if not folders and any(date_in(source) for source in sources):
        return "name one of the files, or pass --latest"
    names = sorted(set(folders[-1]) if folders else {source.stem for source in sources}, key=natural)
    remedy = f"choose one with --at {shlex.quote(names[-1])}" + (", or pass --latest" if folders else "")
    finding = _finding(names, sources) or "REGEX"
    advice = f"{remedy}; if the numbers in {some(names)} are seeds, pass --seed-from {shlex.quote(finding)}"
    return f"{advice}; if the runs share nothing, pass --seeds independent"


def _finding(names: Sequence[str], sources: Sequence[Path]) -> str | None:
    """Return a regular expression that finds the last number of each of these names in the paths; None if there is
    none.
    """
    split = [re.fullmatch(r"(|.*\D)(\d+)(\D*)", name) for name in names]
    around = {(match[1], match[3]) for match in split if match}
    if None in split or len(around) != 1:
        return None
    [(before, after)] = [(re.escape(a).replace(r"\-", "-"), re.escape(b)) for a, b in around]
    wanted = {int(match[2]) for match in split if match}
    for form in (f"{before}(\\d+)", f".*/{before}(\\d+){after}[/.]"):
        matches = [re.search(form, str(source)) for source in sources]
        if {int(each[1]) for each in matches if each} == wanted and all(matches):
            return form
    return None


def _sheets(paths: Sequence[Path], wanted: Wanted) -> Iterator[Sheet]:
    samples = [path for path in paths if path.name.startswith("samples_")]
    for path in paths:
        if samples and re.fullmatch(r".*results_.*\.json", path.name):  # they are read with their samples
            continue
        yield from (table if wanted.item and path.is_file() else reader_of(path)).sheets(path, wanted)


def _seeds(sheets: Sequence[Sheet], pattern: str | None) -> list[int | None]:
    """Return the seed of each sheet: found by the pattern, stated by its file, or in its path (`seed_in`); None for
    each if there is one run.
    """
    if pattern is not None:
        return [_by_pattern(sheet.source, pattern) for sheet in sheets]
    seeds = [_seed_of(sheet) for sheet in sheets]
    if None not in seeds:
        return seeds
    if any(seed is not None for seed in seeds):
        lacking = next(sheet.source for sheet, seed in zip(sheets, seeds, strict=True) if seed is None)
        raise ConfigError(
            lacking,
            "",
            None,
            "the seed of this file is unknown, although other files state theirs",
            "pass --seed-from REGEX",
        )
    if len({sheet.subset for sheet in sheets}) == len(sheets):
        return seeds
    named = _by_other_words(list(dict.fromkeys(sheet.source for sheet in sheets)))
    return [named.get(sheet.source) for sheet in sheets]


def _numbered(sheets: Sequence[Sheet]) -> list[int | None]:
    """Return numbers of runs that share nothing: one per file, or one per folder if tasks are in separate files."""
    subsets = {sheet.subset for sheet in sheets}
    subsets_by_source: dict[Path, set[str]] = {}
    for sheet in sheets:
        subsets_by_source.setdefault(sheet.source, set()).add(sheet.subset)
    each_complete = all(names == subsets for names in subsets_by_source.values())
    places = [
        (sheet.source if each_complete else sheet.source.parent, -1 if sheet.seed is None else sheet.seed)
        for sheet in sheets
    ]
    number = {place: count for count, place in enumerate(sorted(set(places)), 1)}
    return [number[place] for place in places]


def _seed_of(sheet: Sheet) -> int | None:
    """Return the seed that a file states, or the last `seed<n>` in its path; None if there is neither."""
    if sheet.seed is not None:
        return sheet.seed
    named = seed_in(str(sheet.source), only_seed=True)
    return int(named["seed"]) if named else None


def _by_pattern(path: Path, pattern: str) -> int:
    try:
        match = re.search(pattern, str(path))
    except re.error as error:
        raise ConfigError(
            "compare",
            "--seed-from",
            pattern,
            f"is not a valid regular expression ({error})",
            "put one group around the digits, such as 'run(\\d+)'",
        ) from None
    number = match.group(1) if match and match.re.groups else ""
    if not (number or "").isdigit():
        problem = f"finds no number in {one_line(str(path), 200)}"
        raise ConfigError(
            "compare", "--seed-from", pattern, problem, "put one group around the digits, such as 'run(\\d+)'"
        )
    return int(number)


def _by_other_words(sources: Sequence[Path]) -> dict[Path, int]:
    """Return seeds found after words such as `run-3`, in the part that differs between paths; {} if a path has none."""
    shared = os.path.commonpath([source.parent.absolute() for source in sources])
    names = {source: seed_in(source.absolute().relative_to(shared).as_posix()) for source in sources}
    seeds = {source: int(named["seed"]) for source, named in names.items() if named}
    return seeds if len(seeds) == len(sources) and len(set(seeds.values())) > 1 else {}


def name_groups(*sides: Sequence[Path]) -> list[str]:
    """Return names from the first part of the paths in which the sides differ; else `baseline`, `candidate`, or
    numbers.
    """
    columns = [zip(*(path.parts for path in paths)) for paths in sides]  # noqa: B905
    for parts in zip(*columns):  # noqa: B905
        part_sets = [set(part) for part in parts]
        if sum(map(len, part_sets)) == len(set().union(*part_sets)):  # disjoint
            names = [_common_name(part) for part in part_sets]
            if all(names) and len(set(names)) == len(names):
                return names
            break
    return list(DEFAULT_NAMES) if len(sides) == 2 else [f"system {number}" for number in range(1, len(sides) + 1)]


def _common_name(parts: Set[str]) -> str:
    """Return the beginning that these parts of paths share: `base` for base-seed0.csv and base-seed1.csv."""
    if len(parts) > 1:
        columns = itertools.takewhile(lambda letters: len({*letters}) == 1, zip(*parts, strict=False))
        shared = "".join(letters[0] for letters in columns)
        if any(part[len(shared) :][:1].isalpha() for part in parts):  # they differ within a word
            shared = re.sub(r"[^\W_]+$", "", shared)
        return re.sub(r"(?i)([\W_]+(seed|run|rep|trial|s)?[\W_]*\d*|\d+)$", "", shared)
    return re.sub(r"\.(csv|tsv|jsonl|parquet|json|eval)$", "", next(iter(parts)))


def pairs_of(parent: Group, child: Group, *, paired: bool) -> list[tuple[int, int]]:
    """Return the runs (parent's, child's) to show side by side: of one seed, or in order if seeds are independent."""
    if paired:
        return [(seed, seed) for seed in sorted(parent.runs.keys() & child.runs.keys())]
    return list(zip(parent.seeds, child.seeds, strict=False))


def check(parent: Group, child: Group, allow: Set[str] = frozenset(), *, paired: bool = True) -> list[str]:
    """Refuse groups that cannot be paired; return notes for the reader.

    Raises:
        ConfigError: other seeds, subsets, metrics or items, or other prompts, targets or tasks that are not in `allow`.
    """
    if paired:
        _check_seeds(parent, child)
    notes: list[str] = []
    runs = pairs_of(parent, child, paired=paired)
    first = parent.runs[runs[0][0]]
    if not paired:  # every run beside the first one
        runs = [*((parent.seeds[0], seed) for seed in child.seeds), *((seed, child.seeds[0]) for seed in parent.seeds)]
    for one, other in runs:
        parent_run, child_run = parent.runs[one], child.runs[other]
        _subsets(parent, child, parent_run, child_run)
        for subset, sheet in parent_run.items():
            notes += _pair(sheet, child_run[subset], allow)
            _items(first[subset], sheet)  # items are drawn once for all seeds
    return list(dict.fromkeys(notes))


def _check_seeds(parent: Group, child: Group) -> None:
    common = parent.runs.keys() & child.runs.keys()
    if not common:
        seeds = f"{parent.name} has {_list(parent.seeds)} and {child.name} has {_list(child.seeds)}"
        problem = f"{seeds}, so they have no common seed"
        raise ConfigError(
            "compare",
            "seeds",
            None,
            problem,
            "find the seeds with --seed-from REGEX, or pass --seeds independent if the runs share nothing",
        )


def _list(seeds: Sequence[int]) -> str:
    return ", ".join(map(str, seeds))


def _subsets(parent: Group, child: Group, parent_run: dict[str, Sheet], child_run: dict[str, Sheet]) -> None:
    if parent_run.keys() != child_run.keys():
        only = [
            f"only {group.name} has {', '.join(sorted(left))}"
            for group, left in (
                (parent, parent_run.keys() - child_run.keys()),
                (child, child_run.keys() - parent_run.keys()),
            )
            if left
        ]
        remedy = "name files of the same tasks for both, or choose common tasks with --tasks"
        raise ConfigError("compare", "tasks", None, "; ".join(only), remedy)


def _pair(parent: Sheet, child: Sheet, allow: Set[str]) -> Iterator[str]:
    for key in ("metric", "filter"):
        a, b = getattr(parent, key), getattr(child, key)
        if a != b:
            raise ConfigError(
                child.source,
                key,
                b,
                f"differs from {parent.source}, which has {a!r}",
                f"use --{key} to choose one that both have",
            )
    _items(parent, child)
    versions = parent.facts.version, child.facts.version
    if "task" not in allow and None not in versions and versions[0] != versions[1]:
        problem = f"task {parent.subset} has version {versions[1]}, but version {versions[0]} in {parent.source}"
        raise ConfigError(child.source, "", None, problem, "evaluate both with the same version, or pass --allow task")
    for name in sorted(parent.asked.keys() | child.asked.keys()):
        if name not in parent.asked or name not in child.asked:
            yield f"{name}s cannot be checked, because only one of the two evaluations records them"
            continue
        differing = np.flatnonzero(parent.asked[name] != child.asked[name])
        if not len(differing):
            continue
        have = "has" if len(differing) == 1 else "have"
        share = f"{len(differing)} of {len(parent.items)} items of {parent.subset} {have} a different {name}"
        if name not in allow:
            named = some(parent.items[differing].tolist())
            problem = f"{share} than in {parent.source} ({named})"
            raise ConfigError(
                child.source, "", None, problem, f"evaluate both with the same {name}s, or pass --allow {name}"
            )
        yield f"{share} in baseline and candidate, as --allow {name} permits"
    hashes = parent.facts.task_hash, child.facts.task_hash
    if not parent.asked and "task" not in allow and None not in hashes and hashes[0] != hashes[1]:
        problem = f"task_hash {hashes[1]} of {parent.subset} differs from {parent.source}, which has {hashes[0]}"
        raise ConfigError(child.source, "", None, problem, "evaluate both with the same task, or pass --allow task")
    if parent.facts.repeats != child.facts.repeats:
        often = f"{parent.facts.repeats} samples in the baseline and {child.facts.repeats} in the candidate"
        yield f"{parent.subset}: each item has {often}"


def _items(parent: Sheet, child: Sheet) -> None:
    if parent.items.equals(child.items):
        return
    only_ours, only_theirs = parent.items.difference(child.items), child.items.difference(parent.items)
    if len(only_ours) == len(parent.items):
        problem = f"has no item of {parent.subset} in common with {parent.source}"
        examples = f"{some(only_theirs.tolist(), 2)} here, {some(only_ours.tolist(), 2)} there"
        raise ConfigError(child.source, "", None, f"{problem} ({examples})", "evaluate both on the same data")
    parts = [f"lacks {len(only_ours)} ({some(only_ours.tolist())})"] if len(only_ours) else []
    parts += [f"has {len(only_theirs)} more ({some(only_theirs.tolist())})"] if len(only_theirs) else []
    problem = f"does not have the same items of {parent.subset} as {parent.source}: it {' and '.join(parts)}"
    raise ConfigError(child.source, "", None, problem, "evaluate both on all items, or pass --common-items")


def without_errors(groups: Sequence[Group], errors: Errors, *, common_items: bool) -> tuple[Sequence[Group], list[str]]:
    """Return the groups without the items that have no value in some run because a sample failed, and notes.

    Raises ConfigError, which counts them, unless they are to be left out.
    """
    failed = {group.name: sum(sheet.facts.failed for sheet in group.sheets) for group in groups}
    notes = []
    if any(failed.values()):
        counts = ", ".join(f"{name} {count}" for name, count in failed.items())
        notes.append(f"samples without a value count as 0 ({counts})")
    sheets = [(group, sheet) for group in groups for sheet in group.sheets]
    if not any(sheet.unscored for _, sheet in sheets):
        return groups, notes
    first = next(sheet for _, sheet in sheets if sheet.unscored)
    item, why = next(iter(first.unscored.items()))
    lost = {group.name: {(s.subset, item) for s in group.sheets for item in s.unscored} for group in groups}
    asked = {
        group.name: {(s.subset, item) for s in group.sheets for item in (*s.items, *s.unscored)} for group in groups
    }
    others = len(first.unscored) - 1
    rest, have = (f" and {others} more", "have") if others else ("", "has")
    said = f"item {short(item)}{rest} of {first.subset} {have} no score: {one_line(why, 200)}"
    counts = "; errors: " + ", ".join(f"{name} {len(lost[name])} of {len(asked[name])}" for name in lost)
    if errors != "leave-out" and not common_items:
        remedy = (
            "evaluate again, leave these items out on both sides (--errors leave-out), or count them as "
            "0 (--errors fail)"
        )
        raise ConfigError(first.source, "", None, said + counts, remedy)
    everywhere = set().union(*lost.values())
    kept = [
        _kept(group, lambda sheet: sheet.items[[(sheet.subset, i) not in everywhere for i in sheet.items]])
        for group in groups
    ]
    return kept, [*notes, f"{first.source}: {said}; items without a score are left out on both sides{counts}"]


def check_failed(sheets: Sequence[Sheet], direction: object) -> None:
    """Refuse to count failed samples as 0 if 0 is not the value of a failure."""
    if not any(sheet.facts.failed for sheet in sheets):
        return
    low, high = min(float(s.values.min()) for s in sheets), max(float(s.values.max()) for s in sheets)
    if direction != "max" or low < 0 or high > 1:
        span = f"{stated(low)} and {stated(high)}"
        problem = (
            f"0 does not always mean a failure, because values lie between {span} and the direction is {direction}"
        )
        raise ConfigError("compare", "--errors", "fail", problem, "pass --errors leave-out")


def _kept(group: Group, items_of: Callable[[Sheet], pd.Index]) -> Group:
    """Return the group with only these items of each sheet."""
    runs: dict[int, dict[str, Sheet]] = {}
    for seed, run in group.runs.items():
        runs[seed] = {}
        for name, sheet in run.items():
            items = items_of(sheet)
            if not len(items):
                raise ConfigError(sheet.source, name, None, "no item is left", "evaluate again")
            runs[seed][name] = sheet if sheet.items.equals(items) else sheet.only(items)
    return replace(group, runs=runs)


def common_items(groups: Sequence[Group]) -> tuple[list[Group], list[str], list[str]]:
    """Return the groups with the items that all runs have, notes on how many were left out, and doubts if those were
    most.
    """
    notes, doubts = [], []
    kept = {}
    for subset in dict.fromkeys(sheet.subset for group in groups for sheet in group.sheets):
        indexes = [sheet.items for group in groups for sheet in group.sheets if sheet.subset == subset]
        items = reduce(lambda a, b: a if a is b or a.equals(b) else a.intersection(b), indexes).sort_values()
        if not len(items):
            raise ConfigError("compare", subset, None, "no item is common to all runs", "evaluate all on the same data")
        kept[subset] = items
        most = max(map(len, indexes))
        if len(items) < most / 2:
            doubts.append(f"{subset}: only {len(items)} of {most} items are common to all runs")
        lost = {item for group in groups for sheet in group.sheets if sheet.subset == subset for item in sheet.unscored}
        every = len(lost.union(*indexes))
        if left := every - len(items):
            lacking = f"{counted(left, 'item')} that some run lacks {'is' if left == 1 else 'are'} left out"
            said = filter(None, (_of_left_out(group, subset, items) for group in groups))
            remaining = f"{percent(len(items) / every)} of {every} remain"
            notes.append("; ".join([f"{subset}: {lacking} (--common-items) and {remaining}", *said]))
    return [_kept(group, lambda sheet: kept[sheet.subset]) for group in groups], notes, doubts


def _of_left_out(group: Group, subset: str, kept: pd.Index) -> str:
    """Return, in words, a group's scores on the items that only it has and on the common items."""
    means = []
    for sheet in [run[subset] for run in group.runs.values()]:
        common = sheet.items.isin(kept)
        if not common.all():
            means.append((int((~common).sum()), sheet.values[~common].mean(), sheet.values[common].mean()))
    if not means:
        return ""
    count, left, common = np.mean(means, axis=0)
    scores = f"{group.name} scores {alone(left)} on {fixed(count, 0)} items that were left out"
    return f"{scores} and {alone(common)} on the common items"

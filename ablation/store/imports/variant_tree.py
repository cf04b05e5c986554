"""Find the tree of imported variants.

`study.yaml` may declare it. Otherwise the root is the variant called `base` or the like, else the one that started
first or, if start times are not known, the one most like the others; the parent of each other variant is the one from
which its configuration differs least.
"""

import json
import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablation.config.dotted import nested
from ablation.config.import_file import ImportFile
from ablation.config.names import suggest
from ablation.config.study import Change, factor_of
from ablation.config.variant_tree import ancestors, natural, walk
from ablation.contract.errors import ConfigError
from ablation.plan.plan_file import PlannedVariant
from ablation.store.imports.grouping import Group, group_runs, safe_name
from ablation.store.imports.stored import Record

_PRODUCT_OF = {  # by default and on one device, in the Trainer and TRL
    "train_batch_size": ("per_device_train_batch_size",),
    "eval_batch_size": ("per_device_eval_batch_size",),
    "steps_per_generation": ("gradient_accumulation_steps",),
    "generation_batch_size": ("per_device_train_batch_size", "steps_per_generation"),
}

_ROOTS = ("base", "baseline", "control", "reference", "root")


def derive(
    runs: Sequence[Record], study: ImportFile, where: str
) -> tuple[tuple[PlannedVariant, ...], list[tuple[str, int]]]:
    """Return the variants, parents before children, and the (variant, seed) of each run.

    Raises ConfigError if a run's variant or seed, or a variant's parent, cannot be found.
    """
    groups = group_runs(runs, study, where)
    _hang(groups, study, where)
    placed = [("", 0)] * len(runs)
    for group in groups:
        for place, seed in zip(group.runs, group.seeds, strict=True):
            placed[place] = (group.name, seed)
    return tuple(_planned(groups, study)), placed


def _hang(groups: list[Group], study: ImportFile, where: str) -> None:
    declared = {name: each.parent for name, each in study.variants.items() if "parent" in each.model_fields_set}
    declared |= study.runs.parents
    nearest = _nearest(groups)
    taken = {group.name for group in groups if group.name}
    for group, neighbour in nearest:
        if not group.name:
            group.name = _fresh(_by_changes(group, neighbour), taken)
            taken.add(group.name)
    for group, neighbour in nearest:
        group.parent = declared.get(group.name, neighbour.name if neighbour else None)
    for name, parent in study.runs.parents.items():
        for needed in filter(None, (name, parent)):
            if needed not in taken:
                remedy = suggest(needed, sorted(taken))
                raise ConfigError(where, f"parents.{name}", parent, f"no run belongs to variant {needed}", remedy)
    for group in groups:
        if group.parent is not None and group.parent not in taken:
            remedy = suggest(group.parent, sorted(taken))
            raise ConfigError(where, f"variants.{group.name}.parent", group.parent, "the parent has no runs", remedy)
    parents = {group.name: group.parent for group in groups}
    circular = len(list(walk(parents))) < len(groups)
    for group in groups:
        if circular and group.name in ancestors(group.parent or "", parents):
            remedy = "declare the root with --map parents.NAME=none"
            raise ConfigError(where, f"parents.{group.name}", group.parent, "the variant descends from itself", remedy)


def _nearest(groups: list[Group]) -> list[tuple[Group, Group | None]]:
    """Return each group with its parent, which is None for the root.

    The tree grows from the root; the group that differs least from a group in the tree is always added next. Among
    equal differences, the parent that was added first is chosen, and then the group of lowest rank.
    """
    count, timed = len(groups), all(group.started for group in groups)
    codes = _codes(groups)
    apart = sum(count - np.bincount(column)[column] for column in codes.T) if codes.size else np.zeros(count, int)

    def rank(place: int) -> tuple[Any, ...]:
        group = groups[place]
        base = next((i for i, word in enumerate(_ROOTS) if group.name.lower() == word), len(_ROOTS))
        leaves = json.dumps(group.leaves, sort_keys=True)
        return (base, group.started if timed else "", int(apart[place]), natural(group.name), leaves)

    ranked = sorted(range(count), key=rank)
    codes = codes[ranked]
    distance = np.full(count, codes.shape[1] + 1)
    parent = np.zeros(count, int)  # its place among those in the tree
    grown, waiting = [0], np.arange(1, count)
    while len(waiting):
        nearer = (codes[waiting] != codes[grown[-1]]).sum(1)
        closer = nearer < distance[waiting]
        distance[waiting[closer]], parent[waiting[closer]] = nearer[closer], len(grown) - 1
        next_one = np.argmin((distance[waiting] * count + parent[waiting]) * count + waiting)
        grown.append(int(waiting[next_one]))
        waiting = np.delete(waiting, next_one)
    chosen = [groups[ranked[place]] for place in grown]
    return [(chosen[0], None), *((chosen[at], chosen[parent[grown[at]]]) for at in range(1, count))]


def _codes(groups: Sequence[Group]) -> NDArray[np.int64]:
    """Return a number for each group (row) and key (column): the same for equal values, 0 for a missing value."""
    keys = sorted({key for group in groups for key in group.leaves if not _is_product(key, group.leaves)})
    codes = np.zeros((len(groups), len(keys)), np.int64)
    for column, key in enumerate(keys):
        codes_by_value: dict[Any, int] = {}
        for row, group in enumerate(groups):
            if key in group.leaves:
                value = group.leaves[key]
                value = (json.dumps(value, sort_keys=True),) if isinstance(value, list | dict) else value
                codes[row, column] = codes_by_value.setdefault(value, len(codes_by_value) + 1)
    return codes


def _differs(key: str, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    if _is_product(key, a) and _is_product(key, b):
        return False
    return (key in a) != (key in b) or a.get(key) != b.get(key)


def _is_product(key: str, leaves: Mapping[str, Any]) -> bool:
    """Return whether a setting is only the product of other settings, as it is by default on one device."""
    factors: list[Any] = [leaves.get(factor) for factor in _PRODUCT_OF.get(key, ())]
    known = bool(factors) and all(isinstance(factor, int) for factor in factors)
    return known and leaves.get(key) == math.prod(factors)


def _by_changes(group: Group, parent: Group | None) -> str:
    if parent is None:
        return "root"
    changed = [key for key in group.leaves if _differs(key, group.leaves, parent.leaves)]
    return safe_name("-".join(f"{key.rpartition('.')[2]}-{group.leaves[key]}" for key in changed[:3])) or "variant"


def _fresh(name: str, taken: Iterable[str]) -> str:
    count, fresh = 1, name
    while fresh in taken:
        count += 1
        fresh = f"{name}-{count}"
    return fresh


def _planned(groups: Sequence[Group], study: ImportFile) -> Iterator[PlannedVariant]:
    named = {group.name: group for group in groups}
    order = walk({group.name: group.parent for group in groups}, lambda names: sorted(names, key=natural))
    for place in order:
        group = named[place.name]
        above = named.get(group.parent or "")
        known = above is not None and group.leaves and above.leaves
        changes = _changes(group, above, study.factors) if above is not None and known else ()
        written = study.variants.get(group.name)
        why = written.why if written else None
        yield PlannedVariant(
            name=group.name,
            parent=group.parent,
            why=why or ("imported" if group.leaves else "imported; no configuration recorded for this variant"),
            label=(written and written.label) or "",
            file="",
            resolved=nested(group.leaves),
            factors=tuple(dict.fromkeys(change.factor for change in changes)),
            changes=changes,
        )


def _changes(group: Group, parent: Group, factors: Mapping[str, list[str]]) -> tuple[Change, ...]:
    keys = [key for key in {**parent.leaves, **group.leaves} if _differs(key, group.leaves, parent.leaves)]
    return tuple(
        Change.model_validate(
            {"key": key, "from": parent.leaves.get(key), "to": group.leaves.get(key), "factor": factor_of(key, factors)}
        )
        for key in keys
    )

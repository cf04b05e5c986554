"""Scored sequences in the JSON of the demonstrations notes (`rl_data.json`), and the pools that pointers index."""

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

SCORES = ("correct", "acc_score", "info_score", "logp_gain")
POOLS = ("candidate_pool_ids", "candidate_pool_indices", "pool")
_LEGACY = {  # names of the source's JSON
    "correct": "vqa_correct",
    "acc_score": "vqa_acc_score",
    "info_score": "beam_score",
    "method": "gen_method",
}


@dataclass(frozen=True)
class Sequences:
    """What a file holds, in its own names."""

    path: Path
    pools: dict[str, list[str]]  # by query
    rows: list[dict[str, Any]]  # query, pointer, the scores and the method
    skipped: int  # sequences that the source marks as not evaluated
    shared: list[str] | None = None  # the pool of all queries, where the file gives one


@dataclass(frozen=True)
class Imported:
    """Pools of a file as items of the in-context model."""

    path: Path
    pools: Mapping[int, Sequence[int]]  # by query
    names: Sequence[str]  # of the items
    shared: Sequence[int] | None = None  # of all queries, also those that are not in the file


def read_sequences(path: Path) -> Sequences:
    """Read `{query: {"candidate_pool_ids": [...], "pointer_candidates": [{"pointer": [...], "vqa_correct": ...}]}}`.

    A pointer counts places in the query's pool; `candidate_pool_ids` at the top level is the pool of all. Scores are
    `vqa_correct`, `vqa_acc_score` and `beam_score` (in the seed the information gain), or the names of the columns;
    absent or null is missing. Keys that begin with "_" are not queries, and sequences with `eval_failed` or
    `vqa_eval_mode` "error" are left out, as there.

    Raises:
        ValueError: not of this shape, or a query without its pool; with file and query.
    """
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
        entries = {query: entry for query, entry in content.items() if not query.startswith("_") and query not in POOLS}
        shared = _pool(content)
        pools, rows, skipped = {}, [], 0
        for query, entry in entries.items():
            pool = _pool(entry)
            if shared is not None and pool not in (None, shared):
                raise ValueError(f"{path}, query {query}: a pool beside {POOLS[0]} of all queries: give one of the two")
            pools[query] = _given(pool or shared, f"{path}, query {query}")
            for item in entry["pointer_candidates"]:
                if item.get("eval_failed") or item.get("vqa_eval_mode") == "error":
                    skipped += 1
                else:
                    rows.append(_row(query, item))
    except (json.JSONDecodeError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(
            f"{path}: not scored sequences ({type(error).__name__}: {error}): "
            "write query: {candidate_pool_ids: [...], pointer_candidates: [{pointer: [...], ...}]}"
        ) from None
    return Sequences(path, pools, rows, skipped, shared)


def imported_pools(sequences: Sequences, names: Sequence[str], positions: Sequence[int] | None) -> Imported:
    """Return the pools as items.

    Args:
        sequences: of the file.
        names: of the items, by which the file calls queries and demonstrations.
        positions: items in the order of the training file, where the file calls them by their place in it (as the
            source does); None: by name.

    Raises:
        ValueError: a name is unknown; with file and query.
    """
    known = {name: item for item, name in enumerate(names)}
    if positions is not None:
        known = {str(place): item for place, item in enumerate(positions)}
    pools = {}
    for query, pool in sequences.pools.items():
        if strange := [name for name in (query, *pool) if name not in known]:
            named = "position in the training file" if positions is not None else "id"
            raise ValueError(
                f"{sequences.path}, query {query}: {strange[0]!r} is the {named} of no question of this task: correct "
                "the file, or offline_names (id or position)"
            )
        pools[known[query]] = [known[name] for name in pool]
    shared = None if sequences.shared is None else [known[name] for name in sequences.shared]
    return Imported(sequences.path, pools, names, shared)


def _pool(entry: Mapping[str, Any]) -> list[str] | None:
    return next(([str(candidate) for candidate in entry[name]] for name in POOLS if name in entry), None)


def _given(pool: list[str] | None, where: str) -> list[str]:
    if pool is None:
        raise ValueError(
            f"{where}: no {POOLS[0]}: without the pool nobody knows what its pointers mean; add the list of "
            "candidates, or one for all queries beside them"
        )
    return pool


def _row(query: str, item: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"query": query, "pointer": [int(index) for index in item["pointer"]]}
    row |= {name: _number(item.get(name, item.get(_LEGACY.get(name, name)))) for name in SCORES}
    row["method"] = str(item.get("method", item.get(_LEGACY["method"], "imported")))
    return row


def _number(value: Any) -> float | None:
    number = None if value is None else float(value)
    return None if number is None or math.isnan(number) else number

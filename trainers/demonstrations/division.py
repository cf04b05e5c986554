"""Which questions are asked, which are demonstrations, and which demonstrations a query may be given (its pool)."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from trainers.demonstrations.config import Sizes
from trainers.demonstrations.source_json import Imported

SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class Division:
    """Queries, and the demonstrations that each may be given. Items are numbers of the in-context model."""

    queries: Sequence[int]  # (Q,) items
    splits: Mapping[str, range]  # places in `queries` of train, validation and test
    demonstrations: Sequence[int]  # (D,) items
    pools: Tensor  # (Q, K) int64, places in `demonstrations`: pointer p of query q means demonstrations[pools[q, p]]


def consecutive_splits(lengths: Sequence[int]) -> dict[str, range]:
    """Return the ranges of train, validation and test, one after the other."""
    splits, start = {}, 0
    for name, length in zip(SPLITS, lengths, strict=True):
        splits[name] = range(start, start + length)
        start += length
    return splits


def draw_pools(queries: int, demonstrations: int, candidates: int, seed: int) -> Tensor:
    """Draw `candidates` distinct demonstrations for each query, uniformly: (Q, K) int64.

    Raises ValueError where there are fewer demonstrations than candidates.
    """
    if demonstrations < candidates:
        raise ValueError(
            f"data: {demonstrations} demonstrations are left for task.candidates = {candidates}: "
            "lower task.candidates or task.sizes"
        )
    generator = torch.Generator().manual_seed(seed)
    rows = [torch.randperm(demonstrations, generator=generator)[:candidates] for _ in range(queries)]
    return torch.stack(rows) if rows else torch.zeros(0, candidates, dtype=torch.int64)


def divide_questions(
    training: Sequence[int],
    test: Sequence[int] | None,
    *,
    sizes: Sizes,
    candidates: int,
    seed: int,
    imported: Imported | None = None,
) -> Division:
    """Draw the training and validation queries; what is left over of the training file are the demonstrations.

    Args:
        training: items of the training file, in its order.
        test: items of the evaluation file: the first `sizes.test` of them are the test queries, in its order. None:
            there is one file, and the test queries are drawn from it too.
        sizes: queries per split.
        candidates: size of a pool, K.
        seed: of the draws.
        imported: training queries with their pools, as items; then every question of the training file may be a
            demonstration, though none in its own pool, and validation (and test) queries are drawn from those that
            are not training queries. Where it has one pool for all, validation and test have that, and none of its
            questions is drawn.

    Raises:
        ValueError: too few questions, or a size that the files contradict; with the key to change.
    """
    order = torch.randperm(len(training), generator=torch.Generator().manual_seed(seed)).tolist()
    drawn = [training[place] for place in order]
    shared = None if imported is None else imported.shared
    if imported is not None:
        asked = set(imported.pools)
        if len(asked) != sizes.train:
            raise ValueError(
                f"{imported.path}: sequences of {len(asked)} queries, task.sizes.train = {sizes.train}: "
                f"set it to {len(asked)}"
            )
        drawn = [*imported.pools, *(item for item in drawn if item not in asked and item not in (shared or ()))]
    count = sizes.train + sizes.validation + (sizes.test if test is None else 0)
    if len(drawn) < count + (shared is None):  # at least one is left over
        raise ValueError(
            f"data: {len(drawn)} questions to learn from, task.sizes ask for {count} queries of them: "
            "too few, or no demonstration is left; lower task.sizes"
        )
    queries, rest = drawn[:count], drawn[count:]
    if test is not None:
        if len(test) < sizes.test:
            raise ValueError(f"data: {len(test)} questions to evaluate, task.sizes.test = {sizes.test}: lower it")
        queries = [*queries, *test[: sizes.test]]
    splits = consecutive_splits((sizes.train, sizes.validation, sizes.test))
    places = {item: place for place, item in enumerate(training)}
    if shared is None:
        pools = draw_pools(len(queries), len(rest), candidates, seed)
    else:
        pools = torch.tensor([places[item] for item in shared]).repeat(len(queries), 1)
    if imported is None:
        return Division(queries, splits, rest, pools)
    if shared is None:
        pools = torch.tensor([places[item] for item in rest])[pools]
    division = Division(queries, splits, training, pools)
    return with_pools(division, imported, candidates)


def with_pools(division: Division, imported: Imported, candidates: int) -> Division:
    """Return the division with the pools of an imported file instead of those that were drawn.

    Raises:
        ValueError: a query is not a training query, or a pool names what is not a demonstration, the query itself or a
            demonstration twice, or has another size; with file and query.
    """
    asked = {division.queries[place]: place for place in division.splits["train"]}
    places = {item: place for place, item in enumerate(division.demonstrations)}
    pools = division.pools.clone()
    for query, pool in imported.pools.items():
        where = f"{imported.path}, query {imported.names[query]}"
        if query not in asked:
            raise ValueError(f"{where}: it is not a training query of this task")
        if len(pool) != candidates:
            raise ValueError(f"{where}: a pool of {len(pool)}, task.candidates = {candidates}: set it to {len(pool)}")
        if query in pool or len(set(pool)) != len(pool):
            raise ValueError(f"{where}: its pool holds the query itself or a demonstration twice: correct the file")
        if strange := [item for item in pool if item not in places]:
            raise ValueError(f"{where}: {imported.names[strange[0]]} in its pool is not a demonstration of this task")
        pools[asked[query]] = torch.tensor([places[item] for item in pool])
    return Division(division.queries, division.splits, division.demonstrations, pools)

"""Judges paths of a variant tree: a variant against an ancestor, with all changes between them together."""

from collections.abc import Mapping, Sequence
from weakref import WeakKeyDictionary

import numpy as np

from ablation.judge.correct import Correction
from ablation.judge.family import Family
from ablation.judge.measure import interim_shares
from ablation.judge.significance import Noise

_MOST_PATHS = 5_000  # whose correlations are worked out, in 3 GB; more get Bonferroni's correction


_KNOWN: WeakKeyDictionary[Correction, float] = WeakKeyDictionary()  # a study asks for each of its variants


def path_level(correction: Correction) -> float:
    """Return the level for the interval of each path of a variant tree; it is computed once per family."""
    if correction not in _KNOWN:
        _KNOWN[correction] = _path_level(correction)
    return _KNOWN[correction]


def _path_level(correction: Correction) -> float:
    """Compute the level for the interval of each path, with alpha over all paths.

    The family is every variant against every one of its ancestors, so that a reader may look for the best of them.
    A path is the sum of its comparisons, so the comparisons' covariances give the covariances of paths.
    """
    analysis = correction.study.analysis
    pairs = [comparison.pair for comparison in correction.tested]
    ways = [way for _, way in sorted(ways_up(correction.study.parents, pairs).items()) if way]
    paths = sum(map(len, ways))
    if correction.covariances is None or not paths or paths > _MOST_PATHS:
        return analysis.alpha / max(paths, 1)
    # [paths, comparisons]: the comparisons that each path sums. The paths of a variant are the beginnings of its way.
    each = np.eye(len(correction.tested))
    steps = np.concatenate([each[way].cumsum(axis=0) for way in ways])
    by_seed, by_item = (steps @ part @ steps.T for part in correction.covariances)
    noises = [comparison.interims[-1].estimate.noise for comparison in correction.tested]
    weakest = [
        Noise(
            float(by_seed[at, at]),
            min(noise.seed_df for noise, used in zip(noises, path, strict=True) if used),
            float(by_item[at, at]),
            min(noise.item_df for noise, used in zip(noises, path, strict=True) if used),
        )
        for at, path in enumerate(steps)
    ]
    return Family.of(by_seed, by_item, weakest, interim_shares(analysis)).level(analysis.alpha)


def ways_up(parents: Mapping[str, str | None], comparisons: Sequence[tuple[str, str]]) -> dict[str, list[int]]:
    """Return {variant: numbers of the comparisons on the way from it up the variant tree}."""
    index = {comparison: number for number, comparison in enumerate(comparisons)}
    ways: dict[str, list[int]] = {}
    for variant in parents:
        way, at = ways.setdefault(variant, []), variant
        while (above := parents.get(at)) is not None and (number := index.get((at, above))) is not None:
            way.append(number)
            at = above
    return ways

"""Estimates the effect of one comparison, its interval and its p-value (docs/explanation/statistics.md).

`values` is one array [groups, seeds, items] per subset: the same items for every group and seed, the same seeds for
every group. Items are crossed with seeds, not nested in them. A *gain* is the statistic with a sign that makes larger
values better.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from itertools import pairwise
from math import inf

import numpy as np
from scipy import special

from ablation.judge.design import Design, ItemVariance, group_noise, item_variance
from ablation.judge.resampling import (
    Clusters,
    Numbers,
    contributions,
    correlation_within,
    draw_sums,
    draw_together,
    item_degrees,
    number_clusters,
    unfolding,
    unseen,
    variation_shown,
)
from ablation.judge.significance import Array, Noise, flip_p, half_width, p_value, skewed_p

Direction = str | dict[str, float]

REPLICATES = 2000
BOOTSTRAP_SEED = 20250301
_FLIPPED = 16  # clusters of several items from which on signs are flipped: a flip of few can reach no small p
_FEW = (100, 200)  # clusters without bounds up to which, and from which on not, a change of 2% may well go unseen
_NEGLIGIBLE = 1e-6  # of a variance: a part of it that small is not worked out
_SAME = 1e-6  # relative difference of values that are equal but for rounding, in float32 too
_APART = 20  # items on which runs differ on average: two that agree on all of them are one
_PAIRED = Design()
_NEVER = 1e-6  # chance below which a mean is not taken to cross its target


@dataclass(frozen=True)
class Crossing:
    """A second test, valid at every level, for means that may lie on either side of a target."""

    p_value: float  # twice the share of draws on the smaller side of 0
    chance: float  # of a mean that lies on the other side of its target than it seems to
    reach: Array  # the effect in each draw

    def percentiles(self, alpha: float) -> tuple[float, float]:
        """Return the percentile interval of the draws if `chance` is above alpha / 4, else an empty interval."""
        if self.chance <= alpha / 4:
            return inf, -inf
        low, high = np.quantile(self.reach, [alpha / 2, 1 - alpha / 2])
        return float(low), float(high)

    def p(self, p: float) -> float:
        """Return the smallest level at which both the effect's own test, whose p is given, and the draws exclude 0.

        At level alpha the draws count only if the chance is above alpha / 4.
        """
        return max(p, min(self.p_value, 4 * self.chance, 1.0))

    def p_above(self, bound: float, p: float) -> float:
        """Return the p-value of the hypothesis that the effect is at most `bound`.

        The share of draws is doubled, because errors at a target all lie on one side.
        """
        below = 2 * (int(np.sum(self.reach <= bound)) + 1) / (len(self.reach) + 1)
        return max(p, min(below, 4 * self.chance, 1.0))


@dataclass(frozen=True)
class Estimate:
    """A contrast of groups, in units of the statistic; a positive effect is an improvement."""

    effect: float  # mean over seeds of the contrast of the runs' statistics: the difference of two table cells
    centre: float  # the effect without the bias of |mean - target| for noisy means; equals effect for max and min
    confidence: float
    noise: Noise  # of the centre; moderated if the study's other variants inform it
    seeds: int
    items: int
    clusters: int  # of items
    items_only: bool  # whether a subset has only one cluster, whose noise is unknown: the effect is of these items only
    own_df: float  # of the seeds' variance, before it was moderated
    item_noise: Noise  # the items' alone, as if these very seeds were the population
    per_seed: tuple[float, ...]
    # The effect on other items, minus the effect itself: [replicates]. All contrasts of one study use the
    # same draws, so the draws' covariances are the item part of the effects' covariances.
    draw_items: Callable[[], Array] = field(repr=False, compare=False)
    crossing: Crossing | None = field(repr=False, compare=False)  # None unless a mean may lie across its target
    copied: tuple[int, ...] = ()  # places of groups whose seeds have all the same values, which count as one run
    bounded: bool = False  # whether no value can lie far from the others
    counts: bool = False  # whether items are right or wrong, or shares of an item's samples that are
    units: tuple[float, ...] = ()  # each cluster's part, where its sign may be flipped
    unseen_share: float = 1.0  # the share of what may have gone unseen that better and worse allow for
    skewed_p: float = 0.0  # p of the clusters' parts, where their mean may be skewed; 0 if values have bounds
    design: Design = _PAIRED

    @cached_property
    def exact_p(self) -> float:
        """Sign-flip p over clusters of items (McNemar's exact test for one run); 0 if the test does not apply."""
        return flip_p(self.units) if self.units else 0.0

    @property
    def least_p(self) -> float:
        """Smallest value that `exact_p` can have with this many clusters; 0 if `exact_p` is not used."""
        return 2.0 ** (1 - len(self.units)) if self.units and not self.items_only else 0.0

    @property
    def low(self) -> float:
        """Lower end of the interval at `confidence`."""
        return self.interval(1 - self.confidence)[0]

    @property
    def high(self) -> float:
        """Upper end of the interval at `confidence`."""
        return self.interval(1 - self.confidence)[1]

    @cached_property
    def p(self) -> float:
        """Two-sided unadjusted p; NaN with one seed; 1 if effect and centre have opposite signs."""
        if not self.noise.seeds_known:
            return float("nan")
        if self.effect * self.centre < 0:
            return 1.0
        return self._p(self.noise)

    @property
    def item_p(self) -> float:
        """P-value that allows for the noise of items alone; NaN if the noise of items is unknown."""
        if self.items_only:
            return float("nan")
        return self._p(self.item_noise)

    @cached_property
    def item_draws(self) -> Array:
        """Bootstrap draws over the items, which only a family of comparisons needs."""
        return self.draw_items()

    def interval(self, alpha: float) -> tuple[float, float]:
        """Return the interval at 1 - alpha, which contains the effect; NaN if neither seeds nor items show noise.

        It agrees with `p`: 0 lies inside it if p is above alpha, else outside or at its end.
        """
        low, high = self._ends(self.noise, alpha)
        if not self.noise.seeds_known:
            return low, high
        if self.p > alpha:
            return min(low, 0.0), max(high, 0.0)
        return (max(low, 0.0), high) if self.effect > 0 else (low, min(high, 0.0))

    def _ends(self, noise: Noise, alpha: float) -> tuple[float, float]:
        """Return the ends of the interval, which may disagree with the p-value on whether the effect is 0."""
        if self.items_only and not noise.seeds_known:
            return float("nan"), float("nan")
        half = half_width(noise, alpha)
        low, high = self.crossing.percentiles(alpha) if self.crossing else (inf, -inf)
        return min(self.centre - half, low, self.effect), max(self.centre + half, high, self.effect)

    def within(self, margin: float | None, alpha: float) -> bool:
        """Return whether the effect lies inside ±margin, by two one-sided tests, each at alpha (Schuirmann, 1987).

        False without a margin, or with one seed. The allowance for unseen changes stays two-sided at alpha, because
        few changes are counts, which are skewed.
        """
        if margin is None or not self.noise.seeds_known:
            return False
        hidden = self.noise.unseen * float(np.log(alpha / 2) / np.log(alpha))
        low, high = self._ends(replace(self.noise, unseen=hidden), 2 * alpha)
        return -margin <= low and high <= margin

    def _p(self, noise: Noise) -> float:
        """Return the p-value, which allows for unseen changes unless an exact sign-flip test makes that unnecessary."""
        if self.items_only:
            p = p_value(self.centre, noise)
        else:
            p = 0.0 if self.mcnemar else p_value(self.centre, replace(noise, unseen=self.unseen_share * noise.unseen))
            p = max(p, self.exact_p, self.skewed_p)
        return self.crossing.p(p) if self.crossing else p

    @property
    def verdict_noise(self) -> Noise:
        """The noise with which the verdicts `better` and `worse` are tested."""
        return replace(self.noise, unseen=self.unseen_share * self.noise.unseen)

    @property
    def mcnemar(self) -> bool:
        """Whether McNemar's exact test is enough: one run per side, and right or wrong items without clusters."""
        about_runs = self.design.claim == "checkpoints" and self.seeds == 1
        return about_runs and self.counts and len(self.units) == self.items

    def p_not_worse(self, margin: float | None) -> float:
        """Return the one-sided p-value of an effect of at most -margin; NaN with one seed, or without a margin."""
        if margin is None or not self.noise.seeds_known:
            return float("nan")
        if self.effect <= -margin:
            return 1.0
        p = p_value(self.centre + margin, self.noise, sides=1)
        return self.crossing.p_above(-margin, p) if self.crossing else p


def gain(means: Array, direction: Direction) -> Array:
    """Turn subset means into gains: the mean for max, minus the mean for min, minus the distance for a target."""
    if isinstance(direction, dict):
        return -np.abs(means - direction["target"])
    if direction not in ("max", "min"):
        raise ValueError(f"direction must be max, min or {{target: x}}, not {direction!r}")
    return means if direction == "max" else -means


@dataclass(frozen=True, eq=False)
class Group:
    """The runs of one variant, with statistics that are computed once for all contrasts of the variant."""

    values: Sequence[Array]  # [1, seeds, items] per subset
    direction: Direction
    clusters: Clusters
    replicates: int = REPLICATES
    samples: int = 1  # of an item; the item's value is their mean
    planned: bool = True  # whether a plan gave each run its seed; else one run may be listed under several seeds
    logarithms: bool = False  # whether values are logarithms, of which 0 and 1 are no ends of a scale

    @cached_property
    def means(self) -> Array:
        """Means of the items [1, seeds, subsets]."""
        means = np.stack([subset.mean(axis=2) for subset in self.values], axis=2)
        if not np.isfinite(means).all():
            raise ValueError("the value of every item must be finite")
        return means

    @cached_property
    def copied(self) -> bool:
        """Whether all seeds have the same values on several items, as if one run were listed under several seeds.

        False if all items have one value, such as a perfect score.
        """
        by_subset = list(zip(self.ranges, self.values, strict=True))
        varied = any(high > low and values.shape[2] > 1 for (low, high), values in by_subset)
        if self.means.shape[1] < 2 or not varied:
            return False
        return all(
            (np.ptp(values[0], axis=0) <= _SAME * max(abs(low), abs(high))).all() for (low, high), values in by_subset
        )

    @cached_property
    def copy(self) -> tuple[int, int] | None:
        """Positions of two runs that have the same values although other runs differ on many items, or None."""
        if self.planned or self.copied:
            return None
        first: dict[bytes, int] = {}
        copies = []
        for place in range(self.means.shape[1]):
            values = b"".join(array[0, place].tobytes() for array in self.values)
            if (other := first.setdefault(values, place)) != place:
                copies.append((other, place))
        apart = [
            sum(int((array[0, one] != array[0, other]).sum()) for array in self.values)
            for one, other in pairwise(first.values() if copies else ())
        ]
        return copies[0] if apart and np.mean(apart) >= _APART else None

    @cached_property
    def gains(self) -> Array:
        """Gain of each run [seeds]: the gain of each subset's mean, averaged over subsets."""
        return gain(self.means[0], self.direction).mean(axis=1)

    @cached_property
    def one_run(self) -> bool:
        """Whether each run is a single value, and all seeds have the same value except for rounding.

        False for a value of 0 or 1, because every seed may reach an end of the scale.
        """
        values = np.concatenate([subset[0] for subset in self.values], axis=1)  # [seeds, subsets]
        ends = not self.logarithms and np.isin(values, (0, 1)).all()
        if len(values) < 2 or values.shape[1] > len(self.values) or ends:
            return False
        return bool((np.ptp(values, axis=0) <= _SAME * np.abs(values).max(axis=0)).all())

    @cached_property
    def centres(self) -> Array:
        """Gain of each run [seeds], from means without the bias of `abs(mean - target)` (`unfolded`)."""
        folds = isinstance(self.direction, dict)
        return gain(self.unfolded[0], self.direction).mean(axis=1) if folds else self.gains

    @cached_property
    def readings(self) -> list[Array]:
        """Gains [seeds] with each mean on its own side of the target, and with all on the side of their average."""
        if not isinstance(self.direction, dict):
            return [self.gains]
        common = _slopes(self.means.mean(axis=1, keepdims=True), self.direction)
        away = self.means - self.direction["target"]
        return [(sign * away)[0].mean(axis=1) for sign in (self.slopes, common)]

    @cached_property
    def share(self) -> Array:
        """Share of the means' spread over seeds that is not item noise [1, subsets]; used only for targets."""
        return unfolding(self.values, self.means)

    @cached_property
    def unfolded(self) -> Array:
        """Means [1, seeds, subsets] shrunk towards their average, so that item noise adds nothing to their spread."""
        return draw_together(self.means, self.share)

    @cached_property
    def slopes(self) -> Array:
        """Derivative of a gain with respect to each mean [1, seeds, subsets]."""
        return _slopes(self.unfolded if isinstance(self.direction, dict) else self.means, self.direction)

    @property
    def directed(self) -> list[Array]:
        """Values multiplied so that larger is better, [seeds, items] per subset."""
        return [self.slopes[0, :, index, None] * subset[0] for index, subset in enumerate(self.values)]

    @cached_property
    def ranges(self) -> list[tuple[float, float]]:
        """Smallest and largest value of the items of each subset."""
        return [(float(subset.min()), float(subset.max())) for subset in self.values]

    @cached_property
    def least_step(self) -> float:
        """Smallest step between values of the first run, divided by the number of items; the largest of all subsets."""
        return max(_step(np.sort(subset[0, 0])) / subset.shape[2] for subset in self.values)

    @property
    def most(self) -> float:
        """Largest value on a bounded scale: 100 if some item has the value 100, else 1."""
        return 100.0 if any(high == 100 for _, high in self.ranges) else 1.0

    @property
    def bounded(self) -> bool:
        """Whether all values lie between 0 and 1 or, if some item has the value 100, between 0 and 100."""
        if self.logarithms:
            return False
        return all(low >= 0 and high <= self.most for low, high in self.ranges)

    @cached_property
    def counts(self) -> bool:
        """Whether all values are 0 or 1, or shares of an item's samples; in percent if some item has the value 100."""
        percent = self.samples / self.most
        if self.logarithms or any(low < 0 or high * percent > self.samples for low, high in self.ranges):
            return False
        return all((np.abs(values * percent - np.rint(values * percent)) < 1e-6).all() for values in self.values)

    @property
    def first_run(self) -> "Group":
        """The group with only its first run."""
        return replace(self, values=[array[:, :1] for array in self.values])

    @property  # not kept, as `directed`: a study of a thousand variants would hold its values five times
    def by_cluster(self) -> Array:
        """Each cluster's contribution to the deviations of the means [clusters, 1, seeds, subsets]."""
        return contributions(self.values, self.clusters)

    @cached_property
    def linear(self) -> Array:
        """Each cluster's contribution to a gain [clusters, seeds]."""
        if not self.clusters.single:
            return (self.slopes * self.by_cluster).mean(axis=-1)[:, 0]
        contributed = np.empty((self.clusters.count, self.means.shape[1]))
        for index, (subset, numbers) in enumerate(zip(self.values, self.clusters.of_items, strict=True)):
            scale = self.clusters.corrections[numbers, index] / subset.shape[2]
            deviations = (subset[0] - self.means[0, :, index, None]).T * scale[:, None]
            contributed[numbers] = self.slopes[0, :, index] * deviations / len(self.values)
        return contributed

    @cached_property
    def item_sd(self) -> Array:
        """Item noise of the means [1, seeds, subsets]."""
        return np.sqrt(np.square(self.by_cluster).sum(axis=0))

    @cached_property
    def draws(self) -> tuple[Array, Array]:
        """Gains [replicates, seeds] under draws of the items: from the means as drawn, and from the shrunk means.

        Unlike the slopes, draws may move a mean across the target.
        """
        moved = self.means[0] + draw_sums(self.by_cluster[:, 0], self.replicates, BOOTSTRAP_SEED)
        unfolded = draw_together(moved[:, None], self.share)[:, 0]
        return gain(moved, self.direction).mean(axis=-1), gain(unfolded, self.direction).mean(axis=-1)


def contrast(
    values: Sequence[Array],
    weights: Sequence[float],
    direction: Direction,
    *,
    confidence: float = 0.95,
    clusters: Clusters | Sequence[Numbers] | None = None,
    replicates: int = REPLICATES,
) -> Estimate:
    """Estimate a weighted sum of groups of runs from one array [groups, seeds, items] per subset (`contrast_groups`).

    `clusters`: the number of each item's cluster, an array [items] per subset; None: each item is its own cluster.
    """
    sizes = [subset.shape[2] for subset in values]
    drawn = clusters if isinstance(clusters, Clusters) else number_clusters(sizes, clusters)
    values_by_group = ([subset[group : group + 1] for subset in values] for group in range(len(weights)))
    return contrast_groups([Group(part, direction, drawn, replicates) for part in values_by_group], weights, confidence)


def contrast_groups(
    groups: Sequence[Group], weights: Sequence[float], confidence: float = 0.95, design: Design = _PAIRED
) -> Estimate:
    """Estimate a weighted sum of groups, and its noise over training seeds and clusters of items, which are crossed.

    `weights`: one per group; (1, -1) for child and parent. If the groups' runs are independent, all of them count. The
    variance of a mean over seeds is s^2 / S. The items' variance is the covariance between seeds of the clusters'
    contributions: the noise that more seeds do not remove. Their sum counts the seed-by-item residual once; a joint
    bootstrap of crossed factors counts it three times (Owen, 2007, Annals of Applied Statistics 1, 386-411). With one
    seed, or if the verdict is about these checkpoints, the interval covers item noise only.
    """
    weighed, (first, *_) = np.asarray(weights, dtype=float), groups
    direction, drawn = first.direction, first.clusters
    if not design.paired:
        groups = [group.first_run if group.copied else group for group in groups]
    gains, scales = _varying(weighed, [group.gains for group in groups], design)
    effect, centre = (
        _mean(scales, gains),
        _mean(scales, _varying(weighed, [group.centres for group in groups], design)[0]),
    )
    by_subset = list(zip(*(group.directed for group in groups), strict=True))
    apart = [_weigh(weighed, array) if design.paired else _mean(weighed, array)[None] for array in by_subset]
    per_item = [subset.mean(axis=0) for subset in apart]  # the contrast of each item
    item_df = item_degrees(drawn, 0.0 if drawn.single else correlation_within(per_item, drawn))
    items_only = item_df <= 0 or not drawn.estimable
    between, by_cluster = _between(groups, weighed, design)
    noise = _paired_noise(groups, weighed) if design.paired else _independent_noise(groups, weighed)
    draw_items: Callable[[], Array] = partial(draw_sums, by_cluster, first.replicates, BOOTSTRAP_SEED)
    if items_only:
        draw_items = partial(np.zeros, first.replicates)
    crossing = None
    if isinstance(direction, dict) and not items_only:
        chance = sum(_chance(group.unfolded, group.item_sd, direction) for group in groups)
        if chance > _NEVER:
            folded, item_draws, reach = _folded(groups, weighed, design)
            if folded.shared > between.shared:
                between, draw_items = folded, partial(np.asarray, item_draws)
            crossing = _crossing(reach, chance, 0.0 if design.claim == "checkpoints" else noise.seed_variance)
    if not items_only:
        hidden = unseen([group.ranges for group in groups], weighed, drawn, apart, per_item)
        residual = max(between.mean - between.shared, 0.0)
        noise = replace(noise, item_variance=between.shared, item_df=item_df, unseen=hidden, residual=residual)
    item_noise = Noise(0.0, 1, between.mean, item_df, noise.unseen)
    counts = len(groups) > 1 and all(group.counts for group in groups)
    if design.claim == "checkpoints":
        noise = Noise(float("nan"), 0, 0.0) if items_only else item_noise
    bounded = counts or all(group.bounded for group in groups)
    units: tuple[float, ...] = ()
    several = drawn.single or drawn.count >= _FLIPPED
    flipped, skewed = counts and several, not bounded and (several or design.claim == "checkpoints")
    parts = np.zeros(0)
    if len(groups) > 1 and (flipped or skewed or design.claim == "checkpoints"):
        parts = np.sum([drawn.sums(array / len(array), n) for n, array in enumerate(per_item)], axis=0)
    if flipped or (design.claim == "checkpoints" and len(groups) > 1):
        units = tuple(parts.tolist())
    unseen_share = 0.0 if counts and units else 1.0  # the exact test keeps the level without
    if noise.unseen > 0 and not bounded:
        unseen_share = _unseen_share(groups, per_item)
    return Estimate(
        effect=float(effect),
        centre=float(centre),
        confidence=confidence,
        noise=noise,
        seeds=min(len(group.gains) for group in groups),
        items=sum(subset.shape[2] for subset in first.values),
        clusters=drawn.count,
        items_only=items_only,
        own_df=noise.seed_df,
        item_noise=item_noise,
        per_seed=tuple(gains[0].tolist()) if design.paired else (),
        draw_items=draw_items,
        crossing=crossing,
        copied=tuple(place for place, group in enumerate(groups) if group.copied and not group.planned),
        bounded=bounded,
        counts=counts,
        units=units,
        unseen_share=unseen_share,
        skewed_p=skewed_p(parts) if skewed and len(parts) else 0.0,
        design=design,
    )


def _varying(weights: Array, arrays: Sequence[Array], design: Design) -> tuple[list[Array], Array]:
    """Return the arrays that vary independently, and their weights.

    If runs are paired, this is one array with the difference, else one for each group.

    `arrays`: one per group, with the runs as last axis.
    """
    return ([_weigh(weights, arrays)], np.ones(1)) if design.paired else (list(arrays), weights)


def _between(groups: Sequence[Group], weights: Array, design: Design) -> tuple[ItemVariance, Array]:
    """Return the variance of a contrast over items, and each cluster's part of the contrast [clusters]."""
    linear, scales = _varying(weights, [group.linear for group in groups], design)
    return item_variance(linear, scales), _mean(scales, [array.T for array in linear])


def _unseen_share(groups: Sequence[Group], per_item: Sequence[Array]) -> float:
    """Return `Estimate.unseen_share` for values without bounds, from the contrast of each item [items] by subset."""
    drawn = groups[0].clusters
    fewest = int((drawn.shares > 0).sum(axis=0).min())  # clusters of a subset: each weighs as much as another
    share = float(np.interp(fewest, _FEW, (1, 0)))
    if not drawn.single:
        return share
    return share * (1 - variation_shown(list(zip(*(group.values for group in groups), strict=True)), per_item))


def _paired_noise(groups: Sequence[Group], weights: Array) -> Noise:
    """Return the noise of a contrast that comes from the paired seeds; the items' part is 0."""
    variance = _seed_variance(groups, weights)
    return Noise(variance, 0 if np.isnan(variance) else len(groups[0].gains) - 1, 0.0)


def _independent_noise(groups: Sequence[Group], weights: Array) -> Noise:
    """Return the noise of a contrast of independent runs that comes from their seeds; the items' part is 0."""
    variances = [
        max(float(array.var(ddof=1)) for array in group.readings) if len(group.gains) > 1 else 0.0 for group in groups
    ]
    hidden = _hidden_by_steps(groups, min(variances)) / 12
    noises = group_noise([variance + hidden for variance in variances], [len(group.gains) for group in groups], weights)
    least = 1e-18 * max(float(group.gains.mean()) ** 2 for group in groups)
    one_value = all(array.shape[2] == 1 for array in groups[0].values)
    unknown = any(group.one_run for group in groups) or (one_value and sum(part.variance for part in noises) <= least)
    return Noise.independent(() if unknown else noises)


def _folded(groups: Sequence[Group], weights: Array, design: Design) -> tuple[ItemVariance, Array, Array]:
    """Return the variance of a contrast under draws of the items, and two results of each draw [replicates].

    These are the effect minus the observed one, and the effect from the shrunk means.
    """
    drawn, scales = _varying(weights, [group.draws[0] for group in groups], design)
    together, _ = _varying(weights, [group.draws[1] for group in groups], design)
    gains, _ = _varying(weights, [group.gains for group in groups], design)
    away = [array - observed for array, observed in zip(drawn, gains, strict=True)]
    sums, reach = (_mean(scales, [array.T for array in arrays]) for arrays in (away, together))
    return item_variance(away, scales, draws=True), sums, reach


def _crossing(reach: Array, chance: float, seed_variance: float) -> Crossing:
    """Return the second test at a target from the draws [replicates], widened by the seed noise."""
    if seed_variance > 0 and reach.var() > 0:
        reach = reach.mean() + (reach - reach.mean()) * np.sqrt(1 + seed_variance / reach.var())
    least = min(int(np.sum(reach <= 0)), int(np.sum(reach >= 0)))
    p = min(1.0, 2 * (least + 1) / (len(reach) + 1))  # never 0, since the draws are finitely many
    return Crossing(p, chance, reach)


def _chance(means: Array, sd: Array, direction: dict[str, float]) -> float:
    """Return an upper bound of the chance that item noise moved a mean across its target: a sum of normal tails."""
    with np.errstate(divide="ignore", invalid="ignore"):
        away = np.where(sd > 0, np.abs(means - direction["target"]) / sd, inf)
    return float(special.ndtr(-away).max(axis=1).sum())


def _slopes(means: Array, direction: Direction) -> Array:
    if isinstance(direction, dict):
        return np.where(means >= direction["target"], -1.0, 1.0)
    return np.full_like(means, 1.0 if direction == "max" else -1.0)


def _mean(weights: Array, arrays: Sequence[Array]) -> Array:
    """Return the weighted sum of the means of arrays over their first axis."""
    return _weigh(weights, [np.asarray(array.mean(axis=0)) for array in arrays])


def _weigh(weights: Array, arrays: Sequence[Array]) -> Array:
    total = weights[0] * arrays[0]
    for weight, array in zip(weights[1:], arrays[1:], strict=True):
        total = total + weight * array
    return total


def _seed_variance(groups: Sequence[Group], weights: Array) -> float:
    """Return the variance of a contrast's mean over paired seeds; NaN if the variance is unknown.

    It is unknown with one seed, and for runs of single values if those of one group, or all differences, are equal.
    Seeds on both sides of a target may be noise around one side, so the larger spread of the two readings counts. A
    group whose seeds are equal on every item counts as one run that varies as the others do.
    """
    seeds = len(groups[0].gains)
    if seeds < 2 or any(group.one_run for group in groups):
        return float("nan")
    copied = np.array([group.copied for group in groups])
    once, often = (float((weights[chosen] ** 2).sum()) for chosen in (copied, ~copied))
    if not often and len(groups) > 1:
        same = all(
            not _weigh(weights, chosen).any() for chosen in zip(*(group.values for group in groups), strict=True)
        )
        return 0.0 if same else float("nan")
    readings = [_weigh(weights, reading) for reading in zip(*(group.readings for group in groups), strict=True)]
    variance = max(float(reading.var(ddof=1)) for reading in readings)
    rounding = _SAME * max(float(np.abs(group.means).max()) for group in groups)
    if all(subset.shape[2] == 1 for subset in groups[0].values) and variance <= rounding**2:
        alike = all((np.abs(reading) <= rounding).all() for reading in readings)
        return variance / seeds if alike else float("nan")
    single = once / often if often and not groups[0].planned else 0.0
    first, *others = (group.values for group in groups)
    agree = others and all(np.array_equal(a, b) for chosen in others for a, b in zip(first, chosen, strict=True))
    squares = float((weights**2).sum() / 12)
    hidden = 0.0 if agree else float(_hidden_by_steps(groups, variance / squares) * squares)
    return (variance + hidden) * (1 / seeds + single)


def _hidden_by_steps(groups: Sequence[Group], variance: float) -> float:
    """Return the square of the statistic's smallest step.

    A 12th of it is the variance that rounding hides (Sheppard). Without it, two seeds that happen to have the same
    number of right items would show that seeds do not matter. 0 if the step is unknown, because a run is one value, or
    if it is negligible beside the spread.
    """
    first = groups[0].values
    if all(array.shape[2] == 1 for array in first) or groups[0].least_step ** 2 / len(first) <= _NEGLIGIBLE * variance:
        return 0.0
    ordered = (
        np.sort(np.concatenate(array, axis=None)) for array in zip(*(group.values for group in groups), strict=True)
    )
    steps = [_step(array) / subset.shape[2] for array, subset in zip(ordered, first, strict=True)]
    return float(sum(step**2 for step in steps if np.isfinite(step)) / len(first) ** 2)


def _step(ordered: Array) -> float:
    """Return the smallest step between sorted values, or infinity. Differences below 1e-9 of the range are no steps."""
    between = ordered[1:] - ordered[:-1]
    return float(between[between > 1e-9 * (ordered[-1] - ordered[0])].min(initial=inf))

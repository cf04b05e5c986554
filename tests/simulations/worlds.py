"""Lineages of known truth made from a study's own residuals: a wild null, and effects planted on top.

A run's items are decomposed into a part common to all runs, a part of the variant, a part of the seed and the run's own
part. In the wild null (Wu 1986; Liu 1988) each part of a variant keeps its size and gets a random sign: one for each
cluster of a variant's items, one for each run. The mean of a run's own part, of which a variant has as few as seeds, is
drawn from those of all runs, in units of the variants' spreads: signs alone agree in all of three seeds in a quarter of
the worlds. So no variant differs from another in expectation, while tails, clusters and the true spreads over seeds
stay. Subtracting a mean makes a part smaller, which is corrected (S / (S - 1) for the mean of S seeds). Values may
leave the range of the study's values.

    signs      the wild null
    planted    effects of the margin and of the smallest detectable effect, in turn
    across     the wild null with parents and children on opposite sides of a target, each one standard error from it
    seeds      only a change that acts in some of the seeds, in a larger share than `equivalent` leaves open
    rare       only a change of few items, to the end of the range, the same ones in every seed
    unpaired   only a large effect, of children that have other items or seeds than their parents, but the same number,
               or the same items in another order
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
import pandas as pd

from ablation.config.study_schema import Analysis
from ablation.judge.comparisons import study_pairs
from ablation.judge.measurements import Column, Measurements
from ablation.judge.moderation import LEAST, fit_prior, squeeze
from ablation.judge.resampling import Clusters, Numbers
from ablation.judge.significance import Array, max_undetected_share
from ablation.judge.statistics import gain

NOISY = ("signs", "planted", "across")
FORMS = (*NOISY, "seeds", "rare", "unpaired")
MORE = 0.01  # of the seeds: what a change of the form `seeds` acts in beyond the share that `equivalent` leaves open
PLAIN = 1.25  # times the margin is the effect of such a change, so that one seed of those run that shows it is enough
LARGE = 5.0  # margins: an effect too large to be overlooked


@dataclass(frozen=True)
class Parts:
    """The decomposition of a study's complete runs; lists hold one array per subset."""

    runs: Mapping[str, list[int]]  # variant: its seeds
    index: list[pd.Index]
    clusters: Clusters
    base: list[Array]  # [items]: the mean of the variants
    items: list[Array]  # [variants, items]: the variant's part of each item in every seed, 0 on average
    shared: list[Array]  # [seeds, items]: the seed's part in every variant
    own: list[Array]  # [variants, seeds, items]: the rest of a run, less its mean; 0 where there is no run
    shifts: list[Array]  # [runs]: the mean of that rest, in units of `spread`
    spread: Array  # [variants]: of the shifts over seeds
    made: Array  # [variants, seeds]: 1 where there is a run
    low: list[float]  # per subset: the smallest value, and the largest
    high: list[float]

    @cached_property
    def mispaired(self) -> dict[str, dict[str, list[pd.Index]]]:
        """For each variant the same number of items, the first of them another; or all, in another order, if enough."""
        other = {name: [of.delete(0).insert(0, f"{name} {of[0]}") for of in self.index] for name in self.runs}
        turned = {name: [of[n:].append(of[:n]) for of in self.index] for n, name in enumerate(self.runs, 1)}
        return {"items": other} | ({"order": turned} if max(map(len, self.index)) > len(turned) else {})


@dataclass(frozen=True)
class World:
    """A study of known truth."""

    study: Measurements
    gains: Mapping[str, float]  # each variant's expected gain


def parts_of(study: Measurements, *, items_only: bool) -> Parts | None:
    """Decompose the runs that ended well and have the first one's items; None if no variant has two of them.

    `items_only`: verdicts are about these items only: a variant's part of them would be an effect, and is left out.
    """
    seeds, subsets = study.in_order_added({seed for _, seed in study.states}), study.analysis.subsets
    sound = [
        (variant.name, seed)
        for variant in study.variants
        for seed in study.in_order_added(study.seeds(variant.name))
        if (variant.name, seed) in study.item_lists
    ]
    alike = [run for run in sound if study.item_lists[run] == study.item_lists[sound[0]]]
    runs: dict[str, list[int]] = {}
    for variant, seed in alike:
        runs.setdefault(variant, []).append(seed)
    if max(map(len, runs.values()), default=0) < 2:
        return None
    index, clusters = [study.values[alike[0]][subset].index for subset in subsets], study.item_clusters[alike[0]]
    values = [np.full((len(runs), len(seeds), len(of)), np.nan) for of in index]
    for place, (variant, own_seeds) in enumerate(runs.items()):
        for seed in own_seeds:
            for array, subset in zip(values, subsets, strict=True):
                array[place, seeds.index(seed)] = study.values[variant, seed][subset].values
    apart = (_apart(array, of, items_only=items_only) for array, of in zip(values, clusters.of_items, strict=True))
    bases, items, shared, own = zip(*apart, strict=True)
    made = ~np.isnan(values[0][:, :, 0])
    spread = _true_spreads(np.mean([of.mean(axis=2) for of in own], axis=0), made)
    return Parts(
        runs=runs,
        index=index,
        clusters=clusters,
        base=list(bases),
        items=list(items),
        shared=list(shared),
        own=[of - of.mean(axis=2, keepdims=True) for of in own],
        shifts=[(of.mean(axis=2) / np.where(spread > 0, spread, 1.0)[:, None])[made] for of in own],
        spread=spread,
        made=made.astype(float),
        low=[float(np.nanmin(array)) for array in values],
        high=[float(np.nanmax(array)) for array in values],
    )


def _apart(values: Array, clusters: Numbers, *, items_only: bool) -> tuple[Array, Array, Array, Array]:
    """Base, a variant's, a seed's and a run's own part of values [variants, seeds, items], NaN where no run is."""
    made = ~np.isnan(values[:, :, 0])
    seeds, variants = made.sum(axis=1), made.sum(axis=0)
    means = np.nanmean(values, axis=1)
    base = means.mean(axis=0)
    left = np.where(made[:, :, None], values - means[:, None], 0.0) * _widened(seeds)[:, None, None]
    shared = left.sum(axis=0) / np.maximum(variants, 1)[:, None] * (variants > 1)[:, None]
    own = (left - shared) * _widened(variants)[:, None] * made[:, :, None]
    if items_only:
        return base, np.zeros_like(means), shared, own
    count = len(np.unique(clusters))
    items = (means - base) * _widened(np.array([len(values)])) * _widened(np.array([count]))
    items -= items.mean(axis=1, keepdims=True)
    # The mean over seeds holds a part of the noise of single runs, which the runs' own part holds already.
    new = left - left.mean(axis=2, keepdims=True)
    noise = (_sums(new, clusters) ** 2).sum(axis=(1, 2)) / np.maximum(seeds, 1) ** 2
    total = (_sums(items, clusters) ** 2).sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        true = np.where(total > 0, np.clip(1 - noise / total, 0, 1), 0.0)
    return base, items * np.sqrt(true)[:, None], shared, own


def _true_spreads(shifts: Array, made: Array) -> Array:
    """Each variant's spread over seeds [variants], corrected for chance differences between few seeds.

    The variances are Smyth's posterior ones, so that variants that are alike get the same spread; that of a variant of
    one run is the median.
    """
    df = made.sum(axis=1) - 1.0
    variances, known = (shifts**2).sum(axis=1) / np.maximum(made.sum(axis=1), 1), df > 0
    middle = float(np.median(variances[known]))
    if middle <= 0:
        return np.sqrt(variances)
    raised = np.maximum(variances, LEAST * middle)
    if known.sum() > 1:
        raised[known] = squeeze(raised[known], df[known], *fit_prior(raised[known], df[known]))
    return np.sqrt(np.where(known, raised, middle))


def _widened(count: Any) -> Any:
    """The factor that corrects a deviation from a mean of `count` values; 1 for a single value, which has none."""
    return np.sqrt(count / np.maximum(count - 1, 1))


def _sums(values: Array, clusters: Numbers) -> Array:
    """Sums [..., clusters] of values [..., items]."""
    order = np.argsort(clusters, kind="stable")
    starts = np.flatnonzero(np.diff(clusters[order], prepend=-1))
    return np.add.reduceat(values[..., order], starts, axis=-1)


def forms_of(study: Measurements, *, items_only: bool) -> list[str]:
    """The forms that a study can have; `rare` and `across` are about other items, so they need enough items."""
    without = {"rare", "across"} if items_only else set()
    return [form for form in FORMS if form not in without and (form != "across" or isinstance(study.direction, dict))]


def worlds(study: Measurements, parts: Parts, form: str, *, rounds: int, mde: float, seed: int) -> Iterator[World]:
    """Make `rounds` worlds of one form; `mde`: the effect that `planted` uses beside the margin."""
    maker = _Maker(study, parts, np.random.default_rng([seed, FORMS.index(form)]))
    make = {"seeds": maker.in_some_seeds, "rare": maker.of_few_items, "unpaired": maker.beyond_doubt}
    numbered = {(variant, run): parts.clusters for variant in parts.runs for run in parts.runs[variant]}
    study = replace(study, numbered=numbered)
    kinds = ["seeds", *parts.mispaired]
    for number in range(rounds):
        values, gains = make[form]() if form in make else maker.noisy(form, number, mde)
        mispaired = kinds[number % len(kinds)] if form == "unpaired" else ""
        yield World(_as_study(study, parts, values, mispaired), dict(zip(parts.runs, gains.tolist(), strict=True)))


def _as_study(study: Measurements, parts: Parts, values: Sequence[Array], mispaired: str) -> Measurements:
    """The study with these values [variants, seeds, items] per subset; every run ended well.

    `mispaired`: whether children have other items than their parents, another order of them, or other seeds.
    """
    seeds = study.in_order_added({seed for _, seed in study.states})
    other = {child for child, _ in _compared(study, list(parts.runs))} if mispaired else set()
    runs: dict[tuple[str, int], dict[str, Column]] = {}
    for place, (variant, own) in enumerate(parts.runs.items()):
        index, later = parts.index, 0
        if variant in other and mispaired == "seeds":
            later = (place + 1) * (max(seeds) + 1)
        elif variant in other:
            index = parts.mispaired[mispaired][variant]
        for seed in own:
            runs[variant, seed + later] = {
                subset: Column(of, array[place, seeds.index(seed)])
                for subset, array, of in zip(study.analysis.subsets, values, index, strict=True)
            }
    return replace(
        study,
        states=dict.fromkeys(runs, ("ok", "")),
        aborted={},
        values=runs,
        duplicates=frozenset(),
        stages=study.stages.iloc[:0],
        warned={},
        weights={},
        environments={},
    )


@dataclass(frozen=True)
class _Maker:
    """Draws worlds: values [variants, seeds, items] per subset, and each variant's expected gain."""

    study: Measurements
    parts: Parts
    generator: np.random.Generator

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """The places of child and parent, parents first."""
        names = list(self.parts.runs)
        return [(names.index(child), names.index(parent)) for child, parent in _compared(self.study, names)]

    def noisy(self, form: str, number: int, mde: float) -> tuple[list[Array], Array]:
        """The wild null, with effects where the form has any."""
        parts = self.parts
        centres = np.array([np.full(len(parts.runs), base.mean()) for base in parts.base])
        if form == "across":
            self._beside_target(centres)
        elif form == "planted":
            self._plant(centres, number, mde)
        variants, seeds = parts.made.shape
        of_items, count = parts.clusters.of_items, parts.clusters.count
        easy, by_cluster = self._signs(count), self._signs(variants, count)
        by_seed, by_run = self._signs(seeds), self._signs(variants, seeds)
        chosen = self.generator.integers(0, len(parts.shifts[0]), (variants, seeds))
        values = []
        for centre, base, items, shared, own, shifts, of in zip(
            centres, parts.base, parts.items, parts.shared, parts.own, parts.shifts, of_items, strict=True
        ):
            alone = own + (shifts[chosen] * parts.spread[:, None])[..., None]
            of_variant = centre[:, None] + (base - base.mean()) * easy[of] + items * by_cluster[:, of]
            values.append(of_variant[:, None] + shared * by_seed[:, None] + alone * by_run[:, :, None])
        return values, self._expected(centres)

    def _signs(self, *shape: int) -> Array:
        return self.generator.choice(np.array([-1.0, 1.0]), shape)

    def _plant(self, centres: Array, number: int, mde: float) -> None:
        """Move each child from its parent by the margin or by `mde`, up or down; at a target always away from it."""
        folds = isinstance(self.study.direction, dict)
        sides = _sides(self.study, centres.mean(axis=1))
        margin, pairs = self.study.analysis.margin, self.pairs
        wanted = np.array([margin if (place + number) % 2 else mde for place in range(len(pairs))])
        wanted *= -1.0 if folds else self._signs(len(pairs))
        moves = wanted.copy()
        for _ in range(10 if folds else 1):  # near a target the noise of seeds makes the effect smaller than the move
            for (child, parent), move in zip(pairs, moves, strict=True):
                centres[:, child] = centres[:, parent] + move * sides
            gains = self._expected(centres)
            moves += wanted - [gains[child] - gains[parent] for child, parent in pairs]

    def _beside_target(self, centres: Array) -> None:
        """Put parents and children on opposite sides of the target, one standard error of the items away."""
        side = np.ones(centres.shape[1])
        for child, parent in self.pairs:
            side[child] = -side[parent]
        for centre, base, clusters in zip(centres, self.parts.base, self.parts.clusters.of_items, strict=True):
            error = np.sqrt((_sums(base - base.mean(), clusters) ** 2).sum()) / len(base)
            centre[:] = self.study.direction["target"] + side * error  # type: ignore[index]

    def _expected(self, centres: Array) -> Array:
        """Each variant's mean gain over what its runs may draw, had they all items."""
        direction, made = self.study.direction, self.parts.made
        if not isinstance(direction, dict):
            return gain(centres, direction).mean(axis=0)
        total = np.zeros(made.shape)
        for centre, shared, drawn in zip(centres, self.parts.shared, self.parts.shifts, strict=True):
            alone = self.parts.spread[:, None, None] * drawn
            for a, b in product((1.0, -1.0), repeat=2):
                shifts = a * shared.mean(axis=1)[:, None] + b * alone
                total += gain(centre[:, None, None] + shifts, direction).mean(axis=2) / 4 / len(centres)
        return (total * made).sum(axis=1) / made.sum(axis=1)

    def _plain(self) -> tuple[list[Array], Array]:
        """The values of one run of the study, in every run; and each subset's move that is a gain of one."""
        made = np.argwhere(self.parts.made)
        place, at = made[self.generator.integers(len(made))]
        seeds = self.study.in_order_added({seed for _, seed in self.study.states})
        run = self.study.values[list(self.parts.runs)[place], seeds[at]]
        found = [run[subset].values for subset in self.study.analysis.subsets]
        sides = _sides(self.study, [of.mean() for of in found])
        return [np.tile(of, (*self.parts.made.shape, 1)) for of in found], sides

    def in_some_seeds(self) -> tuple[list[Array], Array]:
        """Each child loses something in some of the seeds, drawn for each, and nothing in the others."""
        analysis, (values, sides) = self.study.analysis, self._plain()
        gains = np.zeros(len(self.parts.made))
        for child, parent in self.pairs:
            acting = acting_share(analysis, int((self.parts.made[child] * self.parts.made[parent]).sum()))
            acts = self.generator.random((self.parts.made.shape[1], 1)) < acting
            for subset, side in zip(values, sides, strict=True):
                subset[child] = subset[parent] - side * PLAIN * analysis.margin / acting * acts
            gains[child] = gains[parent] - PLAIN * analysis.margin
        return values, gains

    def of_few_items(self) -> tuple[list[Array], Array]:
        """In every second generation items are at the end of the range, each with the chance that makes it the margin.

        NaN where the mean is too near to that end.
        """
        margin, (values, sides) = self.study.analysis.margin, self._plain()
        gains = np.zeros(len(self.parts.made))
        for child, parent in self.pairs:
            if gains[parent] != 0:
                continue
            gains[child] = -margin
            for subset, side, low, high in zip(values, sides, self.parts.low, self.parts.high, strict=True):
                end = low if side > 0 else high
                chance = margin / max(abs(end - subset[child, 0].mean()), 1e-12)
                subset[child][:, self.generator.random(subset.shape[2]) < chance] = end
                gains[child] = gains[child] if chance < 0.5 else np.nan
        return values, gains

    def beyond_doubt(self) -> tuple[list[Array], Array]:
        """Each child is far worse than its parent, but the runs cannot be paired, so any verdict is wrong."""
        values, sides = self._plain()
        margin, seeds = self.study.analysis.margin, self.parts.made.shape[1]
        for child, parent in self.pairs:
            own = self.generator.normal(0, margin / 10, (seeds, 1))  # the same in every seed would be undecided
            for subset, side in zip(values, sides, strict=True):
                subset[child] = subset[parent] - side * LARGE * margin + own
        return values, np.zeros(len(self.parts.made))


def _sides(study: Measurements, means: Sequence[float]) -> Array:
    """The move of each subset's mean that is a gain of one: 1 or -1."""
    direction = study.direction
    if isinstance(direction, dict):
        return np.where(np.asarray(means) >= direction["target"], -1.0, 1.0)
    return np.full(len(means), 1.0 if direction == "max" else -1.0)


def _compared(study: Measurements, names: Sequence[str]) -> list[tuple[str, str]]:
    """The pairs (child, parent) that give every child its place after its parent's."""
    placed: set[str] = set()
    found = []
    for child, parent in study_pairs(study):
        if child in names and parent in names and child not in placed:
            placed |= {child, parent}
            found.append((child, parent))
    return found


def acting_share(analysis: Analysis, seeds: int) -> float:
    """The share of seeds in which a change acts that `equivalent` from so many seeds denies.

    The verdict leaves open a share q of seeds (`max_undetected_share`), largest at the first analysis that may give it;
    with fewer seeds than `rare` requires it must not be given at all. This share is a little more than q, or than
    `rare`. So the probability that none of the seeds that were run shows the change is below alpha: the promise.
    """
    counts = (
        [interim for interim in analysis.interim_analyses if interim <= seeds] if analysis.interim_analyses else [seeds]
    )
    left = [max_undetected_share(count, analysis.alpha) for count in counts if count > 1]
    return min(max((q for q in left if q <= analysis.rare), default=analysis.rare) + MORE, 1.0)

"""Attributes the joint effect of several changes between A and B to the single changes, from runs between A and B.

Every number is a contrast of the runs' statistics, with an interval over seeds and items as for a comparison
(docs/how-to/attribute-effects.md). Factors are numbers here; `Explanation.in_words` names them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from math import isnan, nan

import numpy as np

from ablation.contract.display import joined
from ablation.contract.errors import TrackerError
from ablation.contract.numbers import estimate, percent, shares
from ablation.judge.factorial import FULL, Corner, joint_effects, shapley_weights
from ablation.judge.measure import moderated
from ablation.judge.measurements import Measurements, comparable
from ablation.judge.power import seeds_needed
from ablation.judge.significance import Array, holm
from ablation.judge.statistics import Estimate, contrast_groups

_WIDEST = 8.0  # a share further than so many times the effect from the estimate has no bound


@dataclass(frozen=True)
class Part:
    """The effect of some factors, in units of the statistic; a positive effect is an improvement."""

    sets: tuple[Corner, ...]  # one factor; a group; an interaction; interactions that the runs cannot separate
    effect: float
    low: float  # for this part alone, at 1 - alpha
    high: float
    p: float  # over all parts of its kind
    shown: bool
    share: float = nan  # of the whole effect, if that is significant
    share_low: float = nan
    share_high: float = nan
    seeds_needed: int | None = None  # that detect the measured effect with 80% power; None: shown, or 1,000 do not

    def name(self, factors: Sequence[str], join: str = " x ") -> str:
        """Return the part's name, made of its factors' names: `lr`, `lr x kl`, or `lr x kl or beta x gamma`."""
        return " or ".join(join.join(factors[index] for index in sorted(corner)) for corner in self.sets)


@dataclass(frozen=True)
class Explanation:
    """The result of `explain`: the whole effect of A -> B, the parts of factors or groups, and joint effects."""

    total: Part
    parts: tuple[Part, ...]
    joint: tuple[Part, ...]  # main effects and interactions
    rest: Part | None  # the effect of all factors that are not shown, together
    beyond: Part | None  # of a fraction: the whole effect minus the sum of the parts
    seeds: int
    items: int

    @property
    def carriers(self) -> list[Part]:
        """Parts with a significant effect, the largest first."""
        return sorted((part for part in self.parts if part.shown), key=lambda part: -abs(part.effect))

    def in_words(self, factors: Sequence[str]) -> str:
        """Return the explanation as a sentence that names the factors."""
        carriers = self.carriers
        opposed = len({part.effect > 0 for part in carriers}) > 1
        named = [_named(part, factors, shares_known=not opposed) for part in carriers]
        if not self.total.shown:
            answer = "neither the combined change nor any single change has a significant effect"
            if carriers:
                answer = (
                    f"the combined change has no significant effect, but {joined(named)} "
                    f"{'has' if len(carriers) == 1 else 'each have'} a significant effect"
                )
        elif not carriers:
            spread = "the effect is spread over several changes, or there are too few seeds"
            answer = f"no single change has a significant effect; {spread}"
        elif opposed:
            answer = f"{joined(named)} work against each other"
        elif 2 * len(carriers) > len(factors) and len(carriers) > 2 and max(abs(part.share) for part in carriers) < 0.5:
            answer = f"the effect is spread over {joined(named)}"
        else:
            answer = f"{joined(named)} {'carries' if len(carriers) == 1 else 'carry'} the effect"
            if self.rest is not None and self.rest.shown:
                answer += f"; the share of the other changes is {_shares(self.rest)}"
        for part in self.joint:
            if part.shown and len(part.sets[0]) > 1:
                more = part.effect * (self.total.effect if self.total.shown else 1) > 0
                does = "do more together than separately" if more else "overlap and do less together than separately"
                answer += f"; {part.name(factors, ' and ')} {does} ({_effect(part)})"
        if not carriers:
            wanted = max(self.parts, key=lambda part: abs(part.effect)) if self.total.shown else self.total
            name = group_name(wanted, factors) if self.total.shown else "the whole effect"
            seeds = (
                "even 1,000 seeds would not" if wanted.seeds_needed is None else f"{wanted.seeds_needed} seeds would"
            )
            answer += f"; {seeds} detect {name} with 80% power if the true effect is {_effect(wanted)}, as measured"
        if self.beyond is not None and self.beyond.shown:
            answer += "; three or more factors interact, so do not rely on the shares"
        return answer


def group_name(part: Part, factors: Sequence[str]) -> str:
    """Return the name of a factor, or of the first and the last factor of a group."""
    (group,) = part.sets
    return " to ".join(dict.fromkeys([factors[min(group)], factors[max(group)]]))


def _effect(part: Part) -> str:
    return estimate(part.effect, part.low, part.high)[0]


def _named(part: Part, factors: Sequence[str], *, shares_known: bool) -> str:
    return f"{group_name(part, factors)} ({_shares(part) if shares_known and not isnan(part.share) else _effect(part)})"


def _shares(part: Part) -> str:
    return f"{percent(part.share)} {shares(part.share_low, part.share_high)}"


class _Contrasts:
    """Pairs the runs of some variants once, and computes contrasts of them."""

    def __init__(self, study: Measurements, runs: Sequence[str]) -> None:
        self.study, self.runs, self.alpha = study, runs, study.analysis.alpha
        self.names = list(dict.fromkeys(runs))  # a variant may stand for several runs
        self.groups, seeds, problem = comparable(study, self.names)
        self.seeds = min(map(len, seeds), default=0)
        if problem or (self.seeds < 2 and study.design.claim == "recipe"):
            raise TrackerError(
                f"{study.name}: {problem.text or 'one seed says nothing about seed-to-seed noise; run two seeds'}"
            )
        self.items = sum(subset.shape[2] for subset in self.groups[0].values)

    def part(self, sets: Sequence[Corner], weights: Array, level: float = 0.0) -> Part:
        """Return the weighted sum of the runs and, with `level`, the number of seeds needed to reach this level."""
        estimate = self._estimate(weights)
        p, interval = estimate.p, estimate.interval(self.alpha)
        needed = seeds_needed(estimate.effect, estimate.noise, self.seeds, level) if 0 < level < p else None
        return Part(tuple(sets), estimate.effect, *interval, p, p <= self.alpha, seeds_needed=needed)

    def _estimate(self, weights: Array) -> Estimate:
        variant_weights = np.array([weights[[run == name for run in self.runs]].sum() for name in self.names])
        estimate = contrast_groups(self.groups, variant_weights.tolist(), 1 - self.alpha, self.study.design)
        used = [name for name, weight in zip(self.names, variant_weights, strict=True) if weight]
        squares = float(np.square(variant_weights).sum())
        return moderated(estimate, used if estimate.noise.groups else self.names, self.study.prior, squares)

    def with_share(self, part: Part, weights: Array, whole: Part, whole_weights: Array) -> Part:
        """Return the part with its share of the whole effect, and the interval of that share (Fieller 1954)."""
        if not whole.shown:
            return part
        share = part.effect / whole.effect
        low, high = (self._bound(share, sign, weights, whole_weights) for sign in (-1.0, 1.0))
        if part.shown:  # the share is not 0
            low, high = (max(low, 0.0), high) if share > 0 else (low, min(high, 0.0))
        return replace(part, share=share, share_low=low, share_high=high)

    def _bound(self, share: float, sign: float, weights: Array, total_weights: Array) -> float:
        def holds(away: float) -> bool:
            estimate = self._estimate(weights - (share + sign * away) * total_weights)
            # An interval allows for unseen items: a factor that changes none of these items may change others.
            return replace(estimate, counts=False, unseen_share=1.0).p > self.alpha

        inside, outside = 0.0, 1 / _WIDEST
        while holds(outside):
            inside, outside = outside, 2 * outside
            if outside > _WIDEST:
                return nan
        for _ in range(7):
            middle = (inside + outside) / 2
            inside, outside = (middle, outside) if holds(middle) else (inside, middle)
        return share + sign * outside


def explain(study: Measurements, runs: Mapping[Corner, str], n: int) -> Explanation:
    """Explain the effect of n factors from the runs of a factorial design, {factors as in B: variant}.

    The chance that any factor without effect is named is at most alpha, and so is the chance of any false interaction
    (Holm 1979).

    Raises:
        TrackerError: runs did not succeed or cannot be paired, or there is only one seed.
    """
    contrasts, order = _Contrasts(study, list(runs.values())), list(runs)
    factor_weights = shapley_weights(n, order)
    total, direct = factor_weights.sum(axis=0), np.zeros(len(order))
    direct[[order.index(frozenset()), order.index(frozenset(range(n)))]] = -1, 1
    everything = frozenset(range(n))
    total_part = contrasts.part([everything], total, study.analysis.alpha)
    each = study.analysis.alpha / n
    factor_parts = [
        contrasts.part([frozenset({factor})], weights, each) for factor, weights in enumerate(factor_weights)
    ]
    factor_parts = _corrected(factor_parts, study.analysis.alpha)
    factor_parts = [
        contrasts.with_share(part, weights, total_part, total)
        for part, weights in zip(factor_parts, factor_weights, strict=True)
    ]
    hidden = [factor for factor, part in enumerate(factor_parts) if not part.shown]
    rest = None
    if 0 < len(hidden) < n:
        weights = factor_weights[hidden].sum(axis=0)
        rest = contrasts.with_share(contrasts.part([frozenset(hidden)], weights), weights, total_part, total)
    joint = [contrasts.part(sets, weights) for sets, weights in joint_effects(n, order).items()]
    alone, together = ([part for part in joint if (len(part.sets[0]) > 1) is several] for several in (False, True))
    corrected = [part for kind in (alone, together) for part in _corrected(kind, study.analysis.alpha)]
    beyond = contrasts.part([everything], direct - total) if n > FULL and (direct != total).any() else None
    return Explanation(
        total_part, tuple(factor_parts), tuple(corrected), rest, beyond, contrasts.seeds, contrasts.items
    )


def _corrected(uncorrected: Sequence[Part], alpha: float) -> list[Part]:
    adjusted = holm([part.p for part in uncorrected]).tolist() if uncorrected else []
    return [replace(part, p=p, shown=p <= alpha) for part, p in zip(uncorrected, adjusted, strict=True)]


def explain_groups(study: Measurements, runs: Mapping[int, str], n: int) -> Explanation:
    """Explain the effect of n factors from runs, each of which has the first k factors as in B.

    `runs` is {k: variant}; its keys include 0 and n. A group of m factors is tested at m / n of alpha, so the chance
    of naming a factor that adds nothing to those before it is at most alpha, however the groups were chosen.

    Raises:
        TrackerError: as `explain`.
    """
    cuts = sorted(runs)
    contrasts = _Contrasts(study, [runs[cut] for cut in cuts])
    steps = np.eye(len(cuts))
    total = steps[-1] - steps[0]
    total_part, group_parts = contrasts.part([frozenset(range(n))], total, study.analysis.alpha), []
    for index, (low, high) in enumerate(pairwise(cuts)):
        weights = steps[index + 1] - steps[index]
        part = contrasts.part([frozenset(range(low, high))], weights, study.analysis.alpha * (high - low) / n)
        p = min(part.p * n / (high - low), 1.0)
        part = replace(part, p=p, shown=p <= study.analysis.alpha)
        group_parts.append(contrasts.with_share(part, weights, total_part, total))
    return Explanation(total_part, tuple(group_parts), (), None, None, contrasts.seeds, contrasts.items)


def next_cuts(explanation: Explanation) -> list[int]:
    """Return the numbers k of the next runs, which halve groups with an effect; empty if no group can be halved."""
    groups = [part.sets[0] for part in explanation.parts if part.shown]
    return [(min(group) + max(group) + 1) // 2 for group in groups if len(group) > 1]

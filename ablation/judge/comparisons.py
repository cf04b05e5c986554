"""Explains the verdicts on a study's comparisons: reasons, intervals, and what would settle an undecided one.

A comparison is first measured alone (`Measured`), then gets its verdict from the correction of its family (`Judged`),
and is explained here. Missing numbers are NaN or None.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, pairwise
from typing import Any

import numpy as np

from ablation.config import dotted
from ablation.config.study import differences
from ablation.config.study_schema import Analysis
from ablation.config.variant_tree import ancestors, compared
from ablation.contract.numbers import confidence, fixed, p_equals, percent, stated
from ablation.contract.rows import LOGGED
from ablation.judge import remarks
from ablation.judge.correct import CORRECTIONS, Correction
from ablation.judge.factorial import offer
from ablation.judge.judged import DECIDED, Judged
from ablation.judge.measure import Interim, Measured, measure
from ablation.judge.measurements import Measurements, Warned, comparable, warnings, without_partner
from ablation.judge.power import MOST_SEEDS, minimal_detectable_effect, seeds_needed
from ablation.judge.significance import (
    interim_weights,
    max_undetected_share,
    seeds_for,
    sign_flip,
    units_for,
)
from ablation.judge.statistics import Estimate, contrast_groups
from ablation.store.database import Run

_NAN = float("nan")


@dataclass(frozen=True)
class Comparison(Judged):
    """A comparison with its verdict, the reasons for it, and its evidence."""

    @cached_property
    def _alone(self) -> tuple[float, float]:
        return self.interval_at(self.measurements.analysis.alpha)

    @property
    def low(self) -> float:
        """Lower end of the interval at 1 - alpha for this comparison alone."""
        return self._alone[0]

    @property
    def high(self) -> float:
        """Upper end of the interval at 1 - alpha for this comparison alone."""
        return self._alone[1]

    @cached_property
    def _joint(self) -> tuple[float, float]:
        if np.isnan(self.p):
            return _NAN, _NAN
        # A false coverage rate is one of the verdicts found; where none is, the level is that of one further verdict.
        further = self.correction.name == "bh" and not self.significant
        return self.interval_at(self.correction.level if further else self.correction.joint)

    @property
    def joint_low(self) -> float:
        """Lower end of the interval corrected for all tested comparisons of the study.

        The interval agrees with the verdict.
        """
        return self._joint[0]

    @property
    def joint_high(self) -> float:
        """Upper end of the interval corrected for all tested comparisons of the study."""
        return self._joint[1]

    @property
    def p_sign_flip(self) -> float:
        """Two-sided p of the sign-flip test over seeds, with the items taken as fixed."""
        several = self.estimate is not None and self.seeds > 1 and self.estimate.per_seed
        return sign_flip(self.estimate.per_seed) if self.estimate and several else _NAN

    @property
    def cost_hours(self) -> float:
        """Device-hours of the child's stages that the parent does not share."""
        shared = self.measurements.stage_hours.get(self.parent, {})
        child_hours = [
            hours for key, hours in self.measurements.stage_hours.get(self.child, {}).items() if key not in shared
        ]
        return float(np.array(child_hours).sum()) if child_hours else 0.0

    @property
    def single(self) -> bool:
        """Whether the claim is about the recipe, but one run per side does not show how much seeds matter."""
        return self.seeds == 1 and not self.noise.seeds_known

    @cached_property
    def checkpoints(self) -> Estimate | None:
        """Estimate of the comparison for these runs only: items are the only source of noise."""
        if self.estimate is None:
            return None
        groups = comparable(self.measurements, self.pair).groups
        return contrast_groups(
            groups,
            (1, -1),
            1 - self.measurements.analysis.alpha,
            replace(self.measurements.design, claim="checkpoints"),
        )

    @property
    def prior_df(self) -> float:
        """Degrees of freedom of the seed variance that come from the study's other variants; 0 if none do."""
        return max(self.latest.estimate.noise.seed_df - self.latest.estimate.own_df, 0.0) if self.latest else 0.0

    @property
    def variance(self) -> str:
        """`moderated` if the study's other variants contribute to the estimated variance of seeds, else `own`."""
        return "moderated" if self.prior_df > 0 else "own"

    @property
    def in_seeds(self) -> float:
        """Smallest share of seeds to which a decided verdict applies; other seeds may behave differently."""
        verdict, interim = self.decision
        if self.measurements.design.claim == "checkpoints":
            return _NAN
        if interim is None or verdict not in DECIDED:
            return _NAN
        return 1 - max_undetected_share(interim.seeds, self.measurements.analysis.alpha)

    @cached_property
    def why(self) -> str:
        """Reason for the verdict."""
        numbers, analysis = self.estimate, self.measurements.analysis
        if self.problem or numbers is None:
            return self.problem.text
        if self.single:
            return f"with one seed, seed-to-seed noise is unknown; {self._of_checkpoints}"
        verdict, interim = self.decision
        text = self._undecided(numbers) if interim is None else self._decided(numbers, interim)
        if self.measurements.design.claim == "checkpoints":
            return f"{text}; {self._of_checkpoints}"
        if interim is not None:
            text += self._in_how_many(verdict, interim)
            text += "" if verdict in DECIDED else f", but {too_few(interim.seeds, analysis)}"
        return f"{text}; {_these_items(numbers, analysis)}" if numbers.items_only else text

    def _in_how_many(self, verdict: str, interim: Interim) -> str:
        """Return, as a clause, the number of seeds in which the verdict holds; empty if it holds in all seeds."""
        apart = np.sign(interim.estimate.per_seed) == (1 if verdict == "better" else -1)
        if verdict not in ("better", "worse") or not len(apart) or apart.all():
            return ""
        return f"; {verdict} in {apart.sum()} of {len(apart)} seeds"

    @property
    def _of_checkpoints(self) -> str:
        """Statement about these runs only, with what the runs cannot show."""
        numbers, alpha = self.checkpoints, self.measurements.analysis.alpha
        assert numbers is not None
        if numbers.items_only:
            return _these_items(numbers, self.measurements.analysis)
        p, one = numbers.p, max(map(len, self.runs)) == 1
        sign = "better" if numbers.effect > 0 else "worse"
        differs, recipe = (
            (f"{sign} than", f"is {sign}") if p <= alpha else ("not significantly different from", "differs")
        )
        text = f"{self.child}'s checkpoint{' is' if one else 's are'} {differs} {self.parent}'s"
        text += f" ({p_equals(p)})" if self.measurements.design.claim == "recipe" else ""
        if one:
            return f"{text}; one run per side cannot show whether the recipe {recipe}"
        return f"{text}; to test whether the recipe {recipe}, use `claim: recipe` (--claim recipe)"

    @property
    def _shown(self) -> str:
        return f"{p_equals(self.p_adjusted)}{CORRECTIONS[self.correction.name]}"

    def _decided(self, numbers: Estimate, interim: Interim) -> str:
        analysis = self.measurements.analysis
        at = f" at the interim analysis of {interim.seeds} seeds" if analysis.interim_analyses else ""
        if self.equivalent_at is None:
            conservative = interim is self.latest and interim.p > self.correction.joint * interim.weight
            why = "the interval for all comparisons at once is more conservative than this p and still includes 0"
            return f"{self._shown}{at}{f'; {why}' if conservative else ''}"
        if _no_difference(numbers):
            if remarks.same_measured(self.measurements.weights, self.child, self.parent, self.paired):
                return "the models that were measured are equal in every seed, so no item can differ"
            return "no item differs in any seed, so the change had no effect on these runs"
        tail = ""
        if self.significant:
            sign = "better" if self.smallest_p.estimate.centre > 0 else "worse"
            tail = f"; {self.child} is {sign} by less than the margin ({self._shown})"
        return f"the {confidence(analysis.alpha, 2)} interval lies within ±{stated(analysis.margin)}{at}{tail}"

    def _undecided(self, numbers: Estimate) -> str:
        """Return the reason why nothing is decided, and what would settle it if the estimate were the true effect."""
        if _no_difference(numbers):
            return "no item differs in any seed, but so few items cannot rule out a rare difference"
        least = units_for(self.measurements.analysis.alpha)
        units = "cluster or item is" if numbers.clusters == 1 else "clusters or items are"
        few = f"{numbers.clusters} {units} too few; at least {least} are needed"
        if self.measurements.design.claim == "checkpoints":
            if numbers.clusters < least:
                return few
            return f"{self._shown}; detecting an effect this size would take more items"
        if self.latest and not self.latest.estimate.noise.seeds_known:
            variants = self.parent, self.child
            groups = zip(variants, comparable(self.measurements, variants).groups, strict=True)
            what = "the difference is the same"
            if same := [name for name, group in groups if group.one_run]:
                what = f"{' and '.join(same)} {'has' if len(same) == 1 else 'have'} the same value"
            return f"{what} in every seed, so seed-to-seed noise is unknown; check that the runs use their seeds"
        analysis = self.measurements.analysis
        interims = analysis.interim_analyses
        shown = (
            f"the first interim analysis, at {interims[0]} seeds, is still to come" if np.isnan(self.p) else self._shown
        )
        if numbers.counts and numbers.least_p > analysis.alpha:
            return f"{shown}; {few}, however many seeds are run"
        takes = "detecting an effect this size would take"
        why = f"{takes} more than {MOST_SEEDS:,} seeds"
        if self.seeds_needed and self.latest and self.seeds_needed <= self.latest.seeds:
            why = f"{takes} more seeds or items"  # the seeds are enough, and the exact test over items fails
        elif self.seeds_needed:
            why = f"{takes} {'an interim analysis at' if interims else 'about'} {self.seeds_needed} seeds"
        elif interims:
            why = f"{takes} more than the {interims[-1]} seeds of the last interim analysis"
        elif analysis.protocol != LOGGED:
            why = "more seeds alone cannot detect an effect this size; add evaluation items"
        return f"{shown}; {why}"

    @property
    def reason(self) -> str:
        """Reason for the verdict, with further remarks, in one sentence."""
        return "; ".join(filter(None, (self.why, *self.notes, *map(str, self.warnings))))

    @cached_property
    def notes(self) -> tuple[str, ...]:
        """Remarks that do not change the verdict, such as changes without effect or different environments."""
        notes = (
            *self._few_runs,
            *self._correlated,
            *remarks.comparison_remarks(self.measurements, self.child, self.parent, self.compared_runs),
            *remarks.near_copies(self.measurements, dict(zip(self.pair, self.runs, strict=True))),
        )
        if not self.confounded or self.measurements.imported or not self.estimate:
            return notes
        return (*notes, offer(self.study, self.parent, self.child, len(self.factors), self.cost_hours))

    @property
    def seed_correlation(self) -> float:
        """Correlation of baseline and candidate over the seeds that were paired; NaN for fewer than three."""
        if len(self.paired) < 3 or self.estimate is None:
            return _NAN
        gains = np.stack([group.gains for group in comparable(self.measurements, self.pair).groups])
        away = gains - gains.mean(axis=1, keepdims=True)
        sizes = np.linalg.norm(away, axis=1)
        return float(away[0] @ away[1] / sizes.prod()) if sizes.all() else _NAN

    @property
    def _correlated(self) -> Iterator[str]:
        """Remark on the correlation over seeds, if the analysis plan declares that runs are paired by seed."""
        if self.measurements.analysis.seeds == "paired" and not np.isnan(self.seed_correlation):
            found = f"correlation {fixed(self.seed_correlation, 2)} over {len(self.paired)} seeds"
            yield f"paired seeds: {found} (pairing gains power if this correlation is above about 0.3)"

    @property
    def _few_runs(self) -> Iterator[str]:
        """Remarks on runs that are missing, left out, or equal under several seeds."""
        for variant in self.pair:
            if seeds := [str(seed) for name, seed in self.missing if name == variant]:
                several = "s" * (len(seeds) > 1)
                yield (
                    f"{variant} has no seed{several} {', '.join(seeds)}, so the other variant's run{several} "
                    f"{'is' if len(seeds) == 1 else 'are'} left out too"
                )
        for variant, seed in sorted(self.measurements.without):
            if variant in self.pair:
                yield f"seed {seed} of {variant} is left out, as --without permits"
        if self.identical:
            yield "all values of both variants are identical; check that the variants are not the same evaluation"
        for place in self.estimate.copied if self.estimate else ():
            copies = f"all {self.seeds} seeds of {self.pair[place]} have the same value on every item"
            yield f"{copies}, so they count as one run; check that the runs use their seeds"

    @property
    def identical(self) -> bool:
        """Whether the two given evaluations have identical values, as if one file were a copy of the other."""
        given = not self.measurements.planned and "identical" not in self.measurements.allowed
        return given and self.estimate is not None and _no_difference(self.estimate)

    @property
    def compared_runs(self) -> list[Run]:
        """Runs of both variants that are compared, the parent's first."""
        by_variant = zip(reversed(self.pair), reversed(self.runs), strict=True)
        return [(variant, seed) for variant, seeds in by_variant for seed in seeds]

    @property
    def missing(self) -> list[Run]:
        """Missing runs for seeds that the other variant has, except those that a plan explains or a user permits."""
        return without_partner(self.measurements, *self.pair)

    @cached_property
    def warnings(self) -> tuple[Warned, ...]:
        """Health rules of severity `warn` that runs of either variant broke."""
        return warnings(self.measurements, self.pair)

    @cached_property
    def mde(self) -> float:
        """Minimum detectable effect with 80% power, at the level that the correction leaves; NaN if not known."""
        if self.latest is None or _no_difference(self.latest.estimate):
            return _NAN
        return minimal_detectable_effect(self.latest.estimate.verdict_noise, self.correction.level * self.latest.weight)

    @cached_property
    def seeds_needed(self) -> int | None:
        """Number of seeds that detect the observed effect with 80% power."""
        if self.latest is None or self.estimate is None or self.measurements.design.claim == "checkpoints":
            return None
        latest = self.latest
        if self.estimate.least_p > self.correction.level * latest.weight:
            return None
        weights = interim_weights(self.measurements.analysis.interim_analyses)
        return seeds_needed(
            self.estimate.centre,
            latest.estimate.verdict_noise,
            latest.seeds,
            self.correction.level,
            interims=weights,
        )

    @cached_property
    def _since_root(self) -> Measured | None:
        """Direct comparison of the child with its first ancestor; None if a step between the two was not tested."""
        above = ancestors(self.child, self.measurements.parents)
        if self.measurements.analysis.comparisons != "parent" or self.correction.alone or not above:
            return None
        if not all(step in self.correction.adjusted for step in pairwise([self.child, *above])):
            return None
        since: Measured = self if len(above) == 1 else measure(self.measurements, self.child, above[-1])
        return None if np.isnan(since.p) else since

    @cached_property
    def _root_interval(self) -> tuple[float, float]:
        """Interval of the effect relative to the root, corrected for all paths of the variant tree."""
        since = self._since_root
        return since.interval_at(self.correction.path_level) if since else (_NAN, _NAN)

    @property
    def root(self) -> str:
        """First ancestor of the child; empty if child and ancestor cannot be compared."""
        return self._since_root.parent if self._since_root else ""

    @property
    def root_effect(self) -> float:
        """Effect relative to the root."""
        return self._since_root.effect if self._since_root else _NAN

    @property
    def root_low(self) -> float:
        """Lower end of the interval of `root_effect`, corrected for all paths of the variant tree."""
        return self._root_interval[0]

    @property
    def root_high(self) -> float:
        """Upper end of the interval of `root_effect`, corrected for all paths of the variant tree."""
        return self._root_interval[1]


def judge_comparisons(study: Measurements) -> list[Comparison]:
    """Return the judged comparisons of one study, in the order of its variants or of the analysis plan."""
    measured = [measure(study, *pair) for pair in compared(study.analysis.comparisons, study.parents)]
    correction = Correction.of(study, measured)
    return [Comparison(**vars(each), correction=correction) for each in measured]


def may_differ(comparisons: Sequence[Comparison]) -> str:
    """Return a remark on the largest share of seeds that may behave differently; empty if no verdict is decided."""
    interims = (comparison.decision[1] for comparison in comparisons if not np.isnan(comparison.in_seeds))
    decided = [interim.seeds for interim in interims if interim is not None]
    if not decided:
        return ""
    analysis, seeds = comparisons[0].measurements.analysis, min(decided)
    share = max_undetected_share(seeds, analysis.alpha)
    return (
        f"{seeds} seeds rule out that more than {percent(share)} of seeds behave differently "
        f"({confidence(analysis.alpha)} confidence)"
    )


def too_few(seeds: int, analysis: Analysis) -> str:
    """Return why the number of seeds is too small for a verdict, and how many would be enough."""
    share = max_undetected_share(seeds, analysis.alpha)
    needed = f"{seeds_for(analysis.rare, analysis.alpha)} seeds would reduce that share to {percent(analysis.rare)}"
    return f"{seeds} seeds cannot rule out that {percent(share)} of seeds behave differently; {needed}"


def _no_difference(numbers: Estimate) -> bool:
    return numbers.effect == 0 and numbers.noise.total == 0


def _these_items(numbers: Estimate, analysis: Analysis) -> str:
    if analysis.protocol == LOGGED:
        return "these are final metrics without items, so the interval does not include evaluation noise"
    what = "all items are in one cluster" if numbers.clusters == 1 else "all items of a subset are in one cluster"
    what = "there is one item" if numbers.items == 1 else what
    return f"{what}, which cannot represent others, so the verdict is about these items only"


@dataclass(frozen=True)
class JointSteps:
    """The joint effect of several steps, from an ancestor to a variant; a positive effect is an improvement."""

    ancestor: str
    child: str
    steps: int
    effect: float
    low: float  # interval for every variant against each of its ancestors at once
    high: float


def joint_steps(comparisons: Sequence[Comparison]) -> list[JointSteps]:
    """Return the longest sequences of steps whose joint effect is significant although no single step is."""
    if not comparisons or comparisons[0].measurements.analysis.comparisons != "parent":
        return []
    correction, study = comparisons[0].correction, comparisons[0].measurements
    parents = {
        step.child: step.parent for step in comparisons if step.pair in correction.adjusted and not step.significant
    }
    shown = []
    for child in parents.keys() - set(parents.values()):
        path = [child]
        while path[-1] in parents:
            path.append(parents[path[-1]])
        if len(path) < 3:
            continue
        together = measure(study, child, path[-1])
        if np.isnan(together.p):
            continue
        low, high = together.interval_at(correction.path_level)
        if low > 0 or high < 0:
            shown.append(JointSteps(path[-1], child, len(path) - 1, together.effect, low, high))
    return sorted(shown, key=lambda steps: list(study.parents).index(steps.child))


@dataclass(frozen=True)
class Pair:
    """A comparison that is judged as if it were the study's only one; the verdict is `comparison.detail`."""

    comparison: Comparison
    differing: dict[str, list[tuple[str, Any, Any]]]  # what changed, {factor: (key, parent's value, child's value)}


def judge_all_pairs(study: Measurements) -> list[Pair]:
    """Compare every variant with each variant before it, in the order of the study's variants."""
    return [judge_pair(study, b, a) for a, b in combinations(study.parents, 2)]


def judge_pair(study: Measurements, child: str, parent: str) -> Pair:
    """Compare two variants without a correction, since a reader may pick them after seeing results.

    What differs is read from their configurations, not from the variant tree between them.
    """
    configs = {variant.name: variant.resolved for variant in study.variants}
    factors = {change.key: change.factor for variant in study.variants for change in variant.changes}
    differing: dict[str, list[tuple[str, Any, Any]]] = {}
    for key, old, new in differences(configs[parent], configs[child]):
        differing.setdefault(factor_among(key, factors), []).append((key, old, new))
    measured = replace(measure(study, child, parent, moderate=False), factors=tuple(differing))
    alone = Correction(study, [measured], [measured.p], alone=True)
    return Pair(Comparison(**vars(measured), correction=alone), differing)


def factor_among(key: str, factors: Mapping[str, str]) -> str:
    """Return the factor of a key, given a study's {changed key: factor}; without a factor, return the key itself."""
    above = [changed for changed in factors if dotted.covers(changed, key)]
    return factors[max(above, key=len)] if above else key

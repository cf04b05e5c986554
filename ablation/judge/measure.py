"""One comparison of a child with its parent, without the family: effect, noise, and its interim analyses."""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from ablation.config.study_schema import Analysis
from ablation.config.variant_tree import ancestors
from ablation.judge import remarks
from ablation.judge.measurements import Measurements, Problem, comparable
from ablation.judge.moderation import SeedPrior
from ablation.judge.significance import Noise, interim_weights, sequential_p
from ablation.judge.statistics import Estimate, contrast_groups

_NAN = float("nan")


@dataclass(frozen=True)
class Interim:
    """An interim analysis: a comparison with so many of its seeds, and the share of alpha that it may spend."""

    seeds: int
    weight: float
    estimate: Estimate
    noise: Noise  # moderated where the study's other variants say something of it
    p: float  # two-sided, at this interim analysis alone


@dataclass(frozen=True)
class Measured:
    """One comparison, without the family; numbers in units of the statistic, positive is an improvement."""

    of: Measurements = field(repr=False, compare=False)
    parent: str
    child: str
    problem: Problem = field(default=Problem())  # what keeps runs from being paired
    factors: tuple[str, ...] = ()
    # The seeds of the child's runs and of the parent's, in the order in which they were added.
    runs: tuple[tuple[int, ...], tuple[int, ...]] = field(default=((), ()), repr=False)
    estimate: Estimate | None = field(default=None, repr=False)  # of all its seeds
    noise: Noise = field(
        default=Noise(_NAN, 0, _NAN), repr=False
    )  # of all its seeds; moderated as that of an interim analysis
    interims: tuple[Interim, ...] = field(default=(), repr=False)  # taken so far, the last one last
    latest: Interim | None = field(default=None, repr=False)  # the last of them, or before it all that there is
    low: float = _NAN  # interval at 1 - alpha for this comparison alone, at the level of the last interim analysis
    high: float = _NAN
    p: float = _NAN  # two-sided; over all interim analyses, if the study declares any

    @property
    def study(self) -> str:
        """Its name."""
        return self.of.name

    @property
    def pair(self) -> tuple[str, str]:
        """Child and parent."""
        return self.child, self.parent

    @property
    def confounded(self) -> bool:
        """Whether more than one factor changed."""
        return len(self.factors) > 1

    @property
    def effect(self) -> float:
        """Mean over seeds; NaN where no runs can be paired."""
        return self.estimate.effect if self.estimate else _NAN

    @property
    def paired(self) -> tuple[int, ...]:
        """The seeds that were paired; none where runs are independent."""
        return self.runs[0] if self.of.design.paired else ()

    @property
    def seeds(self) -> int:
        """How many runs either variant has, at least."""
        return min(map(len, self.runs))

    @property
    def items(self) -> int:
        """How many were paired, over all subsets."""
        return self.estimate.items if self.estimate else 0


def measure(study: Measurements, child: str, parent: str, *, moderate: bool = True) -> Measured:
    """One comparison without the family: effect, its interim analyses, and the p over them.

    The study's other variants inform the seeds' variance only where the family is corrected for: alone, a child that is
    several times as noisy as they are would err too often.
    """
    compared = comparable(study, [child, parent])
    problem, analysis, prior = compared.problem, study.analysis, study.prior if moderate else None
    measured = Measured(study, parent, child, problem, _factors(study, child, parent))
    if not compared.groups:
        return measured
    most = min(map(len, compared.runs))
    same = study.design.paired and remarks.same_measured(study.weights, child, parent, compared.runs[0])

    def estimate(count: int) -> tuple[Estimate, Noise]:
        groups = compared.groups if count == most else compared.first(study, count, (child, parent))
        result = contrast_groups(groups, (1, -1), 1 - analysis.alpha, study.design)
        if result.noise.total == 0 and same:  # other items differ no more than these
            result = replace(result, noise=replace(result.noise, unseen=0.0))
        return result, moderated(result, (child, parent), prior)

    numbers, noise = estimate(most)
    shares = interim_weights(analysis.interim_analyses) or {most: 1.0}
    interims: list[Interim] = []
    for count, share in shares.items():
        if count <= most:
            then, noise_then = (numbers, noise) if count == most else estimate(count)
            interims.append(Interim(count, share, then, noise_then, then.p_value(noise_then)))
    latest = interims[-1] if interims else Interim(most, interim_shares(analysis)[0], numbers, noise, _NAN)
    low, high = around(numbers.effect, latest, analysis.alpha)
    return replace(
        measured,
        runs=(tuple(compared.runs[0]), tuple(compared.runs[1])),
        estimate=numbers,
        noise=noise,
        interims=tuple(interims),
        latest=latest,
        low=low,
        high=high,
        p=_NAN if problem else sequential_p({interim.seeds: interim.p for interim in interims}, shares),
    )


def moderated(numbers: Estimate, variants: Sequence[str], prior: SeedPrior | None, squares: float = 2.0) -> Noise:
    """The noise of a difference, or of a contrast with this sum of squared weights: see `SeedPrior.moderated`.

    The noise as it is without a prior, or with one seed.
    """
    noise = numbers.noise
    if prior is None or not noise.seeds_known or numbers.copied or numbers.design.claim == "checkpoints":
        return noise
    if noise.groups:
        return prior.moderated(noise, variants, numbers.seeds)
    plain = float(np.var(numbers.per_seed, ddof=1))
    hidden = max(numbers.noise.seed_variance * numbers.seeds - plain, 0.0)
    return prior.moderated(numbers.noise, variants, numbers.seeds, hidden, squares)


def _factors(study: Measurements, child: str, parent: str) -> tuple[str, ...]:
    """The factors that differ on the way from one to the other, through their last common ancestor."""
    own = {variant.name: variant.factors for variant in study.variants}
    ours, theirs = ([name, *ancestors(name, study.parents)] for name in (child, parent))
    steps = [name for name in ours if name not in theirs] + [name for name in theirs if name not in ours]
    return own[steps[0]] if len(steps) == 1 else tuple(sorted({factor for name in steps for factor in own[name]}))


def around(effect: float, interim: Interim, level: float) -> tuple[float, float]:
    """The interval of an interim analysis at its share of a level; it always holds the effect that is shown."""
    low, high = interim.estimate.interval(interim.noise, level * interim.weight)
    return min(low, effect), max(high, effect)


def interim_shares(analysis: Analysis) -> list[float]:
    """Each interim analysis's share of alpha; all of it for one analysis where none is planned."""
    return list(interim_weights(analysis.interim_analyses).values()) or [1.0]

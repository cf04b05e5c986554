"""Moderates variances over seeds: draws each towards a prior that is estimated from all variants of a study.

With three seeds, a variance has only two degrees of freedom. The method is that of Smyth, Statistical Applications in
Genetics and Molecular Biology 3 (2004), article 3. Comparisons share parents, and one unstable parent makes all of its
comparisons noisy. So the prior is estimated from the variants' runs, which are nearly independent once the median over
variants is subtracted from each seed. A comparison's prior is the prior of two runs.

Two rules make it robust, as Phipson et al. (2016, Annals of Applied Statistics 10, 946-963) do for thousands of genes:

- A variant that is much less or much more stable than the others does not contribute to the prior, and comparisons of
  unstable variants keep their own variance. If there are many such variants, all contribute, and the prior is at least
  their mean variance (in which, from five seeds on, a variance counts up to the bound at which it is called unstable).
- The prior's degrees of freedom are limited: with three seeds a variant with five times the usual spread looks stable
  in every sixth study.

docs/explanation/statistics.md has the simulated errors behind these numbers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import inf

import numpy as np
from numpy.typing import NDArray
from scipy import special

from ablation.judge.significance import Array, Noise

FEWEST_SEEDS = 3
FEWEST_VARIANTS = 4  # needed for a prior
# Most degrees of freedom of the prior, and comparisons for each of them, by seeds; with more seeds the last.
MOST_PRIOR_DF = {3: (2.5, 4), 4: (5.0, 4), 5: (10.0, 2)}
UNSTABLE = 0.02  # upper and lower tail beyond which a variant does not form the prior
FEW = 0.1  # of the variants, and at least one, may be left out of the prior
BOUNDED_DF = 4  # from five seeds on, a variance counts in the mean of all only up to the bound of its F test
QUIET = 0.001  # a comparison with a variance that is so improbably small under the prior keeps this variance
_ANY_DF = 1e6  # the prior's variance is taken as known here
LEAST = 1e-5  # of the median: smaller variances are not distinguished (limma's offset)
# Variance of the median of k standard normal numbers (k = 1 to 7: David and Nagaraja, 2003); pi / 2 / k from there on.
_MEDIAN = {1: 1.0, 2: 0.5, 3: 0.44867, 4: 0.29820, 5: 0.28683, 6: 0.21472, 7: 0.21045}


@dataclass(frozen=True)
class SeedPrior:
    """The prior of the noise of one run, estimated from a study's variants."""

    variance: float  # of one run's gain from seed to seed
    df: float  # how much it counts, in degrees of freedom
    unstable: frozenset[str]  # variants whose comparisons keep their own variance
    variances: Mapping[str, float]  # moderated variance of each variant's runs; its own where unstable

    def moderated(
        self, noise: Noise, variants: Sequence[str], seeds: int, hidden: float = 0.0, squares: float = 2.0
    ) -> Noise:
        """Return the moderated noise of a difference of two variants, or of another contrast.

        The contrast keeps its own variance with fewer than three seeds, for unstable variants, and if the variance is
        so small (because runs are equal, for example) that its probability under the prior is below 0.001.

        Args:
            noise: of the contrast, from its own runs.
            variants: in the contrast.
            seeds: of each variant.
            hidden: part of one seed's variance that the runs' gains do not show, such as rounding.
            squares: the sum of the contrast's squared weights.
        """
        if noise.groups:
            return self._moderated_groups(noise, variants)
        if seeds < FEWEST_SEEDS or any(name not in self.variances or name in self.unstable for name in variants):
            return noise
        prior = (squares * self.variance + hidden) / seeds
        variance, df = self._toward(prior, noise.seed_variance, noise.seed_df)
        return replace(noise, seed_variance=variance, seed_df=df)

    def _moderated_groups(self, noise: Noise, variants: Sequence[str]) -> Noise:
        """Return the noise with each group's variance moderated, except for groups that keep their own."""
        if any(group.runs < FEWEST_SEEDS for group in noise.groups) or len(noise.groups) != len(variants):
            return noise
        groups = []
        for group, name in zip(noise.groups, variants, strict=True):
            if name in self.variances and name not in self.unstable and group.variance > 0:
                prior = group.weight**2 * self.variance / group.runs
                variance, df = self._toward(prior, group.variance, group.df)
                groups.append(replace(group, variance=variance, df=df))
            else:
                groups.append(group)
        seeds = Noise.independent(groups)
        return replace(noise, seed_variance=seeds.seed_variance, seed_df=seeds.seed_df, groups=seeds.groups)

    def _toward(self, prior: float, variance: float, df: float) -> tuple[float, float]:
        """Return a variance moderated by the prior, and its degrees of freedom.

        A variance that is improbably small under the prior is returned unchanged.
        """
        if special.fdtr(df, _ANY_DF, variance / prior) < QUIET:
            return variance, df
        return (self.df * prior + df * variance) / (self.df + df), df + self.df


def trigamma_inverse(value: float) -> float:
    """Return the y with `trigamma(y) == value`, by Newton's method on `1 / trigamma` (Smyth 2004, appendix)."""
    if value > 1e7:
        return 1 / float(np.sqrt(value))
    if value < 1e-6:
        return 1 / value
    y = 0.5 + 1 / value
    for _ in range(50):
        trigamma = float(special.polygamma(1, y))
        step = trigamma * (1 - trigamma / value) / float(special.polygamma(2, y))
        y += step
        if -step / y < 1e-10:
            break
    return y


def fit_prior(variances: Array, df: Array) -> tuple[float, float]:
    """Return the prior variance and its degrees of freedom, infinite for equal variances, by log moments.

    The method is that of limma's fitFDist (Smyth 2004, section 6.2). Log variances have the variance
    `trigamma(df / 2) + trigamma(prior_df / 2)`. If they vary less than by chance, the prior variance is their mean.
    """
    logs = np.log(variances) - special.digamma(df / 2) + np.log(df / 2)
    excess = float(logs.var(ddof=1) - special.polygamma(1, df / 2).mean())
    if excess <= 0:
        return float(np.average(variances, weights=df)), inf
    prior_df = 2 * trigamma_inverse(excess)
    return float(np.exp(logs.mean() + special.digamma(prior_df / 2) - np.log(prior_df / 2))), prior_df


def squeeze(variances: Array, df: Array, prior: float, prior_df: float) -> Array:
    """Return posterior variances, which are weighted means as in limma's squeezeVar (Smyth 2004, equation 5)."""
    if prior_df == inf:
        return np.full_like(variances, prior)
    return (prior_df * prior + df * variances) / (prior_df + df)


def spreads(gains: Array) -> tuple[Array, Array]:
    """Return each variant's variance over seeds and its degrees of freedom, from gains [variants, seeds].

    A gain is NaN without a run. The effect that a seed has on all variants is not noise of a difference, so the median
    of the other variants is subtracted from each run, and the median's own noise from the variance.
    """
    made = ~np.isnan(gains)
    with np.errstate(divide="ignore", invalid="ignore"):
        centred = gains - np.where(made, gains, 0.0).sum(axis=1, keepdims=True) / made.sum(axis=1, keepdims=True)
        order = np.argsort(centred, axis=0)  # of the variants in each seed, NaN last
        rank, ordered = np.argsort(order, axis=0), np.take_along_axis(centred, order, 0)
        others = made.sum(axis=0) - made  # how many others there are [variants, seeds]
        # The k-th of the others is the k-th of all, or the next where the variant itself comes before it.
        places = (np.maximum(k, 0) for k in ((others - 1) // 2, others // 2))
        middle = sum(np.take_along_axis(ordered, k + (k >= rank), 0) for k in places) / 2
        seen = made & (others > 0)
        count, left = seen.sum(axis=1), np.where(seen, gains - middle, 0.0)
        extra = (seen * _median_noise(others)).sum(axis=1) / count
        away = np.where(seen, left - (left.sum(axis=1) / count)[:, None], 0.0)
        variances = (away**2).sum(axis=1) / np.where(count > 1, count - 1, np.nan) / (1 + extra)
    return variances, np.maximum(count - 1.0, 0.0)


def _plain_spreads(gains: Array) -> tuple[Array, Array]:
    """Return each variant's variance over independent runs and its degrees of freedom."""
    count = (~np.isnan(gains)).sum(axis=1)
    away = gains - np.nansum(gains, axis=1, keepdims=True) / count[:, None]
    return np.nansum(away**2, axis=1) / np.maximum(count - 1, 1), np.maximum(count - 1.0, 0.0)


def _median_noise(counts: NDArray[np.int64]) -> Array:
    """Return the variance of the median of this many values, in units of the variance of one value; 0 for no values."""
    exact = np.array([_MEDIAN.get(count, np.pi / 2 / max(count, 1)) for count in range(int(counts.max()) + 1)])
    return np.where(counts > 0, exact[counts], 0.0)


def seed_prior(gains: Mapping[str, Mapping[int, float]], *, paired: bool = True) -> SeedPrior | None:
    """Return the prior from the runs of a study, {variant: {seed: gain}}; None if there are too few runs.

    paired: whether runs of one seed have something in common.
    """
    names = [name for name, by_seed in gains.items() if len(by_seed) >= FEWEST_SEEDS]
    seeds = list(dict.fromkeys(seed for name in names for seed in gains[name]))
    if len(names) < FEWEST_VARIANTS:
        return None
    table = np.array([[gains[name].get(seed, np.nan) for seed in seeds] for name in names])
    variances, df = spreads(table) if paired else _plain_spreads(table)
    enough = df >= FEWEST_SEEDS - 1
    names = [name for name, has in zip(names, enough, strict=True) if has]
    variances, df = variances[enough], df[enough]
    middle = float(np.median(variances)) if len(names) >= FEWEST_VARIANTS else 0.0
    if middle <= 0:
        return None
    variances = np.maximum(variances, LEAST * middle)
    # An F test of each against the median, which one unstable variant does not move.
    scale = float(np.median(variances / (2 * special.gammaincinv(df / 2, 0.5) / df)))
    above = special.fdtrc(df, df.sum() - df, variances / scale)
    forms = (above >= UNSTABLE) & (above <= 1 - UNSTABLE)
    many = int((~forms).sum()) > max(1.0, FEW * len(names))
    if many:
        forms[:] = True
    prior, prior_df = fit_prior(variances[forms], df[forms])
    if many:
        # A very unstable variant keeps its own variance and must not widen the intervals of the others.
        bound = np.where(df >= BOUNDED_DF, scale * special.fdtri(df, df.sum() - df, 1 - UNSTABLE), np.inf)
        prior = max(prior, float(np.average(np.minimum(variances, bound), weights=df)))
    most, comparisons = MOST_PRIOR_DF[min(int(np.median(df)) + 1, max(MOST_PRIOR_DF))]
    prior_df = min(prior_df, most, (len(names) - 1) / comparisons)
    stable = above < UNSTABLE
    posterior = np.where(stable, variances, squeeze(variances, df, prior, prior_df))
    unstable = frozenset(name for name, alone in zip(names, stable, strict=True) if alone)
    return SeedPrior(prior, prior_df, unstable, dict(zip(names, posterior.tolist(), strict=True)))

"""Corrects the comparisons of one study as a family, by the correlation of their errors (max-t).

Westfall and Young (1993, Resampling-Based Multiple Testing) and Romano and Wolf (2005, JASA 100, 94-108): step down
through the smallest p-values, each against the distribution of the smallest p of those that are left. The distribution
is simulated as a multivariate t: numerators have the comparisons' correlation, denominators are drawn independently,
which errs on the safe side (correlated denominators make fewer false findings at once). Only the dependence is
simulated; each p-value comes from its own test.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy import special

from ablation.judge.measure import Measured
from ablation.judge.moderation import SeedPrior
from ablation.judge.significance import Array, Noise, holm

DRAWS = 10_000
DRAW_SEED = 20250302
_MOST_DF = 1e6  # represents a known variance


def covariances(tested: Sequence[Measured], prior: SeedPrior | None) -> tuple[Array, Array] | None:
    """Return the covariances [tested, tested] of effects over seeds and over items; None if seed noise is unknown.

    Two comparisons share the noise of the runs that both use: a common parent correlates them by +1/2 if all runs are
    equally noisy, parent and grandchild by -1/2. Few seeds cannot estimate these numbers, so they are computed from the
    moderated spread of each variant. Items are many, so their draws give them.
    """
    latest = [comparison.interims[-1] for comparison in tested]
    noises = [interim.estimate.noise for interim in latest]
    if prior is None or any(not noise.seeds_known for noise in noises):
        return None
    pairs = [comparison.pair for comparison in tested]
    names = sorted({name for pair in pairs for name in pair})
    variances = np.array([prior.variances.get(name, prior.variance) for name in names])
    signs = np.array([[(name == child) - (name == parent) for name in names] for child, parent in pairs], dtype=float)
    if noises[0].groups:  # of a variant's runs, those in one comparison are the first of those in another
        runs = np.zeros(signs.shape)
        for row, (pair, interim) in enumerate(zip(pairs, latest, strict=True)):
            runs[row, [names.index(name) for name in pair]] = [len(seeds) for seeds in interim.runs]
        by_seed = np.zeros((len(tested), len(tested)))
        for variance, sign, count in zip(variances, signs.T, runs.T, strict=True):
            members = np.flatnonzero(sign)
            shared = variance / np.maximum.outer(count[members], count[members])
            by_seed[np.ix_(members, members)] += np.outer(sign[members], sign[members]) * shared
    else:
        every = list(dict.fromkeys(seed for interim in latest for seed in interim.runs[0]))
        made = np.array([np.isin(every, interim.runs[0]) for interim in latest], dtype=float)
        shared = made @ made.T / made.sum(axis=1)[:, None] / made.sum(axis=1)
        by_seed = (signs * variances) @ signs.T * shared
    draws = np.stack([interim.estimate.item_draws for interim in latest])
    by_item = np.cov(draws, ddof=0).reshape(len(tested), len(tested))
    seed_variances = np.array([noise.seed_variance for noise in noises])
    item_variances = np.array([noise.item_variance for noise in noises])
    return _with_variances(by_seed, seed_variances), _with_variances(by_item, item_variances)


def _with_variances(covariance: Array, variances: Array) -> Array:
    """Return covariances with the same correlations and the given variances; those with a variance of 0 are 0."""
    return _correlation(covariance) * np.sqrt(np.outer(variances, variances))


def _correlation(covariance: Array) -> Array:
    sds = np.sqrt(np.diag(covariance))
    with np.errstate(divide="ignore", invalid="ignore"):
        correlation = np.where(np.outer(sds, sds) > 0, covariance / np.outer(sds, sds), 0.0)
    np.fill_diagonal(correlation, 1.0)
    return np.clip(correlation, -1.0, 1.0)


def degrees(noise: Noise) -> float:
    """Return the degrees of freedom of the sum of the seed and the item variances (Satterthwaite 1946)."""
    squares = noise.seed_variance**2 / noise.seed_df + noise.item_variance**2 / noise.item_df
    return min(noise.total**2 / squares, _MOST_DF) if squares > 0 else _MOST_DF


@dataclass(frozen=True)
class Family:
    """Contrasts that are judged together, over interim analyses with the shares `weights` of alpha."""

    correlation: Array  # [members, members]
    df: Array  # [members]
    weights: tuple[float, ...] = (1.0,)
    sides: int = 2  # of each test; with 1 only large positive effects count

    @classmethod
    def of(
        cls,
        by_seed: Array,
        by_item: Array,
        noises: Sequence[Noise],
        weights: Sequence[float] = (1.0,),
        sides: int = 2,
    ) -> "Family":
        """Return the family of members with these covariances."""
        degrees_ = np.array([degrees(noise) for noise in noises])
        return cls(_correlation(by_seed + by_item), degrees_, tuple(weights), sides)

    @cached_property
    def _draws(self) -> Array:
        """Draws [draws, members] of |t| if there is no effect, or of t if tests are one-sided."""
        generator = np.random.default_rng([DRAW_SEED, len(self.df)])
        values, vectors = np.linalg.eigh(self.correlation)
        # The symmetric root: unlike eigenvectors, it does not turn with the rounding of equal eigenvalues.
        root = (vectors * np.sqrt(np.maximum(values, 0))) @ vectors.T
        normal = generator.standard_normal((DRAWS, len(self.df))) @ root
        denominators = generator.chisquare(self.df, (DRAWS, len(self.df)))
        denominators /= self.df  # in place: a thousand members are 80 MB
        normal /= np.sqrt(denominators, out=denominators)
        return np.abs(normal, out=normal) if self.sides == 2 else normal

    def _exceeded(self, p: float, df: Array, draws: Array) -> float:
        """Return the chance that the smallest p of members is at most `p` at any interim analysis (Bonferroni)."""
        total = 0.0
        for weight in self.weights:
            critical = -special.stdtrit(df, np.maximum(p * weight, 1e-300) / self.sides)
            count = int((draws >= critical).any(axis=1).sum())
            total += (1 + count) / (1 + DRAWS)
        return min(total, 1.0)

    def adjusted(self, p: Sequence[float]) -> Array:
        """Return step-down adjusted p-values, each at least the original p, and at most Holm's; NaN remains NaN."""
        raw, by_holm = np.asarray(p, dtype=float), holm(p)
        tested = np.flatnonzero(~np.isnan(raw))
        order, least = tested[np.argsort(raw[tested], kind="stable")], 0.0
        result, df, draws = np.full(raw.shape, np.nan), self.df[order], self._draws[:, order]
        for step, index in enumerate(order):
            if least < by_holm[index]:
                step_p = min(self._exceeded(float(raw[index]), df[step:], draws[:, step:]), by_holm[index])
                least = max(least, step_p, raw[index])  # allows for the draws' error
            result[index] = least
        return result

    def level(self, alpha: float) -> float:
        """Return the level of each member's test and interval that gives the whole family the level alpha.

        It is at least alpha / members.
        """
        if len(self.df) < 2 or self._exceeded(alpha, self.df, self._draws) <= alpha:
            return alpha

        def excess(log_level: float) -> float:
            return self._exceeded(float(np.exp(log_level)), self.df, self._draws) - alpha

        bonferroni = alpha / len(self.df)
        if excess(float(np.log(bonferroni))) >= 0:
            return bonferroni
        from scipy import optimize  # takes long to import, and two variants need none

        return float(np.exp(optimize.bisect(excess, np.log(bonferroni), np.log(alpha), xtol=1e-4)))

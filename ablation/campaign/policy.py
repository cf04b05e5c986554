"""Decide what a campaign runs next and what it may claim: a state machine over values, without files or processes.

Larger values are better here. A trial is a generator: it yields batches of runs, receives their values (None for a
crash), and returns a decision. So the same code runs a campaign, replays a ledger, and simulates a campaign.
"""

import math
from collections.abc import Generator, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from statistics import NormalDist, fmean

Values = Sequence[float | None]
_NORMAL = NormalDist()
MOST_RUNS = 64  # of the verification of one simplification


@dataclass(frozen=True)
class Rules:
    """The constants of the policy, chosen by simulations (docs/how-to/campaigns.md).

    Attributes:
        baseline: number of runs of the baseline before the first trial.
        screen: a trial goes on if its first run is this many standard deviations above the champion's mean.
        again: number of fresh runs of a trial that goes on.
        keep: a trial is kept if the mean of its fresh runs is this many standard deviations above the champion's mean.
        least, most: smallest and largest number of pairs of a verification.
        power: probability with which a verification should show the gain that fresh runs suggest.
        patience: provisional steps after which a verification is made even if it needs more than `most` pairs.
        alpha: allowed share of false claims.
        start: bound on the chance of any false claim if no trial helps; the levels before the first claim share it.
        decay: exponent with which the levels of later tests fall.
        prior: degrees of freedom with which the pooled variance counts in the variance of one variant.
        near: like `prior`, but for the decisions `screen` and `keep`.
        pooled: degrees of freedom from which on the differences of pairs give the error of a verification.
        confirm: whether each step is verified before the next one.
    """

    baseline: int = 3
    screen: float = 0.7
    again: int = 2
    keep: float = 0.4
    least: int = 4
    most: int = 5
    power: float = 0.97
    patience: int = 8
    alpha: float = 0.1
    start: float = 0.05
    decay: float = 1.6
    prior: int = 4
    near: int = 1
    pooled: int = 8
    confirm: bool = False


def t_tail(t: float, freedom: int) -> float:
    """Return P(T > t) for whole degrees of freedom from 1 on (Abramowitz and Stegun 26.7.3 and 26.7.4).

    Computed here because importing scipy takes longer than the rest of `ablation try`.
    """
    angle = math.atan(t / math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    odd = freedom % 2
    term = total = cosine if odd else 1.0
    for k in range(2 + odd, freedom - 1, 2):
        term *= cosine**2 * (k - 1) / k
        total += term
    inside = sine * total if not odd else 2 / math.pi * (angle + (sine * total if freedom > 1 else 0.0))
    return (1 - inside) / 2


@lru_cache(maxsize=1024)
def t_quantile(tail: float, freedom: int) -> float:
    """Return the t for which `P(T > t) == tail`, for a tail below one half."""
    low, high = 0.0, 1.0
    while t_tail(high, freedom) > tail and high < 1e9:
        low, high = high, 2 * high
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if t_tail(middle, freedom) > tail else (low, middle)
    return high


@dataclass(frozen=True)
class Batch:
    """Runs (variant, seed) that may be made at the same time; the purpose is `screen`, `again` or `verify`."""

    purpose: str
    runs: tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Verification:
    """A test of the provisional champion against the verified one, from fresh runs of both.

    Attributes:
        old, new: the verified and the provisional champion.
        pairs: number of pairs of runs in which both have a value.
        gain, error, freedom: mean difference, its standard error, and degrees of freedom.
        level: level of the test.
        p: p of the one-sided test; for a simplification, the larger p of the two one-sided tests of equivalence.
        margin: margin within which a simplification must be equivalent; None for other steps.
    """

    old: str
    new: str
    pairs: int
    gain: float
    error: float
    freedom: int
    level: float
    p: float
    margin: float | None = None

    @property
    def shown(self) -> bool:
        """Whether the test is significant, so that the gain, or the equivalence, may be claimed."""
        return self.p <= self.level

    @property
    def stated(self) -> float:
        """Gain corrected for selection: the true gain for which the expected measurement, if significant, is `gain`.

        It is the d with d + e h((c - d) / e) = gain, where e is the standard error, c the least gain that is shown, and
        h the hazard of the normal.
        """
        if not self.shown or self.margin is not None:
            return self.gain
        least = t_quantile(self.level, self.freedom) * self.error
        low, high = 0.0, self.gain
        for _ in range(50):
            middle = (low + high) / 2
            z = (least - middle) / self.error
            luck = self.error * _NORMAL.pdf(z) / max(1 - _NORMAL.cdf(z), 1e-300)
            low, high = (middle, high) if middle + luck < self.gain else (low, middle)
        return high

    def interval(self, level: float = 0.95) -> tuple[float, float]:
        """Return the two-sided confidence interval of the gain."""
        half = t_quantile((1 - level) / 2, self.freedom) * self.error
        return self.gain - half, self.gain + half


@dataclass(frozen=True)
class Decision:
    """The outcome of a trial.

    Attributes:
        word: step, verified, reset, back (to the verified champion), crash, constant (the code no longer uses its
            seed), or costly (a simplification would need `cost` runs).
        value: value of the trial's first run; None if it crashed.
        against: mean of the champion's fresh runs, with which `value` is compared.
        error: standard deviation of the difference between `value` and `against`.
        again: mean of the trial's fresh runs; None if there were none.
    """

    word: str
    value: float | None = None
    against: float = math.nan
    error: float = math.nan
    again: float | None = None
    verification: Verification | None = None
    cost: int = 0

    @property
    def kept(self) -> bool:
        """Whether the trial becomes the champion from which the loop goes on."""
        return self.word in ("step", "verified")


@dataclass
class _Runs:
    """The number of fresh runs of one variant, the mean of their values, and the sum of squares about the mean."""

    n: int = 0
    mean: float = 0.0
    squares: float = 0.0

    def add(self, value: float) -> None:
        self.n += 1
        step = value - self.mean
        self.mean += step / self.n
        self.squares += step * (value - self.mean)


class Pool:
    """The fresh runs of all variants by one command, and their pooled noise."""

    def __init__(self, variant: str, values: Sequence[float]) -> None:
        self.runs: dict[str, _Runs] = {}
        self.tied = False  # whether two runs of a variant gave the same value, as with a metric of few values
        self._squares, self._freedom = 0.0, 0
        self._seen: set[tuple[str, float]] = set()
        for value in values:
            self.add(variant, value)

    def add(self, variant: str, value: float) -> None:
        """Add a fresh run of a variant."""
        runs = self.runs.setdefault(variant, _Runs())
        squares = runs.squares
        runs.add(value)
        self._squares += runs.squares - squares
        self._freedom += runs.n > 1
        self.tied |= (variant, value) in self._seen
        self._seen.add((variant, value))

    def noise(self) -> tuple[float, int]:
        """Return the variance of one run, pooled over variants, and the degrees of freedom of this variance."""
        return self._squares / self._freedom, self._freedom

    def variance(self, variant: str, prior: int) -> tuple[float, float]:
        """Return the variance of a variant's runs, shrunk towards the pooled variance, and its degrees of freedom."""
        pooled, freedom = self.noise()
        runs, prior = self.runs.get(variant, _Runs(1)), min(prior, freedom)
        return (prior * pooled + runs.squares) / (prior + runs.n - 1), prior + runs.n - 1


@dataclass
class Levels:
    """The levels of successive tests by LORD++ (Ramdas, Yang, Wainwright and Jordan 2017), given earlier rejections."""

    rules: Rules
    tests: int = 0
    total: float = 0.0
    rejected: list[int] = field(default_factory=list)

    @property
    def spent(self) -> float:
        """Bound on the expected share of false claims so far: the sum of all levels divided by the number of claims."""
        return self.total / max(1, len(self.rejected))

    def next(self) -> float:
        """Return the level of the next test."""
        now, rules = self.tests + 1, self.rules
        level = rules.start * self._weight(now)
        for place, at in enumerate(self.rejected):
            level += (rules.alpha - rules.start if place == 0 else rules.alpha) * self._weight(now - at)
        return level

    def spend(self, rejected: bool) -> None:
        """Record a test at the next level."""
        self.total += self.next()
        self.tests += 1
        if rejected:
            self.rejected.append(self.tests)

    def _weight(self, place: int) -> float:
        """Return the weight of the test that comes `place` tests later; the weights of all later tests sum to 1."""
        return place**-self.rules.decay / _zeta(self.rules.decay)


def _zeta(power: float, upto: int = 30) -> float:
    """Return Riemann's zeta function, the sum of `k**-power` over all k from 1 on, by Euler and Maclaurin's formula."""
    head = sum(k**-power for k in range(1, upto))
    return head + upto ** (1 - power) / (power - 1) + upto**-power / 2 + power * upto ** (-power - 1) / 12


class Referee:
    """The state of a campaign: two champions, the noise, and the levels of its tests.

    Attributes:
        verified: the champion whose gain may be claimed.
        provisional: the champion that trials start from.
        anchor: the last champion that is not a simplification. Later simplifications are compared with it, so that many
            small losses do not add up.
        steps: provisional steps since the last verification.
        verifications: all verifications so far.
    """

    def __init__(
        self,
        rules: Rules,
        baseline: str,
        values: Sequence[float],
        *,
        paired: bool = False,
        held_out: Sequence[float] = (),
    ) -> None:
        """Begin with the values of the baseline's runs.

        paired: whether two runs of one seed may have noise in common.
        held_out: values of the baseline's runs with the command of verifications, if it differs from that of trials.
        """
        self.rules, self.paired = rules, paired
        self.verified = self.provisional = self.anchor = baseline
        self.steps = 0
        self.verifications: list[Verification] = []
        self.levels = Levels(rules)
        self.pool = Pool(baseline, values)
        self._verifying = Pool(baseline, held_out) if held_out else self.pool
        self._differences = _Runs()  # squares only: of pairs, about the mean of their verification
        self._seed = max(len(values), len(held_out))

    @property
    def exact(self) -> bool:
        """Whether all runs of each variant have given the same value so far."""
        return self.pool.noise()[0] == 0

    def skip(self, seed: int) -> None:
        """Reserve all seeds below `seed`, so that no later run uses them."""
        self._seed = max(self._seed, seed)

    def trial(self, variant: str, left: float = math.inf) -> Generator[Batch, Values, Decision]:
        """Yield the runs of a trial of `variant`, and return its decision; `left` runs are left in the budget."""
        [value] = yield self._batch("screen", [variant])
        decision = self._undecided(value)
        if value is None or self._falls_short(value, self.rules.screen):
            return decision
        values = yield self._batch("again", [variant] * self.rules.again)
        known = [each for each in values if each is not None]
        if len(known) < len(values):
            return replace(decision, word="crash")
        decision = replace(decision, again=fmean(known))
        if not self.exact and not self.pool.tied and len({value, *known}) == 1:
            return replace(decision, word="constant")
        if self._falls_short(fmean(known), self.rules.keep):
            return decision
        self._step(variant, known)
        verification = yield from self.verify(self._due(left - 1 - self.rules.again))
        word = "back" if self.provisional != variant else "verified" if self.verified == variant else "step"
        return replace(decision, word=word, verification=verification)

    def simplification(self, variant: str, margin: float, left: float = math.inf) -> Generator[Batch, Values, Decision]:
        """Yield the runs of a simplification, which must equal `anchor` within `margin`; return the decision."""
        pairs = 0 if self.exact else self.pairs_for(margin, tests=2)
        if 1 + 2 * pairs > min(left, MOST_RUNS):
            return replace(self._undecided(None), word="costly", cost=1 + 2 * pairs)
        [value] = yield self._batch("screen", [variant])
        decision = self._undecided(value)
        if value is None or abs(value - decision.against) > max(margin, decision.error):
            return decision
        if self.exact:
            self._step(variant, [value], simplified=True)
            return replace(decision, word="step")
        known: list[float] = []
        if self._verifying is not self.pool:  # a champion has fresh runs by the loop's own command
            values = yield self._batch("again", [variant] * self.rules.again)
            known = [each for each in values if each is not None]
            if len(known) < len(values):
                return replace(decision, word="crash")
        tested = yield from self._verify(self.anchor, variant, pairs, margin)
        if tested.shown:
            self._step(variant, known, simplified=True)
        return replace(decision, word="verified" if tested.shown else "reset", verification=tested)

    def _undecided(self, value: float | None) -> Decision:
        champion = self.pool.runs[self.provisional]
        error = self._sd() * math.sqrt(1 + 1 / champion.n)
        return Decision("crash" if value is None else "reset", value, champion.mean, error)

    def _falls_short(self, value: float, threshold: float) -> bool:
        """Return whether a value is less than `threshold` standard deviations above the champion's mean.

        Without noise, return whether the value is not above the champion's mean.
        """
        above = value - self.pool.runs[self.provisional].mean
        return above <= 0 if self.exact else above < threshold * self._sd()

    def _sd(self) -> float:
        """Return the standard deviation of the champion's runs, mostly from these runs themselves."""
        return math.sqrt(self.pool.variance(self.provisional, self.rules.near)[0])

    def _step(self, variant: str, values: Sequence[float], *, simplified: bool = False) -> None:
        for value in values:
            self.pool.add(variant, value)
        if simplified:  # what was claimed of the champion is claimed of its simplification, up to the margin
            self.verified = variant if self.verified == self.provisional else self.verified
        else:
            self.anchor, self.steps = variant, self.steps + 1
        self.provisional = variant

    def pairs_for(self, gain: float, tests: int = 1) -> int:
        """Return the number of pairs of runs with which all of `tests` tests detect a gain with the policy's power."""
        sides = [self._verifying.variance(each, self.rules.prior) for each in (self.verified, self.provisional)]
        freedom = max(2, int(sum(nu for _, nu in sides)))
        z = t_quantile(self.levels.next(), freedom) + _NORMAL.inv_cdf(1 - (1 - self.rules.power) / tests)
        return max(self.rules.least, math.ceil(sum(variance for variance, _ in sides) * (z / gain) ** 2))

    def _due(self, left: float) -> int:
        """Return the number of pairs of runs in the verification that is due; 0 if no verification is due."""
        rules, gain = self.rules, self.ahead()
        if self.exact or left < 2 * rules.least:
            return 0
        pairs = self.pairs_for(gain) if gain > 0 else rules.least
        if pairs > rules.most and self.steps < rules.patience and not rules.confirm:
            return 0
        return int(min(pairs, rules.most, left / 2))

    def ahead(self) -> float:
        """Return the provisional champion's lead over the verified one: the difference of the means of fresh runs."""
        return self.pool.runs[self.provisional].mean - self.pool.runs[self.verified].mean

    def closing(self, left: float) -> int:
        """Return the number of pairs of a last verification; 0 if none is needed or a trial fits in before it."""
        rules = self.rules
        if self.exact or self.provisional == self.verified or left > 2 * rules.most + rules.again + 1:
            return 0
        pairs = int(min(rules.most, left / 2))
        return pairs if pairs >= 2 else 0

    def verify(self, pairs: int) -> Generator[Batch, Values, Verification | None]:
        """Yield runs that test the provisional champion against the verified one, and return the verification.

        Without noise, or with 0 pairs, return None.

        If no gain is shown, the loop goes on from the provisional champion if it is better on average and `confirm` is
        false; otherwise it goes back to the verified champion.
        """
        if not pairs or self.exact or self.provisional == self.verified:
            return None
        done = yield from self._verify(self.verified, self.provisional, pairs, None)
        self.steps = 0
        if done.shown:
            self.verified = self.provisional
        elif done.gain <= 0 or self.rules.confirm:
            self.provisional = self.anchor = self.verified
        return done

    def _verify(self, old: str, new: str, pairs: int, margin: float | None) -> Generator[Batch, Values, Verification]:
        order = [(old, new) if pair % 2 == 0 else (new, old) for pair in range(pairs)]  # so that a drift cancels
        values = yield self._batch("verify", [variant for pair in order for variant in pair], pairs=True)
        differences = _Runs()
        for (first, _), one, two in zip(order, values[::2], values[1::2], strict=True):
            before, after = (one, two) if first == old else (two, one)
            for variant, value in ((old, before), (new, after)):
                if value is not None:
                    self._verifying.add(variant, value)
            if before is not None and after is not None:
                differences.add(after - before)
        if differences.n > 1:
            self._differences.squares += differences.squares
            self._differences.n += differences.n - 1
        level = self.levels.next()
        error, freedom, p = math.inf, 1, 1.0
        if 1 < differences.n == pairs:  # a crash may depend on the value that the run would have had
            error, freedom = self._error(old, new, differences)
            gain = differences.mean
            over = (gain,) if margin is None else (margin + gain, margin - gain)  # two one-sided tests
            p = max(t_tail(each / error, freedom) if error else float(each <= 0) for each in over)
        done = Verification(old, new, differences.n, differences.mean, error, freedom, level, p, margin)
        self.verifications.append(done)
        self.levels.spend(done.shown)
        return done

    def _error(self, old: str, new: str, differences: _Runs) -> tuple[float, int]:
        """Return the standard error of the mean of the differences, and the degrees of freedom of this error.

        If seeds are paired and enough pairs were run, it comes from the differences of pairs; otherwise from the
        variances of both variants, as if their runs were independent. Variances are shrunk towards the pooled ones.
        """
        n, pooled, rules = differences.n, self._differences, self.rules
        if self.paired and pooled.n >= rules.pooled:
            prior = min(rules.prior, pooled.n)
            variance = prior * pooled.squares / pooled.n + differences.squares
            return math.sqrt(variance / (prior + n - 1) / n), prior + n - 1
        sides = [self._verifying.variance(old, rules.prior), self._verifying.variance(new, rules.prior)]
        variance = sum(each for each, _ in sides)
        freedom = variance**2 / sum(each**2 / nu for each, nu in sides) if variance else 1  # Satterthwaite
        return math.sqrt(variance / n), max(1, int(freedom))

    def _batch(self, purpose: str, variants: Sequence[str], *, pairs: bool = False) -> Batch:
        """Return a batch of runs with unused seeds; the two runs of a pair share a seed."""
        width = 2 if pairs else 1
        runs = tuple((variant, self._seed + place // width) for place, variant in enumerate(variants))
        self._seed += len(variants) // width
        return Batch(purpose, runs)

"""Turns judged worlds into error bounds, and bounds into the certificate of each verdict: docs/certificate.md."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import isnan
from typing import Literal

import numpy as np
from scipy import special

from ablation.config.names import Strict
from ablation.config.study_schema import Analysis
from ablation.judge.certificate.worlds import NOISY
from ablation.judge.edges import DECIDED

Status = Literal["calibrated", "uncalibrated", "uncertified"]


class Evidence(Strict):
    """How often one word was wrong in worlds of one form."""

    word: str  # better or worse, equivalent, or interval
    form: str
    promise: float  # the rate that the word must not exceed
    trials: int  # worlds for better or worse, edges for the others
    rate: float
    lower: float  # one-sided bound, at a confidence corrected for all bounds
    upper: float  # one-sided, at 95%


class Power(Strict):
    """How often a word was given where it was true."""

    word: str
    effect: float
    right: int
    trials: int


class WordRecord(Strict):
    """The certificate of one verdict."""

    word: str
    status: Status
    why: str


class StudyCertificate(Strict):
    """The certificate of one study."""

    study: str
    digest: str  # of what was read, and of the code that judged it
    seeds: int  # most seeds of a variant
    variants: int
    lineages: int  # judged of each form that carries noise
    words: list[WordRecord]
    evidence: list[Evidence]
    power: list[Power]

    @property
    def said(self) -> str:
        """The study's certificate in a few words."""
        wrong = [record.word for record in self.words if record.status == "uncalibrated"]
        known = f"calibrated on this study's residuals ({self.lineages} lineages)"
        return f"uncalibrated: {', '.join(wrong)}" if wrong else known if self.evidence else "uncertified"


class Certificates(Strict):
    """All studies of a database."""

    studies: list[StudyCertificate]

    def of(self, study: str) -> StudyCertificate | None:
        """A study's certificate."""
        return next((found for found in self.studies if found.study == study), None)


CONFIDENCE = 0.95  # of an upper bound, and of all lower bounds of a study together
DIRECTION = "better or worse"  # the two words have one promise
_EPSILON = 1e-9


@dataclass(frozen=True)
class Judged:
    """One edge of a world: its true effect, the word that it got, and its interval."""

    truth: float  # NaN where it is not known
    word: str
    low: float
    high: float


@dataclass(frozen=True)
class Trial:
    """One judged world."""

    form: str
    edges: tuple[Judged, ...]

    def direction(self, *, per_word: bool) -> float:
        """The share of wrong ones among words better and worse; unless `per_word`, 1 where there is any."""
        said = [edge for edge in self.edges if edge.word in ("better", "worse") and not isnan(edge.truth)]
        wrong = sum(edge.truth * (1 if edge.word == "better" else -1) <= _EPSILON for edge in said)
        return wrong / len(said) if wrong and per_word else float(wrong > 0)

    def equivalent(self, margin: float) -> list[bool]:
        """Whether each edge whose true effect reaches the margin was called equivalent."""
        return [edge.word == "equivalent" for edge in self.edges if abs(edge.truth) >= margin * (1 - 1e-6)]

    def interval(self) -> list[bool]:
        """Whether the interval of each edge misses its true effect."""
        known = [edge for edge in self.edges if not isnan(edge.truth + edge.low + edge.high)]
        return [not edge.low - _EPSILON <= edge.truth <= edge.high + _EPSILON for edge in known]


def tally(trials: Sequence[Trial], analysis: Analysis) -> list[Evidence]:
    """How often words were wrong, and intervals missed, by form."""
    per_word = analysis.error == "per_word"
    found: list[tuple[str, str, list[Sequence[float]]]] = []
    for form in dict.fromkeys(trial.form for trial in trials):
        of = [trial for trial in trials if trial.form == form]
        groups: dict[str, list[Sequence[float]]] = {}
        if form not in ("seeds", "rare"):
            groups[DIRECTION] = [[trial.direction(per_word=per_word)] for trial in of]
        groups["equivalent"] = [trial.equivalent(analysis.margin) for trial in of]
        if form in ("signs", "planted"):
            groups["interval"] = [trial.interval() for trial in of]
        for word, every in groups.items():
            if kept := [group for group in every if group]:
                found.append((word, form, kept))
    return [_evidence(word, form, analysis.alpha, groups, len(found)) for word, form, groups in found]


def _evidence(word: str, form: str, promise: float, groups: Sequence[Sequence[float]], kinds: int) -> Evidence:
    trials = sum(map(len, groups))
    rate = sum(map(sum, groups)) / trials
    confidence = 1 - (1 - CONFIDENCE) / kinds
    below, above = effective_trials(groups, confidence), effective_trials(groups, CONFIDENCE)
    return Evidence(
        word=word,
        form=form,
        promise=promise,
        trials=trials,
        rate=rate,
        lower=lower_bound(rate * below, below, confidence),
        upper=upper_bound(rate * above, above, CONFIDENCE),
    )


def lower_bound(wrong: float, trials: float, confidence: float) -> float:
    """The one-sided Clopper-Pearson lower bound of a rate; `wrong` and `trials` need not be whole.

    Numbers that are not whole come from an effective number of trials: Korn and Graubard (1998, Survey Methodology 24,
    193-201) put it, and the rate times it, into the bound of Clopper and Pearson (1934, Biometrika 26, 404-413).
    """
    return 0.0 if wrong <= 0 else float(special.betaincinv(wrong, trials - wrong + 1, 1 - confidence))


def upper_bound(wrong: float, trials: float, confidence: float) -> float:
    """The one-sided upper bound, likewise."""
    return 1.0 if wrong >= trials else float(special.betaincinv(wrong + 1, trials - wrong, confidence))


def effective_trials(groups: Sequence[Sequence[float]], confidence: float) -> float:
    """The effective number of independent trials after Korn and Graubard, for a one-sided bound.

    The design effect is estimated from the groups, and so has only their degrees of freedom: hence the squared ratio of
    the two quantiles of Student's t. Without variation between groups there is neither estimate nor ratio.
    """
    trials = sum(map(len, groups))
    if len(groups) < 2 or len({value for group in groups for value in group}) < 2:
        return float(trials)
    ratio = special.stdtrit(trials - 1, confidence) / special.stdtrit(len(groups) - 1, confidence)
    return float(trials / design_effect(groups) * ratio**2)


def design_effect(groups: Sequence[Sequence[float]]) -> float:
    """The design effect of trials in groups, relative to independent trials; at least 1.

    The variance of the rate between groups, over the variance for independent trials. It is 1 if all trials are right,
    or all wrong.
    """
    size = np.array([len(group) for group in groups], dtype=float)
    rate = np.array([np.mean(group) for group in groups])
    mean, count = float((size * rate).sum() / size.sum()), len(groups)
    if count < 2 or size.max() <= 1 or mean in (0.0, 1.0):
        return 1.0
    between = float(((size * (rate - mean)) ** 2).sum()) * count / (count - 1) / float(size.sum()) ** 2
    return max(1.0, between * float(size.sum()) / (mean * (1 - mean)))


def power(trials: Sequence[Trial], margin: float, mde: float) -> list[Power]:
    """How often words were given where they were true: effects as large as `mde`, and none."""
    found = []
    for word, form, effect in (("better", "planted", mde), ("worse", "planted", -mde), ("equivalent", "signs", 0.0)):
        edges = [edge for trial in trials if trial.form == form for edge in trial.edges]
        of = [edge.word == word for edge in edges if abs(edge.truth - effect) <= 1e-6 * margin]
        if of:
            found.append(Power(word=word, effect=abs(effect), right=sum(of), trials=len(of)))
    return found


def verdicts(evidence: Sequence[Evidence], lineages: int) -> list[WordRecord]:
    """What is certified of each word, where there were residuals to draw from."""
    return [_verdict(word, evidence, lineages) for word in DECIDED]


def _verdict(word: str, evidence: Sequence[Evidence], lineages: int) -> WordRecord:
    own = "equivalent" if word == "equivalent" else DIRECTION
    known = [found for found in evidence if found.word in (own, "interval")]
    broken = [found for found in known if found.lower > found.promise]
    if broken:
        worst = max(broken, key=lambda found: found.lower - found.promise)
        what = "intervals missed" if worst.word == "interval" else f"{worst.word} was wrong"
        rate = f"{worst.rate:.0%} of {worst.trials} {describe(worst)} (at least {worst.lower:.1%}"
        return WordRecord(
            word=word, status="uncalibrated", why=f"{what} in {rate}; promised: at most {100 * worst.promise:.3g}%)"
        )
    noisy = [found for found in known if found.word == own and found.form in NOISY]
    most = max(noisy, key=lambda found: found.upper, default=None)
    why = f"on this study's residuals ({lineages} lineages)"
    why += f": wrong in {most.rate:.1%} of {describe(most)} (at most {most.upper:.1%})" if most else ""
    return WordRecord(word=word, status="calibrated", why=why)


_FORMS: Mapping[str, str] = {
    "signs": "without effect, the residuals of each run with a random sign",
    "planted": "with planted effects",
    "across": "across the target, without effect",
    "seeds": "whose change acts in some seeds only",
    "rare": "whose change is of few items",
    "unpaired": "whose runs cannot be paired",
}


def describe(found: Evidence) -> str:
    """What was judged, in words."""
    return f"{'lineages' if found.word == DIRECTION else 'edges'} {_FORMS[found.form]}"

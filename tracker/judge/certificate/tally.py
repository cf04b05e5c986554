"""From trials to bounds, and from bounds to what is certified of each word. See docs/certificate.md."""

from collections import defaultdict
from collections.abc import Iterable, Sequence

from tracker.config.study_schema import Analysis
from tracker.judge.certificate.bounds import CONFIDENCE, ENOUGH, design_effect, lower_bound, upper_bound
from tracker.judge.certificate.pseudo import DECIDED
from tracker.judge.certificate.record import SEALED, SPLITS, Evidence, Power, Sealing, WordRecord
from tracker.judge.certificate.trials import Trial

WITH_NOISE = ("items", "clusters")  # forms whose power is that of the study: they carry its noise


def promise(word: str, analysis: Analysis) -> float:
    """Return the rate at which a word may be wrong: per study for better and worse, per edge for equivalent."""
    return analysis.alpha / 2 if word == "equivalent" else analysis.alpha


def tally(trials: Sequence[Trial], analysis: Analysis, splits: float) -> list[Evidence]:
    """Return how often each word was wrong, by kind of trial. `splits`: independent trials that all splits are worth."""
    kinds = sorted({trial.form for trial in trials}, key=lambda kind: (kind != SPLITS, kind))
    found = []
    for word in DECIDED:
        for kind in kinds:
            groups = _groups(word, (trial for trial in trials if trial.form == kind))
            if groups:
                found.append(_evidence(word, kind, groups, analysis, splits, len(kinds)))
    return found


def _groups(word: str, trials: Iterable[Trial]) -> dict[str, list[bool]]:
    """Return {unit: whether each of its trials was wrong}: whole studies for better and worse, else edges."""
    groups: dict[str, list[bool]] = defaultdict(list)
    for trial in trials:
        if wrong := trial.wrong(word):
            groups[trial.unit] += wrong if word == "equivalent" else [any(wrong)]
    return groups


def _evidence(
    word: str, kind: str, groups: dict[str, list[bool]], analysis: Analysis, splits: float, kinds: int
) -> Evidence:
    counts = [len(wrong) for wrong in groups.values()]
    rates = [sum(wrong) / len(wrong) for wrong in groups.values()]
    trials = sum(counts)
    if kind == SPLITS:
        # However many trials were made of a unit's few seeds, it is one.
        rate, effective = sum(rates) / len(rates), min(splits, float(trials))
    else:
        rate = sum(map(sum, groups.values())) / trials
        effective = trials / design_effect(rates, counts)
    promised = promise(word, analysis)
    return evidence(word, kind, promised, trials, effective, rate, kinds)


def evidence(
    word: str, kind: str, promised: float, trials: int, effective: float, rate: float, kinds: int
) -> Evidence:
    """Return the bounds of a rate; the lower one allows for the number of kinds that are looked at."""
    wrong = rate * effective
    return Evidence(
        word=word,
        kind=kind,
        promise=promised,
        trials=trials,
        effective=effective,
        rate=rate,
        lower=lower_bound(wrong, effective, 1 - (1 - CONFIDENCE) / kinds),
        upper=upper_bound(wrong, effective),
    )


def power(trials: Sequence[Trial]) -> list[Power]:
    """Return how often words were given where they were true, in planted effects with the study's own noise."""
    found = []
    for word, level in (("better", "mde"), ("worse", "mde"), ("equivalent", "zero")):
        of = [trial for trial in trials if trial.form in WITH_NOISE and trial.level == level]
        right = [said for trial in of for said in trial.right(word)]
        if right:
            effect = max((abs(truth) for trial in of for truth, _ in trial.edges if truth is not None), default=0.0)
            effect = effect if level != "zero" else 0.0
            found.append(Power(word=word, level=level, effect=effect, right=sum(right), trials=len(right)))
    return found


def verdicts(evidence: Sequence[Evidence], splits: float, needed: str) -> list[WordRecord]:
    """Return what is certified of each word."""
    return [_verdict(word, [e for e in evidence if e.word in (word, "interval")], splits, needed) for word in DECIDED]


def _verdict(word: str, evidence: Sequence[Evidence], splits: float, needed: str) -> WordRecord:
    broken = [e for e in evidence if e.lower > e.promise]
    if broken:
        worst = max(broken, key=lambda e: e.lower - e.promise)
        what = "its intervals missed" if worst.kind == SEALED else f"`{word}` was wrong"
        why = f"{what} in {worst.rate:.0%} of {worst.trials} {describe(worst.kind)} (at least {worst.lower:.1%}; "
        return WordRecord(word=word, status="uncalibrated", why=f"{why}promised: at most {worst.promise:.2g})")
    own = next((e for e in evidence if e.kind == SPLITS), None)
    if own is None or splits < ENOUGH:
        return WordRecord(word=word, status="uncertified", why=needed or "no split could be judged")
    planted = [e for e in evidence if e.kind not in (SPLITS, SEALED)]
    why = f"wrong in {own.rate:.1%} of splits without effect" if word != "equivalent" else ""
    why = why or f"wrong in {own.rate:.1%} of splits with an effect as large as the margin"
    why += f" (at most {own.upper:.0%}, worth {own.effective:.0f} independent trials)"
    if planted:
        most = max(planted, key=lambda e: e.upper)
        why += f"; in planted effects at most {most.upper:.0%} ({describe(most.kind)})"
    return WordRecord(word=word, status="calibrated", why=why)


def describe(kind: str) -> str:
    """Return a kind of trial in words."""
    return {
        SPLITS: "splits of a variant's seeds",
        SEALED: "sealed edges",
        "items": "planted effects on single items",
        "clusters": "planted effects on whole clusters",
        "seeds": "planted effects in some seeds only",
        "rare": "planted effects on few items",
        "across": "planted effects across the target",
    }.get(kind, kind)


def sealed_evidence(sealed: Sealing, analysis: Analysis, kinds: int) -> Evidence:
    """Return how often a predicted interval missed."""
    rate = 1 - sealed.inside / sealed.edges
    return evidence("interval", SEALED, analysis.alpha, sealed.edges, sealed.effective, rate, kinds)

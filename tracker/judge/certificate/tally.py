"""From trials to bounds, and from bounds to what is certified of each word. See docs/certificate.md."""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence

from tracker.config.study_schema import Analysis
from tracker.judge.certificate.bounds import CONFIDENCE, ENOUGH, design_effect, lower_bound, upper_bound
from tracker.judge.certificate.record import SEALED, SMALL, SPLITS, Evidence, Power, Sealing, WordRecord
from tracker.judge.certificate.splits import telling_arm
from tracker.judge.certificate.trials import Trial
from tracker.judge.scope import DECIDED

Groups = dict[str, list[bool]]  # unit: whether each of its trials was wrong
DIRECTION = "better or worse"  # the two words have one promise: any false one in a study
SOME_SEEDS = "seeds"  # the form of changes that act in some seeds only
WITH_NOISE = "items"  # the form whose power is the study's: it carries its noise and nothing else
PLANTED = "planted"  # all forms without effect together
TURNED = "turned"  # all forms with one, called the other way round


def promise(word: str, kind: str, analysis: Analysis) -> float:
    """Return the rate at which a word may be wrong: per study for better or worse, per edge for equivalent.

    That no more seeds behave otherwise than *equivalent* leaves open is promised at alpha, not at half of it.
    """
    return analysis.alpha / 2 if word == "equivalent" and kind != SOME_SEEDS else analysis.alpha


def tally(
    trials: Sequence[Trial], analysis: Analysis, splits: float, arm: int, *, sealed: bool = False
) -> list[Evidence]:
    """Return how often words were wrong, by kind of trial.

    `splits`: independent trials that all splits are worth; `arm`: seeds of their arms; `sealed`: whether sealed edges
    are one more kind, by which every word is judged too.
    """
    groups: dict[tuple[str, str], Groups] = {}
    for trial in trials:
        direction = trial.false_direction()
        for word, kind, wrong in [
            *((DIRECTION, kind, [direction]) for kind in _kinds(trial) if direction is not None),
            ("equivalent", trial.form, trial.falsely_equivalent()),
        ]:
            if wrong:
                small = kind == SPLITS and arm < telling_arm(word, analysis)
                groups.setdefault((word, SMALL if small else kind), defaultdict(list))[trial.unit] += wrong
    kinds = Counter(word for word, _ in groups)
    kinds.update(dict.fromkeys(kinds, int(sealed)))
    first, last = (SPLITS, SMALL), (PLANTED, TURNED)
    order = sorted(groups, key=lambda found: (found[0], found[1] not in first, found[1] in last, found[1]))
    return [
        _evidence(
            word, kind, groups[word, kind], promised=promise(word, kind, analysis), splits=splits, kinds=kinds[word]
        )
        for word, kind in order
    ]


def _kinds(trial: Trial) -> list[str]:
    """Return the kinds of trial of a false direction that this one is."""
    if trial.form == SPLITS:
        return [SPLITS] if trial.level == "zero" else []
    return [trial.form, PLANTED] if trial.level == "zero" else [TURNED]


def _evidence(word: str, kind: str, groups: Groups, *, promised: float, splits: float, kinds: int) -> Evidence:
    counts = [len(wrong) for wrong in groups.values()]
    rates = [sum(wrong) / len(wrong) for wrong in groups.values()]
    trials = sum(counts)
    if kind in (SPLITS, SMALL):
        # However many trials were made of a unit's few seeds, it is one.
        rate, effective = sum(rates) / len(rates), min(splits, float(trials))
    else:
        rate = sum(map(sum, groups.values())) / trials
        effective = trials / design_effect(rates, counts)
    return evidence(word, kind, promised, trials=trials, effective=effective, rate=rate, kinds=kinds)


def evidence(
    word: str, kind: str, promised: float, *, trials: int, effective: float, rate: float, kinds: int
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
        of = [trial for trial in trials if trial.form == WITH_NOISE and trial.level == level]
        right = [said for trial in of for said in trial.right(word)]
        if right:
            effect = max((abs(truth) for trial in of for truth, _ in trial.edges if truth is not None), default=0.0)
            effect = effect if level != "zero" else 0.0
            found.append(Power(word=word, level=level, effect=effect, right=sum(right), trials=len(right)))
    return found


def verdicts(evidence: Sequence[Evidence], needed: Mapping[str, str]) -> list[WordRecord]:
    """Return what is certified of each word. `needed`: by word, what would give splits enough."""
    found = []
    for word in DECIDED:
        named = ("interval", "equivalent" if word == "equivalent" else DIRECTION)
        found.append(_verdict(word, [e for e in evidence if e.word in named], needed[word]))
    return found


def _verdict(word: str, evidence: Sequence[Evidence], needed: str) -> WordRecord:
    broken = [e for e in evidence if e.lower > e.promise]
    if broken:
        worst = max(broken, key=lambda e: e.lower - e.promise)
        what = "intervals missed" if worst.kind == SEALED else f"{worst.word} was wrong"
        why = f"{what} in {worst.rate:.0%} of {worst.trials} {describe(worst.kind)} (at least {worst.lower:.1%}; "
        return WordRecord(word=word, status="uncalibrated", why=f"{why}promised: at most {100 * worst.promise:.3g}%)")
    own = next((e for e in evidence if e.kind == SPLITS), None)
    if own is None or own.effective < ENOUGH:
        return WordRecord(word=word, status="uncertified", why=needed or "no split could be judged")
    planted = [e for e in evidence if e.kind not in (SPLITS, SMALL, SEALED)]
    effect = "with an effect as large as the margin" if word == "equivalent" else "without effect"
    why = f"wrong in {own.rate:.1%} of splits {effect}"
    why += f" (at most {own.upper:.0%}, worth {own.effective:.0f} independent trials)"
    if planted:
        most = max(planted, key=lambda e: e.upper)
        why += f"; in planted effects at most {most.upper:.0%} ({describe(most.kind)})"
    return WordRecord(word=word, status="calibrated", why=why)


def describe(kind: str) -> str:
    """Return a kind of trial in words."""
    return {
        SPLITS: "splits of a variant's seeds",
        SMALL: "splits into arms too small for the word",
        SEALED: "sealed edges",
        "items": "planted effects on single items",
        "clusters": "planted effects on whole clusters",
        "seeds": "planted effects in some seeds only",
        "rare": "planted effects on few items",
        "across": "planted effects across the target",
        PLANTED: "planted lineages without effect, of all forms",
        TURNED: "planted lineages with an effect, of all forms",
    }.get(kind, kind)


def sealed_evidence(sealed: Sealing, analysis: Analysis, kinds: int) -> Evidence:
    """Return how often a predicted interval missed."""
    rate = 1 - sealed.inside / sealed.edges
    return evidence(
        "interval",
        SEALED,
        analysis.alpha,
        trials=sealed.edges,
        effective=sealed.effective,
        rate=rate,
        kinds=kinds,
    )

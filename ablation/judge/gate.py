"""Decides whether a change may merge: each comparison has to meet a requirement and the study's guardrails.

`better` and `equivalent` are the study's verdicts. `not-worse` is a one-sided test (non-inferiority) of an effect of at
most -margin, with the noise, interim analyses and correction of the verdicts. A guardrail is a metric that must not get
worse, by the same test; several guardrails share the study's alpha (docs/how-to/gate.md).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ablation.config.study_schema import Analysis, Guardrail
from ablation.config.variant_tree import ancestors
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import p_equals, stated
from ablation.judge.comparisons import Comparison, judge_comparisons, too_few
from ablation.judge.correct import CORRECTIONS, Correction
from ablation.judge.judged import NOT_COMPARED
from ablation.judge.measurements import Measurements
from ablation.judge.scales import margin_is_the_scale, unlike_units
from ablation.judge.significance import enough_seeds_for_equivalence, sequential_p
from ablation.judge.stored import read_measurements
from ablation.store.database import Store

# {outcome: exit status}, the most severe outcome first; errors have the statuses 1 and 2.
STATUS = {"worse": 10, "invalid": 12, "unmet": 13, "undecided": 11, "passed": 0}
_NAN = float("nan")


@dataclass(frozen=True)
class Answer:
    """The answer of the gate for one comparison, which passes only if the outcome is `passed`."""

    comparison: Comparison
    outcome: str  # one of STATUS
    why: str
    p_not_worse: float = _NAN  # one-sided, corrected for the study's comparisons


def most_severe(results: Sequence[Answer]) -> str:
    """Return the most severe outcome of all answers."""
    return next(outcome for outcome in STATUS if any(answer.outcome == outcome for answer in results))


def chosen(comparisons: Sequence[Comparison], names: Sequence[str]) -> list[Comparison]:
    """Return the comparisons with these names (CHILD or PARENT:CHILD); without names, return all comparisons.

    Raises:
        ConfigError: no comparison has such a name, or several have.
    """
    for name in names:
        found = [comparison for comparison in comparisons if name in _names(comparison)]
        if len(found) != 1:
            choices = ", ".join(f"{comparison.parent}:{comparison.child}" for comparison in found or comparisons)
            problem = "is the child in several comparisons" if found else "is not a comparison of the study"
            raise ConfigError("gate", "COMPARISON", name, problem, f"choose from {choices}")
    return [comparison for comparison in comparisons if not names or _names(comparison) & {*names}]


def _names(comparison: Comparison) -> set[str]:
    return {comparison.child, f"{comparison.parent}:{comparison.child}"}


def compared_with(ancestor: str, study: Measurements) -> Measurements:
    """Return the study with `ancestor` as the baseline of each of its descendants.

    Raises:
        ConfigError: the variant does not exist, or it has no descendants.
    """
    pairs = [(name, ancestor) for name in study.parents if ancestor in ancestors(name, study.parents)]
    if not pairs:
        problem = "has no descendants" if ancestor in study.parents else f"is not a variant of {study.name}"
        above = dict.fromkeys(parent for parent in study.parents.values() if parent)
        raise ConfigError("gate", "--since", ancestor, problem, f"choose from {', '.join(above)}")
    return replace(study, analysis=study.analysis.model_copy(update={"comparisons": pairs}))


def answers(
    study: Measurements, comparisons: Sequence[Comparison], required: str, asked: Sequence[Comparison]
) -> list[Answer]:
    """Return an answer for each comparison in `asked`; `comparisons` are all comparisons that the study judges."""
    # Without a margin there is no bound to test, so only the verdicts answer.
    testable = required in ("not-worse", "better") and study.analysis.margin is not None
    tests, correction = not_worse(study, comparisons) if testable else ({}, "")
    return [
        _answer(study.analysis, comparison, required, tests.get(comparison.pair), correction) for comparison in asked
    ]


def check_margins(comparisons: Sequence[Comparison], guarded: Mapping["Pair", Sequence["Guarded"]]) -> None:
    """Raise ConfigError if a margin of the study or of a guardrail is not stated, or lets everything pass."""
    for comparison in comparisons:
        rails = [rail.comparison for rail in guarded.get(comparison.pair, ())]
        for each in (comparison, *rails):
            margin = each.measurements.analysis.margin
            why = "is not stated" if margin is None else margin_is_the_scale(each.measurements, each.parent)
            if why:
                remedy = (
                    f"state the smallest difference of {each.measurements.analysis.named} that matters, in its units"
                )
                raise ConfigError(each.measurements.name, "analysis.margin", margin, why, remedy)


@dataclass(frozen=True)
class NotWorse:
    """The non-inferiority test of a comparison: its corrected p over interim analyses, and the deciding seeds."""

    p: float
    seeds: int


def not_worse(study: Measurements, comparisons: Sequence[Comparison]) -> tuple[dict[tuple[str, str], NotWorse], str]:
    """Return the non-inferiority test of each comparison that has a p, and the correction in words."""
    analysis, p, seeds = study.analysis, [], []
    tested = sorted((each for each in comparisons if not np.isnan(each.p)), key=lambda each: each.pair)
    for comparison in tested:
        # An interim analysis at too few seeds decides nothing, as with `equivalent`; if all are, the last one says so.
        known = [interim for interim in comparison.interims if not np.isnan(interim.p)]
        usable = [interim for interim in known if enough_seeds_for_equivalence(interim.seeds, analysis)]
        interims = usable or known[-1:]
        by_interim = {interim.seeds: interim.estimate.p_not_worse(analysis.margin) for interim in interims}
        weights = {interim.seeds: interim.weight for interim in interims}
        p.append(sequential_p(by_interim, weights))
        # The interim analysis with the smallest p for its share of alpha decides.
        seeds.append(min(by_interim, key=lambda count: by_interim[count] / weights[count]))
    correction = Correction(study, tested, p, sides=1)
    adjusted = zip(correction.adjusted.items(), seeds, strict=True)
    return {pair: NotWorse(value, count) for (pair, value), count in adjusted}, CORRECTIONS[correction.name]


def _answer(
    analysis: Analysis, comparison: Comparison, required: str, test: NotWorse | None, correction: str
) -> Answer:
    verdict = comparison.detail
    if why := _why_invalid(comparison):
        return Answer(comparison, "invalid", why)

    # The study's verdict answers if it is worse, or says as much as is required. But a gate fully allows for large
    # losses on unseen items, while the verdict `better` may allow for a share of them.
    enough = verdict == required or (verdict == "better" and required == "not-worse")
    allowed_for = comparison.unseen_in_full or test is None or test.p <= analysis.alpha
    if verdict == "worse" or (enough and (verdict != "better" or allowed_for)):
        return _unless_other_units(Answer(comparison, "worse" if verdict == "worse" else "passed", comparison.why))
    if test is None or (required == "better" and not enough):
        return Answer(comparison, "undecided" if verdict == "undecided" else "unmet", comparison.why)

    # Otherwise the one-sided test answers, which is weaker than `equivalent`: it does not bound an improvement.
    bound = f"above -{stated(analysis.margin)} (one-sided {p_equals(test.p)}{correction})"
    if test.p > analysis.alpha:
        but = (
            "the verdict is `better`, but items outside the sample may lose much; with an allowance for such items, "
            if enough
            else ""
        )
        return Answer(comparison, "undecided", f"{but}the effect is not significantly {bound}", test.p)
    if not enough_seeds_for_equivalence(test.seeds, analysis):
        return Answer(comparison, "undecided", f"the effect is {bound}, but {too_few(test.seeds, analysis)}", test.p)
    scope = "; this result holds only for these runs" if analysis.claim == "checkpoints" else ""
    return _unless_other_units(Answer(comparison, "passed", f"the effect is {bound}{scope}", test.p))


def _unless_other_units(answer: Answer) -> Answer:
    """Return the answer, or an invalid answer if the comparison passed but the runs seem to be on different scales."""
    comparison = answer.comparison
    why = unlike_units(comparison.measurements, comparison.compared_runs) if answer.outcome == "passed" else ""
    remedy = "convert all values to one unit, leave out some runs, or pass --allow scale"
    return Answer(comparison, "invalid", f"{why}; {remedy}") if why else answer


def _why_invalid(comparison: Comparison) -> str:
    """Return the reason why the runs of a comparison do not allow an answer; empty if they allow one."""
    if comparison.detail in NOT_COMPARED:
        return f"{comparison.detail}: {comparison.why}"
    if runs := comparison.missing:
        why = ", ".join(f"{variant} has no seed {seed}" for variant, seed in runs)
        allowed = " ".join(f"{variant}:{seed}" for variant, seed in runs)
        return f"{why}, and a missing run may have failed; add what is missing, or pass --without {allowed}"
    if comparison.identical:
        why = "all values of both variants are identical, so one may be a copy of the other"
        return f"{why}; correct the files, or pass --allow identical if the change is meant to have no effect"
    return ""


RAIL_COLUMNS = ["study", "parent", "child", "metric", "verdict", "effect", "low", "high", "joint_low", "joint_high"]
RAIL_COLUMNS += ["margin", "p_not_worse", "why"]


@dataclass(frozen=True)
class Guarded:
    """The answer of one guardrail for one comparison; `comparison` compares the guardrail's metric."""

    metric: str
    verdict: str  # holds, worse, undecided, invalid or not run
    comparison: Comparison
    margin: float | None
    p_not_worse: float = _NAN  # one-sided, corrected for the study's comparisons

    @property
    def row(self) -> dict[str, object]:
        """The guardrail's row, with the columns RAIL_COLUMNS."""
        of_rail = ("metric", "verdict", "margin", "p_not_worse")
        return {name: getattr(self if name in of_rail else self.comparison, name) for name in RAIL_COLUMNS}


Pair = tuple[str, str]  # child, parent


def read_guardrails(store: Store, name: str) -> list[Measurements]:
    """Read the measurements of each guardrail of a study, with the guardrail's own analysis plan."""
    guardrails = store.study(name).analysis.guardrails
    return [as_guardrail(read_measurements(store, name, rail.metric), rail, len(guardrails)) for rail in guardrails]


def as_guardrail(study: Measurements, rail: Guardrail, count: int) -> Measurements:
    """Return measurements with the analysis plan of one of `count` guardrails."""
    plan: dict[str, Any] = {"direction": rail.direction, "margin": rail.margin, "guardrails": []}
    plan |= {"alpha": study.analysis.alpha / count}
    return replace(study, analysis=study.analysis.model_copy(update=plan))


def guard(studies: Sequence[Measurements]) -> dict[Pair, tuple[Guarded, ...]]:
    """Test each guardrail on every comparison of the study."""
    by_pair: dict[Pair, tuple[Guarded, ...]] = {}
    for study in studies:
        comparisons = judge_comparisons(study)
        tests, _ = not_worse(study, comparisons)
        for comparison in comparisons:
            rail = _guarded(study.analysis, comparison, tests.get(comparison.pair))
            by_pair[comparison.pair] = (*by_pair.get(comparison.pair, ()), rail)
    return by_pair


def _guarded(analysis: Analysis, comparison: Comparison, test: NotWorse | None) -> Guarded:
    metric, margin = analysis.value, analysis.margin
    if comparison.detail in NOT_COMPARED:
        return Guarded(metric, "not run" if comparison.detail == "not run" else "invalid", comparison, margin)
    if test is None:
        return Guarded(metric, "undecided", comparison, margin)
    if test.p <= analysis.alpha and enough_seeds_for_equivalence(test.seeds, analysis):
        return Guarded(metric, "holds", comparison, margin, test.p)
    return Guarded(metric, "worse" if comparison.detail == "worse" else "undecided", comparison, margin, test.p)


def rails_in_words(guarded: Sequence[Guarded], verdict: str = "") -> str:
    """Return, as a clause, what guardrails add to a comparison's verdict; empty without guardrails."""
    worse = f"{'and' if verdict == 'worse' else 'but'} worse in {{}}"
    for outcome, said in (("worse", worse), ("invalid", "{} invalid"), ("undecided", "{} undecided")):
        if names := [rail.metric for rail in guarded if rail.verdict == outcome]:
            return said.format(" and ".join(names))
    return "guardrails hold" if any(rail.verdict == "holds" for rail in guarded) else ""


def apply_guardrails(results: Sequence[Answer], guarded: Mapping[Pair, Sequence[Guarded]]) -> list[Answer]:
    """Return the answers; an answer that passed gets another outcome if a guardrail does not hold."""
    changed = []
    for answer in results:
        rails = guarded.get(answer.comparison.pair, ()) if answer.outcome == "passed" else ()
        verdicts = {"invalid" if rail.verdict == "not run" else rail.verdict for rail in rails}
        outcome = next(
            (verdict for verdict in ("worse", "invalid", "undecided") if verdict in verdicts), answer.outcome
        )
        why = "; ".join(filter(None, (answer.why, rails_in_words(rails))))
        changed.append(replace(answer, outcome=outcome, why=why))
    return changed

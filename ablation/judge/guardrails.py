"""Guardrails of a study's analysis plan, metrics that must not get worse, tested on every edge. docs/gate.md.

    read_guardrails(store, study) -> the study's measurements, once for each guardrail's values
    guard(studies) -> {(child, parent): (Guarded, ...)}
    in_words(guarded) -> "guardrails hold", "but worse in length", "length undecided"
    held(answers, guarded) -> answers of the gate, where one passes only if its guardrails let it

A guardrail is the gate's test of non-inferiority, with the family of the study's edges; several share its alpha.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from ablation.config.study_schema import Guardrail
from ablation.judge.edges import NOT_COMPARED, Edge, judge_edges
from ablation.judge.gate import Answer, NotWorse, enough, not_worse
from ablation.judge.measurements import Measurements, read_measurements
from ablation.store.database import Store

COLUMNS = ["study", "parent", "child", "metric", "word", "effect", "low", "high", "joint_low", "joint_high"]
COLUMNS += ["margin", "p_not_worse", "why"]
_NAN = float("nan")


@dataclass(frozen=True)
class Guarded:
    """One guardrail of one edge; `edge` is of its values, and positive effects are improvements of them."""

    metric: str
    word: str  # holds, worse, undecided, invalid or not run
    edge: Edge
    margin: float
    p_not_worse: float = _NAN  # one-sided, corrected for the study's edges

    @property
    def row(self) -> dict[str, object]:
        """The columns COLUMNS."""
        own = {name: getattr(self.edge, name) for name in COLUMNS if hasattr(self.edge, name)}
        return own | {name: getattr(self, name) for name in ("metric", "word", "margin", "p_not_worse")}


Pair = tuple[str, str]  # child, parent


def read_guardrails(store: Store, name: str) -> list[Measurements]:
    """Read the values of each guardrail of a study, with the analysis plan by which it is tested."""
    guardrails = store.study(name).analysis.guardrails
    return [as_guardrail(read_measurements(store, name, rail.metric), rail, len(guardrails)) for rail in guardrails]


def as_guardrail(study: Measurements, rail: Guardrail, count: int) -> Measurements:
    """The measurements with the plan of one of `count` guardrails."""
    plan: dict[str, Any] = {
        "direction": rail.direction,
        "margin": rail.margin,
        "alpha": study.analysis.alpha / count,
        "guardrails": [],
    }
    return replace(study, analysis=study.analysis.model_copy(update=plan))


def guard(studies: Sequence[Measurements]) -> dict[Pair, tuple[Guarded, ...]]:
    """Test each guardrail on every edge of the study."""
    found: dict[Pair, tuple[Guarded, ...]] = {}
    for study in studies:
        edges = judge_edges(study)
        tests, _ = not_worse(study, edges)
        for edge in edges:
            rail = _guarded(study, edge, tests.get(edge.pair))
            found[edge.pair] = (*found.get(edge.pair, ()), rail)
    return found


def _guarded(study: Measurements, edge: Edge, test: NotWorse | None) -> Guarded:
    metric, margin, alpha = study.analysis.value, study.analysis.margin, study.analysis.alpha
    if edge.detail in NOT_COMPARED:
        return Guarded(metric, "not run" if edge.detail == "not run" else "invalid", edge, margin)
    if test is None:
        return Guarded(metric, "undecided", edge, margin)
    if test.p <= alpha and enough(test.seeds, study.analysis):
        return Guarded(metric, "holds", edge, margin, test.p)
    return Guarded(metric, "worse" if edge.detail == "worse" else "undecided", edge, margin, test.p)


def in_words(guarded: Sequence[Guarded]) -> str:
    """The guardrails' addition to an edge's verdict; empty without guardrails."""
    for word, said in (("worse", "but worse in {}"), ("invalid", "{} invalid"), ("undecided", "{} undecided")):
        if names := [rail.metric for rail in guarded if rail.word == word]:
            return said.format(" and ".join(names))
    return "guardrails hold" if any(rail.word == "holds" for rail in guarded) else ""


def held(answers: Sequence[Answer], guarded: Mapping[Pair, Sequence[Guarded]]) -> list[Answer]:
    """The answers, changed where a guardrail is worse, or not shown to be no worse."""
    return [
        _held(answer, guarded.get(answer.edge.pair, ())) if answer.outcome == "passed" else answer for answer in answers
    ]


def _held(answer: Answer, rails: Sequence[Guarded]) -> Answer:
    words = {rail.word for rail in rails}
    outcome = next((word for word in ("worse", "invalid", "undecided") if word in words), "passed")
    return replace(answer, outcome=outcome, why="; ".join(filter(None, (answer.why, in_words(rails)))))

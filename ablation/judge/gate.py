"""Whether a change may merge: one answer for each edge to the requirement, and the study's guardrails. docs/gate.md.

`better` and `equivalent` are the study's verdicts. `not worse` is a separate test (non-inferiority): one-sided, of an
effect of -margin or less, with the same noise, looks and correction for the study's edges as the verdicts. A guardrail,
a metric that must not get worse, is this test on the metric's values; several share the study's alpha.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from ablation.config.study_schema import Analysis, Guardrail
from ablation.contract.errors import ConfigError
from ablation.judge.correct import CORRECTIONS, Correction
from ablation.judge.edges import NOT_COMPARED, Edge, judge_edges, too_few
from ablation.judge.measurements import Measurements, read_measurements
from ablation.judge.remarks import other_units
from ablation.judge.significance import enough, sequential_p, share_otherwise
from ablation.store.database import Store

# Outcome: exit status, the gravest first, which counts for several edges. 1 and 2 are left to errors.
STATUS = {"worse": 10, "invalid": 12, "unmet": 13, "undecided": 11, "passed": 0}
_NAN = float("nan")


@dataclass(frozen=True)
class Answer:
    """The answer to one edge's requirement; only `passed` lets it pass."""

    edge: Edge
    outcome: str  # one of STATUS
    why: str
    p_not_worse: float = _NAN  # one-sided, corrected for the study's edges


def gravest(found: Sequence[Answer]) -> str:
    """The outcome of all together."""
    return next(outcome for outcome in STATUS if any(answer.outcome == outcome for answer in found))


def chosen(edges: Sequence[Edge], names: Sequence[str]) -> list[Edge]:
    """The edges of these names (CHILD or PARENT:CHILD), or all.

    Raises:
        ConfigError: no edge has such a name, or several have.
    """
    for name in names:
        having = [edge for edge in edges if name in _names(edge)]
        if len(having) != 1:
            known = ", ".join(f"{edge.parent}:{edge.child}" for edge in having or edges)
            problem = "is the child of several edges" if having else "is not an edge of the study"
            raise ConfigError("gate", "EDGE", name, problem, f"choose from {known}")
    return [edge for edge in edges if not names or _names(edge) & {*names}]


def _names(edge: Edge) -> set[str]:
    return {edge.child, f"{edge.parent}:{edge.child}"}


def answers(study: Measurements, edges: Sequence[Edge], required: str, of: Sequence[Edge]) -> list[Answer]:
    """Answer for the edges `of`, which are among the study's judged `edges`."""
    found, correction = not_worse(study, edges) if required == "not worse" else ({}, "")
    return [_answer(study.analysis, edge, required, found.get(edge.pair), correction) for edge in of]


@dataclass(frozen=True)
class NotWorse:
    """The test of one edge: its p, over looks and corrected, and the seeds of the look that it rests on."""

    p: float
    seeds: int


def not_worse(study: Measurements, edges: Sequence[Edge]) -> tuple[dict[tuple[str, str], NotWorse], str]:
    """The test of every edge that could be tested, and the name of the correction."""
    analysis, tested = study.analysis, [edge for edge in edges if not np.isnan(edge.p)]
    p, seeds = [], []
    for edge in tested:
        # A look at too few seeds decides nothing, as with `equivalent`; if all are, the last one says so.
        looks = [look for look in edge.looks if enough(look.seeds, analysis)] or edge.looks[-1:]
        by_look = {look.seeds: look.estimate.p_not_worse(analysis.margin, look.noise) for look in looks}
        weights = {look.seeds: look.weight for look in looks}
        p.append(sequential_p(by_look, weights))
        seeds.append(min(by_look, key=lambda count: by_look[count] / weights[count]))
    correction = Correction(study, tested, p, sides=1)
    found = zip(correction.adjusted.items(), seeds, strict=True)
    return {pair: NotWorse(value, count) for (pair, value), count in found}, CORRECTIONS[correction.name]


def _answer(analysis: Analysis, edge: Edge, required: str, test: NotWorse | None, correction: str) -> Answer:
    word = edge.detail
    if why := _why_invalid(edge):
        return Answer(edge, "invalid", why)
    if word in ("worse", required) or (word == "better" and required == "not worse"):
        return _unless_other_units(Answer(edge, "worse" if word == "worse" else "passed", edge.why))
    if test is None:
        return Answer(edge, "undecided" if word == "undecided" else "unmet", edge.why)
    bound = f"above -{analysis.margin:g}: one-sided p = {test.p:.2g}{correction}"
    if test.p > analysis.alpha:
        return Answer(edge, "undecided", f"the effect is not shown to be {bound}", test.p)
    if not enough(test.seeds, analysis):
        return Answer(edge, "undecided", f"the effect is {bound}, but {too_few(test.seeds, analysis)}", test.p)
    share = share_otherwise(test.seeds, analysis.alpha)
    held = f"in at least {1 - share:.0%} of seeds, as {test.seeds} can tell"
    if analysis.claim == "checkpoints":
        held = "of these runs alone"
    return _unless_other_units(Answer(edge, "passed", f"the effect is {bound}; {held}", test.p))


def _unless_other_units(answer: Answer) -> Answer:
    """Let nothing pass whose runs seem to be in different units."""
    edge = answer.edge
    why = other_units(edge.of, edge.child, edge.parent, edge.paired) if answer.outcome == "passed" else ""
    return Answer(edge, "invalid", f"{why}; import them in one unit, or leave runs out") if why else answer


def _why_invalid(edge: Edge) -> str:
    """Why no answer may rest on the runs of an edge, or nothing."""
    if edge.detail in NOT_COMPARED:
        return f"{edge.detail}: {edge.why}"
    if runs := edge.missing:
        why = ", ".join(f"{variant} has no seed {seed}" for variant, seed in runs)
        allowed = " ".join(f"{variant}:{seed}" for variant, seed in runs)
        return f"{why}: a run that is missing may have failed; give it, or allow it with --without {allowed}"
    if edge.identical:
        why = "all values are identical on both sides, as of one evaluation and its copy"
        return f"{why}; give the other's files, or --allow identical if the change must change nothing"
    return ""


RAIL_COLUMNS = ["study", "parent", "child", "metric", "word", "effect", "low", "high", "joint_low", "joint_high"]
RAIL_COLUMNS += ["margin", "p_not_worse", "why"]


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
        """The columns RAIL_COLUMNS."""
        own = ("metric", "word", "margin", "p_not_worse")
        return {name: getattr(self if name in own else self.edge, name) for name in RAIL_COLUMNS}


Pair = tuple[str, str]  # child, parent


def read_guardrails(store: Store, name: str) -> list[Measurements]:
    """Read the values of each guardrail of a study, with the analysis plan by which it is tested."""
    guardrails = store.study(name).analysis.guardrails
    return [as_guardrail(read_measurements(store, name, rail.metric), rail, len(guardrails)) for rail in guardrails]


def as_guardrail(study: Measurements, rail: Guardrail, count: int) -> Measurements:
    """The measurements with the plan of one of `count` guardrails."""
    plan: dict[str, Any] = {"direction": rail.direction, "margin": rail.margin, "guardrails": []}
    plan |= {"alpha": study.analysis.alpha / count}
    return replace(study, analysis=study.analysis.model_copy(update=plan))


def guard(studies: Sequence[Measurements]) -> dict[Pair, tuple[Guarded, ...]]:
    """Test each guardrail on every edge of the study."""
    found: dict[Pair, tuple[Guarded, ...]] = {}
    for study in studies:
        edges = judge_edges(study)
        tests, _ = not_worse(study, edges)
        for edge in edges:
            rail = _guarded(study.analysis, edge, tests.get(edge.pair))
            found[edge.pair] = (*found.get(edge.pair, ()), rail)
    return found


def _guarded(analysis: Analysis, edge: Edge, test: NotWorse | None) -> Guarded:
    metric, margin = analysis.value, analysis.margin
    if edge.detail in NOT_COMPARED:
        return Guarded(metric, "not run" if edge.detail == "not run" else "invalid", edge, margin)
    if test is None:
        return Guarded(metric, "undecided", edge, margin)
    if test.p <= analysis.alpha and enough(test.seeds, analysis):
        return Guarded(metric, "holds", edge, margin, test.p)
    return Guarded(metric, "worse" if edge.detail == "worse" else "undecided", edge, margin, test.p)


def rails_in_words(guarded: Sequence[Guarded]) -> str:
    """The guardrails' addition to an edge's verdict; empty without guardrails."""
    for word, said in (("worse", "but worse in {}"), ("invalid", "{} invalid"), ("undecided", "{} undecided")):
        if names := [rail.metric for rail in guarded if rail.word == word]:
            return said.format(" and ".join(names))
    return "guardrails hold" if any(rail.word == "holds" for rail in guarded) else ""


def held(found: Sequence[Answer], guarded: Mapping[Pair, Sequence[Guarded]]) -> list[Answer]:
    """The answers, changed where a guardrail is worse, or not shown to be no worse."""
    changed = []
    for answer in found:
        rails = guarded.get(answer.edge.pair, ()) if answer.outcome == "passed" else ()
        words = {"invalid" if rail.word == "not run" else rail.word for rail in rails}
        outcome = next((word for word in ("worse", "invalid", "undecided") if word in words), answer.outcome)
        why = "; ".join(filter(None, (answer.why, rails_in_words(rails))))
        changed.append(replace(answer, outcome=outcome, why=why))
    return changed

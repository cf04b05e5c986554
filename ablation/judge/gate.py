"""Whether a change may merge: one answer for each edge to the requirement. docs/gate.md.

    answers(study, edges, required, chosen) -> [Answer]         of the chosen ones of the study's edges
    chosen(edges, names) -> [Edge]                              CHILD or PARENT:CHILD

`better` and `equivalent` are the study's verdicts. `not worse` is a separate test (non-inferiority): one-sided, of an
effect of -margin or less, with the same noise, looks and correction for the study's edges as the verdicts.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from ablation.config.study_schema import Analysis
from ablation.contract.errors import ConfigError
from ablation.judge.edges import (
    CORRECTIONS,
    NOT_COMPARED,
    Edge,
    family_covariances,
    look_shares,
    those_tested,
)
from ablation.judge.family import Family
from ablation.judge.measurements import Measurements
from ablation.judge.scope import seeds_for, share_otherwise
from ablation.judge.sequential import sequential_p
from ablation.judge.significance import benjamini_hochberg, holm

REQUIREMENTS = ("not worse", "better", "equivalent")
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
    """The edges of these names, or all.

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


def answers(study: Measurements, edges: Sequence[Edge], required: str, of: Sequence[Edge]) -> list[Answer]:
    """Answer for the edges `of`, which are among the study's judged `edges`."""
    found, correction = not_worse(study, edges) if required == "not worse" else ({}, "")
    return [_answer(study.analysis, edge, required, found.get(edge.pair), correction) for edge in of]


def _names(edge: Edge) -> set[str]:
    return {edge.child, f"{edge.parent}:{edge.child}"}


@dataclass(frozen=True)
class NotWorse:
    """The test of one edge: its p, over looks and corrected, and the seeds of the look that it rests on."""

    p: float
    seeds: int


def not_worse(study: Measurements, edges: Sequence[Edge]) -> tuple[dict[tuple[str, str], NotWorse], str]:
    """The test of every edge that could be tested, and the name of the correction."""
    analysis, tested = study.analysis, those_tested(edges)
    p, seeds = [], []
    for edge in tested:
        # A look at too few seeds decides nothing, as with `equivalent`; if all are, the last one says so.
        looks = [look for look in edge.looks if enough(look.seeds, analysis)] or edge.looks[-1:]
        by_look = {look.seeds: look.estimate.p_not_worse(analysis.margin, look.noise) for look in looks}
        weights = {look.seeds: look.weight for look in looks}
        p.append(sequential_p(by_look, weights))
        seeds.append(min(by_look, key=lambda count: by_look[count] / weights[count]))
    if len(tested) < 2:
        adjusted, name = holm(p), "one"
    elif analysis.error == "per_word":
        adjusted, name = benjamini_hochberg(p), "bh"
    elif (covariances := family_covariances(study, tested)) is None:
        adjusted, name = holm(p), "holm"
    else:
        noises = [edge.looks[-1].noise for edge in tested]
        adjusted, name = Family.of(*covariances, noises, look_shares(analysis), sides=1).adjusted(p), "max-t"
    found = zip(tested, adjusted.tolist(), seeds, strict=True)
    return {edge.pair: NotWorse(value, count) for edge, value, count in found}, CORRECTIONS[name]


def enough(seeds: int, analysis: Analysis) -> bool:
    """Whether this many seeds leave at most the plan's share of seeds that may behave differently."""
    return share_otherwise(seeds, analysis.alpha) <= analysis.rare


def _answer(analysis: Analysis, edge: Edge, required: str, test: NotWorse | None, correction: str) -> Answer:
    word = edge.detail
    if word in NOT_COMPARED:
        return Answer(edge, "invalid", f"{word}: {edge.why}")
    if word in ("worse", required) or (word == "better" and required == "not worse"):
        return Answer(edge, "worse" if word == "worse" else "passed", edge.why)
    if test is None:
        return Answer(edge, "undecided" if word == "undecided" else "unmet", edge.why)
    return _tested(analysis, edge, test, correction)


def _tested(analysis: Analysis, edge: Edge, test: NotWorse, correction: str) -> Answer:
    """The answer where the verdict does not give it."""
    bound = f"above -{analysis.margin:g}: one-sided p = {test.p:.2g}{correction}"
    if test.p > analysis.alpha:
        return Answer(edge, "undecided", f"the effect is not shown to be {bound}", test.p)
    share = share_otherwise(test.seeds, analysis.alpha)
    if not enough(test.seeds, analysis):
        few = f"of {test.seeds} seeds alone, which leave {share:.0%} of seeds that may behave otherwise"
        needed = f"{seeds_for(analysis.rare, analysis.alpha)} seeds would leave at most {analysis.rare:.0%}"
        return Answer(edge, "undecided", f"the effect is {bound}, but {few}; {needed}", test.p)
    held = f"in at least {1 - share:.0%} of seeds, as {test.seeds} can tell"
    return Answer(edge, "passed", f"the effect is {bound}; {held}", test.p)

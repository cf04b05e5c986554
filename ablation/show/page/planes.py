"""What each change gained against what it cost: a plane for each guardrail, with the joint intervals of both."""

from collections.abc import Sequence
from dataclasses import dataclass

from ablation.judge.edges import Edge
from ablation.judge.verdicts import JudgedStudy
from ablation.show.page.format import is_number

SIZE = 320  # pixels of a side


@dataclass(frozen=True)
class Cross:
    """One change in pixels: its effect and joint interval on the guardrail, then on the outcome, upwards."""

    child: str
    parent: str
    verdict: str
    rail: str
    x: tuple[float, float, float]  # effect, low, high
    y: tuple[float, float, float]


@dataclass(frozen=True)
class Plane:
    """One guardrail. Right and up is better; left of `bound` more than the margin is lost."""

    metric: str
    bound: float
    reach: tuple[float, float]  # of the axes, to either side of zero
    crosses: Sequence[Cross]


def planes(judged: JudgedStudy) -> list[Plane]:
    """A plane for each guardrail of a study, of the changes of which both were measured."""
    edges, found = {edge.pair: edge for edge in judged.edges}, []
    for metric in dict.fromkeys(rail.metric for rails in judged.guarded.values() for rail in rails):
        both = [
            (edges[pair], rail)
            for pair, rails in judged.guarded.items()
            for rail in rails
            if rail.metric == metric and is_number(rail.edge.effect) and is_number(edges[pair].effect)
        ]
        if not both:
            continue
        margin = both[0][1].margin
        across = _reach([rail.edge for _, rail in both], margin)
        up = _reach([edge for edge, _ in both], judged.measurements.analysis.margin)
        crosses = [
            Cross(edge.child, edge.parent, edge.verdict, rail.word, _place(rail.edge, across), _place(edge, -up))
            for edge, rail in both
        ]
        found.append(Plane(metric, _pixel(-margin, across), (across, up), crosses))
    return found


def _reach(edges: Sequence[Edge], margin: float) -> float:
    """So far that every effect and the margin are inside; intervals may leave the plane."""
    return 1.5 * max([margin, *(abs(edge.effect) for edge in edges)])


def _place(edge: Edge, reach: float) -> tuple[float, float, float]:
    """The effect and its joint interval, which reaches as far as the plane where there is none."""
    low, high = (edge.joint_low, edge.joint_high) if is_number(edge.joint_low) else (-abs(reach), abs(reach))
    return _pixel(edge.effect, reach), _pixel(low, reach), _pixel(high, reach)


def _pixel(value: float, reach: float) -> float:
    return round(SIZE / 2 * (1 + min(max(value / reach, -1.0), 1.0)), 1)

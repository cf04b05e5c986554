"""The lineage of a study as rows of a graph, and the axis of the forest plot drawn beside them."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ablation.config.lineage import Place, walk

SMALL, NAMED = 20.0, 34.0  # a node of the small picture, and its row where it has a name below: SVG units
LETTER, WIDEST = 6.6, 560.0
Lines = str  # of one lane in one row: "full", "top" (ends at the node), "bottom" (starts at the node) or "none"


@dataclass(frozen=True)
class GraphRow:
    """One variant in the graph: the node is in `lane`; a branch comes from the lane to its left."""

    variant: str
    lane: int
    branch: bool
    lines: tuple[Lines, ...]


def graph_rows(parents: Mapping[str, str | None]) -> list[GraphRow]:
    """Order variants depth first and give each a lane, as `git log --graph` does.

    `parents` maps every variant to its parent, in declared order. A node's largest subtree comes last and continues in
    its lane, so that the trunk of the study is one straight line and what was tried from it branches off to the right.
    A parent that is not itself a variant counts as none.
    """
    places = list(walk(parents))
    children = {place.name: place.children for place in places}
    sizes = _subtree_sizes(places)
    placed: list[
        tuple[str, int, bool, bool, frozenset[int]]
    ] = []  # variant, lane, branch, joined from above, lanes passing
    stack = [
        (root, 0, False, False, frozenset[int]())
        for root in reversed([place.name for place in places if place.parent is None])
    ]
    while stack:
        variant, lane, branch, joined, passing = stack.pop()
        placed.append((variant, lane, branch, joined, passing))
        below = sorted(children[variant], key=lambda child: sizes[child])
        if below:
            stack.append((below[-1], lane, False, True, passing))
            stack.extend((child, lane + 1, True, False, passing | {lane}) for child in reversed(below[:-1]))
    width = 1 + max((lane for _, lane, *_ in placed), default=0)
    return [
        GraphRow(variant, lane, branch, _lines(width, lane, joined, passing, bool(children[variant])))
        for variant, lane, branch, joined, passing in placed
    ]


@dataclass(frozen=True)
class Picture:
    """The lineage in small, from left to right: a place for each variant, and a line from its parent's. SVG units.

    `named`: there is room for the names.
    """

    width: float
    height: float
    places: dict[str, tuple[float, float]]
    lines: list[str]  # as an SVG path each
    named: bool


def picture(rows: Sequence[GraphRow], parents: Mapping[str, str | None]) -> Picture:
    """Place the rows of a graph in columns: the trunk is straight, a branch leaves it just before its variant."""
    letters = max((len(row.variant) for row in rows), default=0)
    named = len(rows) * (step := LETTER * letters + 14) <= WIDEST
    step, height = (step, NAMED) if named else (SMALL, SMALL)
    places = {row.variant: (step * (column + 0.5), height * row.lane + SMALL / 2) for column, row in enumerate(rows)}
    lines = []
    for row in rows:
        parent = parents.get(row.variant)
        if parent in places:
            (x, y), (start, trunk) = places[row.variant], places[parent]
            lines.append(f"M{start:g} {trunk:g}H{x - SMALL / 2:g}L{x:g} {y:g}")
    lanes = max((row.lane for row in rows), default=0) + 1
    return Picture(step * max(len(rows), 1), height * lanes, places, lines, named)


def _lines(width: int, lane: int, joined: bool, passing: frozenset[int], has_children: bool) -> tuple[Lines, ...]:
    own = {(True, True): "full", (True, False): "top", (False, True): "bottom", (False, False): "none"}
    return tuple(
        own[joined, has_children] if index == lane else "full" if index in passing else "none" for index in range(width)
    )


def _subtree_sizes(places: Sequence[Place]) -> dict[str, int]:
    """Return how many variants each subtree has; `places` have parents before children."""
    sizes = {place.name: 1 for place in places}
    for place in reversed(places):
        if place.parent is not None:
            sizes[place.parent] += sizes[place.name]
    return sizes


@dataclass(frozen=True)
class ForestAxis:
    """A horizontal axis shared by the edges of one study, symmetric about no effect. Lengths are SVG units."""

    limit: float
    margin: float | None
    width: float = 240.0
    pad: float = 10.0

    def x(self, value: float) -> float:
        """Position of an effect; effects beyond the axis land on its end."""
        share = min(max(value / self.limit, -1.0), 1.0)
        return round(self.pad + (share + 1) / 2 * (self.width - 2 * self.pad), 2)

    @property
    def ticks(self) -> list[float]:
        """Round numbers: -t, 0, t with t the largest of 1, 2, 5 times a power of ten inside the axis."""
        power = 10.0 ** math.floor(math.log10(self.limit))
        largest = max((m * power for m in (1, 2, 5) if m * power <= self.limit * (1 + 1e-9)), default=power)
        return [-largest, 0.0, largest]


def forest_axis(bounds: Sequence[float], margin: float | None) -> ForestAxis:
    """Choose the axis: all interval bounds, but no more than three times their upper quartile.

    So one wide interval hides no other.
    """
    finite = sorted(abs(bound) for bound in bounds if math.isfinite(bound))
    if not finite:
        return ForestAxis(limit=margin * 2 if margin else 1.0, margin=margin)
    quartile = finite[3 * len(finite) // 4]
    limit = min(finite[-1], 3 * quartile) if quartile > 0 else finite[-1]
    limit = max(limit, 1.5 * (margin or 0.0)) * 1.05
    return ForestAxis(limit=limit if limit > 0 else 1.0, margin=margin)

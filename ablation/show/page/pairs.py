"""Any two variants for the page: the effect of every pair, and every configuration, as compact data for its script."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablation.config import dotted
from ablation.judge.edges import NOT_COMPARED, Pair, factor_among
from ablation.plan.plan_file import PlannedVariant
from ablation.show.page.edges import Edges
from ablation.show.page.format import is_number
from ablation.show.text import describe_value

MOST_VARIANTS = 40  # of which all pairs are computed in advance: 780
GLYPHS = {"better": "▲", "worse": "▼", "equivalent": "=", "undecided": "○", "invalid": "×", "not run": "□"}
_TURNED = {"better": "worse", "worse": "better"}


@dataclass(frozen=True)
class PairCell:
    """The row's variant against the column's."""

    word: str
    effect: float | None

    @property
    def glyph(self) -> str:
        """The mark of the word as a character."""
        return GLYPHS[self.word]


@dataclass(frozen=True)
class Pairs:
    """Every two variants of one study. `cells[row][column]` is None on the diagonal; no rows: nothing was computed."""

    names: list[str]
    cells: list[list[PairCell | None]]
    data: Mapping[str, Any]

    @property
    def count(self) -> int:
        """Number of pairs that could be compared."""
        return sum(cell is not None and cell.effect is not None for row in self.cells for cell in row) // 2


def study_pairs(
    variants: Sequence[PlannedVariant], edges: Edges, pairs: Sequence[Pair], bound: float = math.inf
) -> Pairs:
    """Arrange the judged pairs of a study's variants in the order of its lineage; `pairs` may be empty.

    No interval reaches beyond ±`bound`.

    The data: `{variants, pairs: {"i j": [effect, low, high, p, word, seeds, items, why]}, words, whys, edges, keys,
    factors, base, own}`. A pair's numbers are those of variant i against variant j; `edges` has the study's verdicts by
    the same names. `base` holds the values of `keys` of the first variant, and `own` what each has instead, as text;
    null where it has no such key.
    """
    names = [row.variant.name for row in edges.rows]
    place = {name: number for number, name in enumerate(names)}
    cells: list[list[PairCell | None]] = [[None] * len(names) for _ in names] if pairs else []
    whys: dict[str, int] = {}
    rows: dict[str, list[Any]] = {}
    for pair in pairs:
        edge = pair.edge
        effect = edge.effect if is_number(edge.effect) else None
        i, j = place[edge.child], place[edge.parent]
        cells[i][j] = PairCell(edge.detail, effect)
        cells[j][i] = PairCell(_TURNED.get(edge.detail, edge.detail), -effect if effect is not None else None)
        why = whys.setdefault(edge.why if edge.detail in NOT_COMPARED else "; ".join(edge.notes), len(whys))
        numbers = [_short(value) for value in (edge.effect, max(edge.low, -bound), min(edge.high, bound), edge.p)]
        rows[f"{i} {j}"] = [*numbers, list(GLYPHS).index(edge.detail), edge.seeds, edge.items, why]
    judged = {
        f"{place[name]} {place[edge.parent]}": edge.verdict for name, edge in edges.comparisons if edge.parent in place
    }
    data = {"variants": names, "pairs": rows, "words": list(GLYPHS), "whys": list(whys), "edges": judged}
    return Pairs(names, cells, data | _configurations(variants, names))


def _configurations(variants: Sequence[PlannedVariant], names: Sequence[str]) -> dict[str, Any]:
    """Every configuration as what differs from the first one's."""
    configs = {
        variant.name: {key: describe_value(value) for key, value in dotted.leaves(variant.resolved)}
        for variant in variants
    }
    keys = list(dict.fromkeys(key for name in names for key in configs[name]))
    known = {change.key: change.factor for variant in variants for change in variant.changes}
    factors = {key: factor_among(key, known) for key in keys}
    base = [configs[names[0]].get(key) for key in keys] if names else []
    own = [
        {at: configs[name].get(key) for at, key in enumerate(keys) if configs[name].get(key) != base[at]}
        for name in names
    ]
    return {
        "keys": keys,
        "factors": {key: factor for key, factor in factors.items() if factor != key},
        "base": base,
        "own": own,
    }


def _short(value: float) -> float | None:
    """Five significant digits: the page shows fewer."""
    return float(f"{value:.5g}") if is_number(value) else None

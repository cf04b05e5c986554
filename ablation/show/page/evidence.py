"""The evidence behind one verdict as short labelled facts."""

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from ablation.show.page.format import duration, is_number, number, p_value, signed

SHOWN: dict[str, tuple[str, Callable[[Any, int], str]]] = {
    "p": ("p", lambda value, _: p_value(value)),
    "p_adjusted": ("p, corrected for all changes", lambda value, _: p_value(value)),
    "p_sign_flip": ("p over seeds alone (sign flips)", lambda value, _: p_value(value)),
    "mde": ("smallest effect found with 80% power", lambda value, n: number(value, n) if value < math.inf else "none"),
    "seeds": ("seeds", lambda value, _: f"{value:.0f}"),
    "items": ("items", lambda value, _: f"{value:,.0f}"),
    "seeds_needed": ("seeds needed for an effect this large", lambda value, _: f"{value:,.0f}"),
    "prior_df": ("degrees of freedom from other variants' noise", lambda value, _: f"{value:.2g}"),
    "cost_hours": ("device time of this change", lambda value, _: duration(3600 * value)),
}


def evidence(record: Mapping[str, Any], decimals: int) -> list[tuple[str, str]]:
    """(label, text) of every fact that is known."""
    facts = [
        (label, show(record[key], decimals))
        for key, (label, show) in SHOWN.items()
        if is_number(record.get(key)) or record.get(key) == math.inf
    ]
    facts += [
        (label, f"{start}[{signed(record[low], decimals)}, {signed(record[high], decimals)}]")
        for label, start, low, high in _intervals(record, decimals)
        if is_number(record.get(low)) and is_number(record.get(high))
    ]
    return facts


def _intervals(record: Mapping[str, Any], decimals: int) -> Iterator[tuple[str, str, str, str]]:
    """Label, what stands before the interval, and the keys of its ends."""
    yield "interval, corrected for all changes", "", "joint_low", "joint_high"
    root = record.get("root")
    if root and root != record.get("parent"):
        yield (
            f"since {root}, for all such paths at once",
            f"{signed(record['root_effect'], decimals)} ",
            "root_low",
            "root_high",
        )

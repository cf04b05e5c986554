"""The evidence behind one verdict as short labelled facts."""

from collections.abc import Callable, Mapping
from typing import Any

from tracker.show.page.format import is_number, number, p_value

SHOWN: dict[str, tuple[str, Callable[[Any, int], str]]] = {
    "p": ("p", lambda value, _: p_value(value)),
    "p_adjusted": ("p, corrected for all changes", lambda value, _: p_value(value)),
    "p_sign_flip": ("p over seeds alone (sign flips)", lambda value, _: p_value(value)),
    "mde": ("smallest effect found with 80% power", number),
    "seeds": ("seeds", lambda value, _: f"{value:.0f}"),
    "items": ("items", lambda value, _: f"{value:,.0f}"),
    "seeds_needed": ("seeds needed for an effect this large", lambda value, _: f"{value:,.0f}"),
    "cost_hours": ("device time of this change", lambda value, _: f"{value:.2g} h"),
}


def evidence(record: Mapping[str, Any], decimals: int) -> list[tuple[str, str]]:
    """(label, text) of every fact that is known."""
    return [(label, show(record[key], decimals)) for key, (label, show) in SHOWN.items() if is_number(record.get(key))]

"""Texts and numbers formatted for readers, and what each variant changes in words."""

import math
import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any, TypeGuard

import numpy as np
import pandas as pd

from ablation.config.study import Change
from ablation.config.variant_tree import walk
from ablation.contract.display import counted
from ablation.plan.plan_file import PlannedVariant

MINUS, NOTHING = "−", "–"


def plain(text: str) -> str:
    """Return text for a figure, with control characters replaced by spaces."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def markdown(text: str) -> str:
    """Return text on one line that Markdown shows literally; `@name` notifies no one."""
    literal = re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split())).replace("-\\>", "->")
    return re.sub(r"(?<!\w)@(?=\w)", "@\u200b", literal)


def wrapped(text: str, width: int) -> str:
    """Break at spaces into lines of at most `width` characters; a longer word is cut."""
    return textwrap.fill(text, width, break_on_hyphens=False)


def shortened(text: str, width: int) -> str:
    """Return at most `width` characters, with an ellipsis if something was cut."""
    return text if len(text) <= width else text[: width - 1] + "…"


def describe_value(value: Any) -> str:
    """Return a configuration value as a person writes it in YAML."""
    match value:
        case None:
            return "none"
        case bool():
            return str(value).lower()
        case float():
            return re.sub(r"e([+-])0+", r"e\1", f"{value:.10g}").replace("e+", "e")
        case list() | tuple():
            return f"[{', '.join(describe_value(item) for item in value)}]"
        case dict():
            return "{" + ", ".join(f"{key}: {describe_value(item)}" for key, item in value.items()) + "}"
    return str(value)


@dataclass(frozen=True)
class Node:
    """One variant in the tree: `depth` generations below its root, and what changed from its parent."""

    name: str
    parent: str | None
    depth: int
    changes: tuple[str, ...]
    factors: tuple[str, ...]
    label: str = ""

    @property
    def confounded(self) -> bool:
        """Whether more than one factor changed from the parent."""
        return self.parent is not None and len(self.factors) > 1


def variant_tree(variants: Sequence[PlannedVariant]) -> list[Node]:
    """Return the variants in tree order: a parent, then each child with its whole subtree."""
    named, nodes = {variant.name: variant for variant in variants}, []
    for place in walk({variant.name: variant.parent for variant in variants}):
        variant = named[place.name]
        changes = tuple(map(describe_change, variant.changes))
        nodes.append(Node(place.name, place.parent, place.depth, changes, variant.factors, variant.label))
    return nodes


def describe_change(change: Change) -> str:
    """Return a change in words: `rcs.alphas [0, 1, 2] -> [0, 1.2, 2.5]`, marked if it cannot have an effect."""
    note = " (no effect)" if change.no_effect else ""
    return f"{change.key} {describe_value(change.old)} -> {describe_value(change.new)}{note}"


def is_number(value: Any) -> TypeGuard[float]:
    """Return whether a value is a finite number."""
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def number(value: Any, decimals: int = 4) -> str:
    """Return a measured value with fixed decimals and a true minus sign; a dash if there is none."""
    return f"{value:.{decimals}f}".replace("-", MINUS) if is_number(value) else NOTHING


def alike(values: Sequence[float]) -> list[str]:
    """Return numbers of one row with the same decimals: three digits of the largest; no decimals if all are whole."""
    largest = max(map(abs, values), default=0.0)
    all_integers = all(float(value).is_integer() for value in values) or not largest
    decimals = 0 if all_integers else max(2 - math.floor(math.log10(largest)), 0)
    return [number(value, decimals) if decimals < 6 else f"{value:.3g}".replace("-", MINUS) for value in values]


def leveled(values: Iterable[Any], sign: str = "") -> list[str]:
    """Return numbers of one unit for a terminal, with the same decimals: four digits of the largest, three below 0.1.

    `sign`: `+` where those above zero have one.
    """
    given = list(values)
    magnitude = math.floor(math.log10(max((abs(value) for value in given if is_number(value)), default=0.0) or 1.0))
    decimals = max(3 - magnitude - (magnitude < -1), 0)
    return [f"{value + 0.0:{sign}.{decimals}f}" if is_number(value) else "-" for value in given]


def signed(value: Any, decimals: int = 4) -> str:
    """Return an effect, or a bound of its interval, with its sign (zero has none).

    Up to three more decimals keep a bound from looking like zero: an interval that contains zero means another verdict.
    """
    if not is_number(value):
        return NOTHING
    texts = [f"{value:+.{decimals + more}f}" for more in range(4)]
    text = next((text for text in texts if float(text) != 0), texts[0])
    return text[1:] if float(text) == 0 else text.replace("-", MINUS)


def p_value(value: Any) -> str:
    """Return a p-value as text; very small ones as a bound."""
    if not is_number(value):
        return NOTHING
    return "< 0.0001" if value < 1e-4 else f"{value:.4f}" if value < 0.01 else f"{value:.3f}"


def decimals_for(spreads: Iterable[float]) -> int:
    """Return the decimals, 3 to 5, that show two digits of a typical spread (a margin, an sd, half an interval)."""
    positive = sorted(abs(s) for s in spreads if is_number(s) and s != 0)
    if not positive:
        return 4
    return min(max(1 - math.floor(math.log10(positive[len(positive) // 2])), 3), 5)


def plural(count: int, one: str) -> str:
    """Return `1 run`, `2 runs` or `no runs`."""
    return counted(count, one) if count else f"no {one}s"


def day(moments: Iterable[Any]) -> str | None:
    """Return the latest of some ISO timestamps, to the minute; None if there are none."""
    moments_given = [moment for moment in moments if isinstance(moment, str)]
    return minute(max(moments_given)) if moments_given else None


def minute(moment: str) -> str:
    """Return an ISO timestamp to the minute."""
    return moment[:16].replace("T", " ")


def tick(value: float) -> str:
    """Return the label of a tick with as few digits as possible."""
    return "0" if value == 0 else f"{value:g}".replace("-", MINUS)


def severity_word(severity: str) -> str:
    """Return the word for the severity of a finding or health event."""
    return {"warn": "warning", "abort": "aborted"}.get(severity, severity)


def state_word(state: str) -> str:
    """Return the word for the state of a run or stage."""
    return {"missing": "not run", "blocked": "not started, because an input is not ok"}.get(state, state)


def clean_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return rows as plain Python values, with None for missing values."""
    return [{str(key): _plain(value) for key, value in record.items()} for record in frame.to_dict("records")]


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    if isinstance(value, np.generic):
        value = value.item()
    missing = value is pd.NaT or value is pd.NA or (isinstance(value, float) and math.isnan(value))
    return None if missing else value

"""Texts and numbers formatted for readers, and the variant tree with each change in words."""

import re
import textwrap
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import pandas as pd

from ablation.config.study import Change
from ablation.config.variant_tree import walk
from ablation.contract import numbers
from ablation.contract.numbers import MISSING, fixed, stated
from ablation.plan.plan_file import PlannedVariant

MINUS, NOTHING = "−", "–"


def plain(text: str) -> str:
    """Return text for a figure, with control characters replaced by spaces."""
    return "".join(c if c.isprintable() or c == "\n" else " " for c in text)


def markdown(text: str) -> str:
    """Return text on one line that Markdown shows literally, and that notifies nobody whose `@name` it contains."""
    literal = re.sub(r"([\\`*_|<>\[\]])", r"\\\1", " ".join(text.split())).replace("-\\>", "->")
    return re.sub(r"(?<!\w)@(?=\w)", "@\u200b", literal)


def wrapped(text: str, width: int) -> str:
    """Break text at spaces into lines of at most `width` characters; longer words are split."""
    return textwrap.fill(text, width, break_on_hyphens=False)


def shortened(text: str, width: int) -> str:
    """Return at most `width` characters of a text; a text that was cut ends with an ellipsis."""
    return text if len(text) <= width else text[: width - 1] + "…"


def describe_value(value: Any) -> str:
    """Return a configuration value as short YAML, with `none` instead of null."""
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
    """One variant in the tree, `depth` generations below its root, with the changes from its parent in words."""

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
    """Return the variants in the order of the tree: a parent, then each child with its whole subtree."""
    named, nodes = {variant.name: variant for variant in variants}, []
    for place in walk({variant.name: variant.parent for variant in variants}):
        variant = named[place.name]
        changes = tuple(map(describe_change, variant.changes))
        nodes.append(Node(place.name, place.parent, place.depth, changes, variant.factors, variant.label))
    return nodes


def describe_change(change: Change) -> str:
    """Return a change in words, such as `rcs.alphas [0, 1, 2] -> [0, 1.2, 2.5] (no effect)`."""
    note = " (no effect)" if change.no_effect else ""
    return f"{change.key} {describe_value(change.old)} -> {describe_value(change.new)}{note}"


def true_minus(text: str) -> str:
    """Return the text of a number with a true minus sign, and with an en dash for a missing number."""
    return NOTHING if text == MISSING else text.replace("-", MINUS)


def number(value: Any, decimals: int) -> str:
    """Return the text of a measured value."""
    return true_minus(fixed(value, decimals))


def signed(value: Any, decimals: int) -> str:
    """Return the text of an effect, with its sign."""
    return true_minus(fixed(value, decimals, "+"))


def interval(ends: tuple[Any, Any], decimals: int) -> str:
    """Return the text of the interval of an effect."""
    return true_minus(numbers.interval(*ends, decimals))


def p_value(value: Any) -> str:
    """Return the text of a p-value."""
    return true_minus(numbers.p_value(value))


def tick(value: Any) -> str:
    """Return the text of a number on an axis, or of a setting."""
    return true_minus(stated(value))


def day(moments: Iterable[Any]) -> str | None:
    """Return the latest of some ISO timestamps, to the minute; None if there are none."""
    moments_given = [moment for moment in moments if isinstance(moment, str)]
    return minute(max(moments_given)) if moments_given else None


def minute(moment: str) -> str:
    """Return an ISO timestamp cut to the minute."""
    return moment[:16].replace("T", " ")


def clean_records(frame: pd.DataFrame) -> list[dict[str, Any]]:
    """Return the rows of a frame as records of plain Python values, with None for missing values."""
    return frame.astype(object).where(frame.notna(), None).to_dict("records")  # type: ignore[return-value]

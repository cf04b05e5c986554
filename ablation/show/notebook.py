"""Verdicts and results folders in a notebook: small pieces of HTML without a style sheet.

verdict_html(row) -> str
results_html(runs, scale) -> str
"""

from collections.abc import Mapping
from html import escape
from typing import Any

import pandas as pd

from ablation.show.page.format import is_number, p_value, signed
from ablation.store.database import ENDED_WELL

_COLOURS = {"better": "#005f9e", "worse": "#a83c00", "equivalent": "#5d5c55"}
_WIDTH, _HEIGHT = 240, 22


def verdict_html(row: Mapping[str, Any]) -> str:
    """The word with its effect and interval, drawn against the margin, and why."""
    colour = _COLOURS.get(row["verdict"], "#7a5200")
    facts = {
        "effect": f"{signed(row['effect'])} [{signed(row['low'])}, {signed(row['high'])}]",
        "p": p_value(row["p"]),
        "seeds": row["seeds"],
        "items": f"{row['items']:,}",
        "margin": row.get("margin"),
    }
    cells = "".join(f"<td>{escape(str(value))}</td>" for value in facts.values() if value is not None)
    heads = "".join(f"<th>{name}</th>" for name, value in facts.items() if value is not None)
    changes = "".join(
        f"<li>{escape(str(of['key']))}: {escape(str(of['from']))} → {escape(str(of['to']))}</li>"
        for of in row.get("changes", ())
    )
    return (
        f"<p>{escape(row['child'])} against {escape(row['parent'])}: "
        f'<strong style="color:{colour}">{escape(row["verdict"])}</strong> {_interval(row, colour)}</p>'
        f"<ul>{changes}</ul><table><tr>{heads}</tr><tr>{cells}</tr></table><p>{escape(row['reason'])}</p>"
    )


def _interval(row: Mapping[str, Any], colour: str) -> str:
    """The interval as a line with a dot, over the band of the margin, with zero in the middle."""
    low, effect, high, margin = (row.get(name) for name in ("low", "effect", "high", "margin"))
    if not (is_number(low) and is_number(effect) and is_number(high)):
        return ""
    band = margin if is_number(margin) else 0.0
    half = 1.1 * max(abs(low), abs(high), band) or 1.0
    x = {name: _WIDTH / 2 * (1 + value / half) for name, value in (("low", low), ("high", high), ("effect", effect))}
    left, wide, middle = _WIDTH / 2 * (1 - band / half), _WIDTH * band / half, _HEIGHT / 2
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="interval {signed(low)} to {signed(high)}">'
        f'<rect x="{left:.1f}" width="{wide:.1f}" height="{_HEIGHT}" fill="#8883"/>'
        f'<path d="M{_WIDTH / 2} 0V{_HEIGHT}" stroke="#888"/>'
        f'<path d="M{x["low"]:.1f} {middle}H{x["high"]:.1f}" stroke="{colour}" stroke-width="2"/>'
        f'<circle cx="{x["effect"]:.1f}" cy="{middle}" r="4" fill="{colour}"/></svg>'
    )


def results_html(runs: pd.DataFrame, scale: str) -> str:
    """A row for each study: its variants, and how many of its runs ended well."""
    well = runs.assign(well=runs["state"].isin(ENDED_WELL)).groupby("study", sort=False)
    counts = well.agg(variants=("variant", "nunique"), runs=("seed", "size"), ok=("well", "sum"))
    return f"<p>scale {escape(scale)}</p>{counts.to_html()}"

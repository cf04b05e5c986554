"""Findings in brief: a study's in a few short sentences, and for a notebook one verdict or a results folder as HTML."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from ablation.show.text import clean_records, decimals_for, is_number, number, p_value, plural, signed
from ablation.store.database import ENDED_WELL

# How comparisons that are neither better nor worse are counted, in this order.
_COUNTED = {
    "equivalent": ("makes no difference", "make no difference"),
    "undecided": ("is undecided", "are undecided"),
    "confounded": ("mixes several factors", "mix several factors"),
    "invalid": ("cannot be compared", "cannot be compared"),
    "not run": ("still has to run", "still have to run"),
}
NAMED = 2  # comparisons of each word that are named, the largest effects first; the others are counted


def answer(verdicts: pd.DataFrame, margin: float) -> str:
    """Return a few sentences on the judged comparisons of one study.

    Args:
        verdicts: a row per comparison, as `ablation.judge.verdicts.comparison_table` returns them.
        margin: the largest difference that the analysis plan does not count, in units of the effect.
    """
    rows = clean_records(verdicts)
    of_word = {word: [row for row in rows if row["verdict"] == word] for word in {row["verdict"] for row in rows}}
    known = [row for row in rows if is_number(row.get("low")) and is_number(row.get("high"))]
    decimals = decimals_for([(row["high"] - row["low"]) / 2 for row in known] or [margin])
    parts = [part for word in ("better", "worse") for part in _moved(word, of_word.get(word, ()), decimals)]
    for word, (one, many) in _COUNTED.items():
        if found := of_word.get(word):
            parts.append(f"{plural(len(found), 'change')} {one if len(found) == 1 else many}{_cost(found)}")
            if word == "undecided" and (step := next_step(found)):
                parts.append(step)
    return ". ".join(parts) + "." if parts else "Nothing has been judged yet."


def _moved(word: str, rows: Sequence[Mapping[str, Any]], decimals: int) -> list[str]:
    rows, sign = sorted(rows, key=lambda row: -abs(row["effect"])), 1 if word == "better" else -1
    named = [
        f"{row['child']} is {word} than {row['parent']} by {number(sign * row['effect'], decimals)} "
        f"[{', '.join(number(sign * row[end], decimals) for end in ('low', 'high')[::sign])}]" + _rails(row)
        for row in rows[:NAMED]
    ]
    more = rows[NAMED:]
    return named + ([f"{len(more)} more {'is' if len(more) == 1 else 'are'} {word}{_cost(more)}"] if more else [])


def _rails(row: Mapping[str, Any]) -> str:
    """What the guardrails of a comparison add to its verdict, unless all hold."""
    said = row.get("guardrails") or ""
    return "" if said in ("", "guardrails hold") else f", {said}"


def _cost(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many of these comparisons made a guardrail worse."""
    lost = sum(_rails(row).startswith(", but worse") for row in rows)
    return f", {f'{lost} of them ' * (len(rows) > 1)}worse in a guardrail" if lost else ""


def next_step(rows: Sequence[Mapping[str, Any]]) -> str:
    """What to look at next: the undecided comparison that needs the fewest more seeds; empty if none has a number."""
    rows = [row for row in rows if row["verdict"] == "undecided"]
    priced = [row for row in rows if is_number(row.get("seeds_needed")) and row["seeds_needed"] > row["seeds"]]
    if not priced:
        return ""
    nearest = min(priced, key=lambda row: row["seeds_needed"] - row["seeds"])
    more = plural(int(nearest["seeds_needed"] - nearest["seeds"]), "more seed")
    return f"Look at {nearest['child']} next: {more} would decide an effect as large as the one seen"


_COLOURS = {"better": "#005f9e", "worse": "#a83c00", "equivalent": "#5d5c55"}
_WIDTH, _HEIGHT = 240, 22


def verdict_html(row: Mapping[str, Any]) -> str:
    """The word with its effect and interval, drawn against the margin, and why."""
    colour = _COLOURS.get(row["verdict"], "#7a5200")
    effect = f"{signed(row['effect'])} [{signed(row['low'])}, {signed(row['high'])}]"
    facts = {"effect": effect, "p": p_value(row["p"]), "seeds": row["seeds"], "items": f"{row['items']:,}"}
    if row.get("margin") is not None:
        facts["margin"] = row["margin"]
    changes = "".join(
        f"<li>{escape(str(of['key']))}: {escape(str(of['from']))} → {escape(str(of['to']))}</li>"
        for of in row.get("changes", ())
    )
    return (
        f"<p>{escape(row['child'])} against {escape(row['parent'])}: "
        f'<strong style="color:{colour}">{escape(row["verdict"])}</strong> {_interval(row, colour)}</p>'
        f"<ul>{changes}</ul>{pd.DataFrame([facts]).to_html(index=False, border=0)}<p>{escape(row['reason'])}</p>"
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

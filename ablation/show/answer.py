"""A study's findings in a few short sentences: what helped, hurt or made no difference, and what to look at next."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ablation.show.page.edges import clean_records
from ablation.show.page.format import decimals_for, is_number, number, plural

_OTHER = {
    "confounded": ("mixes several factors", "mix several factors"),
    "invalid": ("cannot be compared", "cannot be compared"),
    "not run": ("still has to run", "still have to run"),
}
NAMED = 2  # edges of each word that are named, the largest effects first; the others are counted


def answer(verdicts: pd.DataFrame, margin: float) -> str:
    """Return a few sentences on the judged edges of one study.

    Args:
        verdicts: a row per edge, as `ablation.judge.verdicts.edge_table` returns them.
        margin: the largest difference that the analysis plan does not count, in units of the effect.
    """
    rows = clean_records(verdicts)
    of_word = {word: [row for row in rows if row["verdict"] == word] for word in {row["verdict"] for row in rows}}
    known = [row for row in rows if is_number(row.get("low")) and is_number(row.get("high"))]
    decimals = decimals_for([(row["high"] - row["low"]) / 2 for row in known] or [margin], least=3)
    parts = [part for word in ("better", "worse") for part in _moved(word, of_word.get(word, ()), decimals)]
    if same := of_word.get("equivalent"):
        parts.append(
            f"{plural(len(same), 'change')} {'makes' if len(same) == 1 else 'make'} no difference{_cost(same)}"
        )
    if undecided := of_word.get("undecided"):
        parts += _open(undecided)
    for word, (one, many) in _OTHER.items():
        if found := of_word.get(word):
            parts.append(f"{plural(len(found), 'change')} {one if len(found) == 1 else many}{_cost(found)}")
    return ". ".join(parts) + "." if parts else "Nothing has been judged yet."


def _moved(word: str, rows: Sequence[Mapping[str, Any]], decimals: int) -> list[str]:
    rows = sorted(rows, key=lambda row: -abs(row["effect"]))
    named = [
        f"{row['child']} is {word} than {row['parent']} by {number(abs(row['effect']), decimals)} "
        f"[{', '.join(number(bound, decimals) for bound in sorted((abs(row['low']), abs(row['high']))))}]" + _rails(row)
        for row in rows[:NAMED]
    ]
    more = rows[NAMED:]
    return named + ([f"{len(more)} more {'is' if len(more) == 1 else 'are'} {word}{_cost(more)}"] if more else [])


def _rails(row: Mapping[str, Any]) -> str:
    """What the guardrails of an edge add to its verdict, unless all hold."""
    said = row.get("guardrails") or ""
    return "" if said in ("", "guardrails hold") else f", {said}"


def _cost(rows: Sequence[Mapping[str, Any]]) -> str:
    """How many of these edges made a guardrail worse."""
    lost = sum(_rails(row).startswith(", but worse") for row in rows)
    return f", {f'{lost} of them ' * (len(rows) > 1)}worse in a guardrail" if lost else ""


def _open(rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Count the undecided edges, and name the one that needs the fewest more seeds if its effect is as observed."""
    text = f"{plural(len(rows), 'change')} {'is' if len(rows) == 1 else 'are'} undecided{_cost(rows)}"
    priced = [row for row in rows if is_number(row.get("seeds_needed")) and row["seeds_needed"] > row["seeds"]]
    if not priced:
        return [text]
    nearest = min(priced, key=lambda row: row["seeds_needed"] - row["seeds"])
    more = plural(int(nearest["seeds_needed"] - nearest["seeds"]), "more seed")
    return [text, f"Look at {nearest['child']} next: {more} would decide an effect as large as the one seen"]

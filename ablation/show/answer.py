"""What a study found, in one sentence: what helped, what hurt, what made no difference, and what is open."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from ablation.show.page.edges import clean_records
from ablation.show.page.format import decimals_for, is_number, number, plural

_OTHER = {
    "confounded": "of several factors at once",
    "invalid": "without comparable results",
    "not run": "not run in full yet",
}
NAMED = 2  # edges of each word that are named, the largest effects first; the others are counted


def answer(verdicts: pd.DataFrame, margin: float) -> str:
    """Return one sentence on the judged edges of one study.

    Args:
        verdicts: a row per edge, as `ablation.judge.verdicts.edge_table` returns them.
        margin: the difference that the analysis plan calls none, in units of the effect.
    """
    rows = clean_records(verdicts)
    of_word = {word: [row for row in rows if row["verdict"] == word] for word in {row["verdict"] for row in rows}}
    known = [row for row in rows if is_number(row.get("low")) and is_number(row.get("high"))]
    decimals = decimals_for([(row["high"] - row["low"]) / 2 for row in known] or [margin], least=3)
    parts = [_moved(word, of_word[word], decimals) for word in ("better", "worse") if word in of_word]
    if same := of_word.get("equivalent"):
        makes = "makes" if len(same) == 1 else "make"
        parts.append(f"{plural(len(same), 'change')} {makes} no difference (within ±{margin:g})")
    if undecided := of_word.get("undecided"):
        parts.append(_open(undecided, decided=bool(parts)))
    for word, why in _OTHER.items():
        if found := of_word.get(word):
            parts.append(f"{plural(len(found), 'change')} {'is' if len(found) == 1 else 'are'} {why}")
    return "; ".join(parts) + "." if parts else "Nothing has been judged yet."


def _moved(word: str, rows: Sequence[Mapping[str, Any]], decimals: int) -> str:
    rows = sorted(rows, key=lambda row: -abs(row["effect"]))
    named = [
        f"{row['child']} is {word} than {row['parent']} by {number(abs(row['effect']), decimals)} "
        f"[{', '.join(number(bound, decimals) for bound in sorted((abs(row['low']), abs(row['high']))))}]"
        for row in rows[:NAMED]
    ]
    more = len(rows) - len(named)
    return ", ".join(named) + (f" and {more} more {'is' if more == 1 else 'are'} {word}" if more else "")


def _open(rows: Sequence[Mapping[str, Any]], *, decided: bool) -> str:
    """Count the undecided, and say what the cheapest of them needs, were its effect the one that is seen."""
    text = (
        f"{plural(len(rows), 'change')} undecided" if decided else f"Nothing is decided ({plural(len(rows), 'change')})"
    )
    priced = [row for row in rows if is_number(row.get("seeds_needed")) and row["seeds_needed"] > row["seeds"]]
    if not priced:
        return text
    nearest = min(priced, key=lambda row: row["seeds_needed"] - row["seeds"])
    more = plural(int(nearest["seeds_needed"] - nearest["seeds"]), "more seed")
    return f"{text}, the nearest {nearest['child']}: {more} would show an effect as large as the one seen"

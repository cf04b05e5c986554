"""Findings of a study in short sentences, and HTML for notebooks: a verdict, or the runs of a results folder."""

import math
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any

import pandas as pd

from ablation.config.study_schema import Analysis
from ablation.contract.numbers import decimals_for, estimate, half, is_number, plural, stated
from ablation.judge.comparisons import Comparison, JointSteps
from ablation.show.text import p_value, true_minus
from ablation.store.database import ENDED_WELL

# Words for the number of comparisons with a verdict, in the order of the findings.
_COUNTED = {
    "equivalent": ("is equivalent", "are equivalent"),
    "undecided": ("is undecided", "are undecided"),
    "confounded": ("mixes several factors", "mix several factors"),
    "invalid": ("cannot be compared", "cannot be compared"),
    "not run": ("has not run yet", "have not run yet"),
}


def sentences(texts: Sequence[str]) -> str:
    """Join findings into a paragraph; without findings, return a sentence that nothing has been judged."""
    return ". ".join(texts) + "." if texts else "Nothing has been judged yet."


def findings(rows: Sequence[Mapping[str, Any]], analysis: Analysis, joint: Sequence[JointSteps] = ()) -> list[str]:
    """Return the findings of a study as short sentences without full stops.

    Changes that are better or worse come first, then steps that are significant only together, then the counts of the
    other verdicts.

    Args:
        rows: a record per comparison, with the columns of `ablation.judge.verdicts.comparison_table`.
        analysis: the study's analysis plan.
        joint: the value of `ablation.judge.comparisons.joint_steps`.
    """
    by_verdict = {name: [row for row in rows if row["verdict"] == name] for name in {row["verdict"] for row in rows}}
    ends = map(shown_interval, rows)
    decimals = decimals_for((row["effect"] for row in rows), [half(*each) for each in ends])
    sentences = [_moved(name, by_verdict[name], decimals) for name in ("better", "worse") if name in by_verdict]
    sentences += map(steps_in_words, joint)
    for name, (one, many) in _COUNTED.items():
        if counted := by_verdict.get(name):
            sentence = f"{plural(len(counted), 'change')} {one if len(counted) == 1 else many}"
            if name == "equivalent":
                sentence += _within(counted, analysis)
            sentence += _cost(counted)
            if name == "undecided" and (step := next_step(counted)):
                sentence += f"; {step}"
            sentences.append(sentence)
    return sentences


def shown_interval(row: Mapping[str, Any]) -> tuple[float | None, float | None]:
    """Return the interval that agrees with a row's verdict: the interval corrected for all comparisons, if any.

    For `equivalent`, which is judged without a correction, it is the uncorrected interval.
    """
    joint = row.get("joint_low"), row.get("joint_high")
    return joint if row["verdict"] != "equivalent" and is_number(joint[0]) else (row.get("low"), row.get("high"))


def interval_of(comparison: Comparison) -> tuple[float, float]:
    """Return the interval that agrees with the verdict of a comparison; both ends are NaN if there is no interval."""
    row = {name: getattr(comparison, name) for name in ("verdict", "low", "high", "joint_low", "joint_high")}
    low, high = (math.nan if end is None else end for end in shown_interval(row))
    return low, high


def effect_decimals(comparisons: Iterable[Comparison]) -> int:
    """Return the number of decimals for the effects and intervals of comparisons that are shown together."""
    shown = list(comparisons)
    return decimals_for((each.effect for each in shown), [half(*interval_of(each)) for each in shown])


def interval_words(comparisons: Sequence[Comparison]) -> str:
    """Return the scope of the shown intervals, such as `for all 5 at once`; empty if they are not adjusted."""
    correction = comparisons[0].correction
    if correction.name in ("one", "none"):
        return ""
    return (
        "(adjusted for the false discovery rate)"
        if correction.name == "bh"
        else f"for all {len(correction.tested)} at once"
    )


def _moved(verdict: str, rows: Sequence[Mapping[str, Any]], decimals: int) -> str:
    """Return a sentence that names the largest of the effects `rows` and counts the other effects."""
    first, *more = sorted(rows, key=lambda row: -abs(row["effect"]))
    sign = 1 if verdict == "better" else -1
    low, high = (None if end is None else sign * end for end in shown_interval(first)[::sign])
    effect, interval = estimate(sign * first["effect"], low, high, decimals, sign="")
    said = f"{first['child']} is {verdict} than {first['parent']} by {effect} {interval}"
    others = f"; {len(more)} more {'is' if len(more) == 1 else 'are'} {verdict}{_cost(more)}" if more else ""
    return f"{said}{_rails(first)}{others}"


def _within(rows: Sequence[Mapping[str, Any]], analysis: Analysis) -> str:
    """Return a clause on the margin, and on how many equivalent variants are significantly worse or better."""
    shown = [row for row in rows if is_number(row.get("p_adjusted")) and row["p_adjusted"] <= analysis.alpha]
    said = f" (within {stated(analysis.margin)})"
    for sign, verdict in ((-1, "worse"), (1, "better")):
        if count := sum(sign * row["effect"] > 0 for row in shown):
            those = f", {'one' if count == 1 else count} of them" if len(rows) > 1 else ", but"
            said += f"{those} {verdict} by less than the margin"
    return said


def _rails(row: Mapping[str, Any]) -> str:
    """Return the clause that guardrails add to a comparison's verdict; empty if all guardrails hold."""
    said = row.get("guardrails") or ""
    return "" if said in ("", "guardrails hold") else f", {said}"


def _cost(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a clause on how many comparisons are worse in a guardrail; empty if none is."""
    lost = sum(" worse in " in _rails(row) for row in rows)
    alone = "and" if rows[0]["verdict"] == "worse" else "but"
    return f", {f'{lost} of them' if len(rows) > 1 else alone} worse in a guardrail" if lost else ""


def nearest_decision(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the undecided comparison that needs the fewest additional seeds; None if no such number is known."""
    priced = [
        row
        for row in rows
        if row["verdict"] == "undecided" and is_number(row.get("seeds_needed")) and row["seeds_needed"] > row["seeds"]
    ]
    return min(priced, key=lambda row: row["seeds_needed"] - row["seeds"], default=None)


def next_step(rows: Sequence[Mapping[str, Any]]) -> str:
    """Return a clause on the seeds that would settle the nearest undecided comparison; empty if none is known."""
    nearest = nearest_decision(rows)
    if nearest is None:
        return ""
    more = plural(int(nearest["seeds_needed"] - nearest["seeds"]), "more seed")
    return f"about {more} would settle {nearest['child']} if the true effect equals the estimate"


def steps_in_words(steps: JointSteps) -> str:
    """Return a sentence on steps that are significant together although no single step is."""
    effect, interval = estimate(steps.effect, steps.low, steps.high)
    verdict = "better" if steps.effect > 0 else "worse"
    together = f"{steps.child} is {verdict} than {steps.ancestor}: {effect} {interval}"
    return f"{together}, but none of the {steps.steps} steps on the path is significant"


_COLOURS = {"better": "#005f9e", "worse": "#a83c00", "equivalent": "#5d5c55"}
_WIDTH, _HEIGHT = 240, 22


def verdict_html(row: Mapping[str, Any]) -> str:
    """Return a verdict as HTML: the effect with its interval and margin as a picture, numbers, and the reason."""
    colour = _COLOURS.get(row["verdict"], "#7a5200")
    row = {**row, **dict(zip(("low", "high"), shown_interval(row), strict=True))}
    effect = true_minus(" ".join(estimate(row["effect"], row["low"], row["high"])))
    p = row.get("p_adjusted", row["p"])
    facts = {"effect": effect, "p": p_value(p), "seeds": row["seeds"], "items": f"{row['items']:,}"}
    if row.get("margin") is not None:
        facts["margin"] = row["margin"]
    changes = "".join(
        f"<li>{escape(str(change['key']))}: {escape(str(change['from']))} → {escape(str(change['to']))}</li>"
        for change in row.get("changes", ())
    )
    return (
        f"<p>{escape(row['child'])} against {escape(row['parent'])}: "
        f'<strong style="color:{colour}">{escape(row["verdict"])}</strong> {_interval(row, colour)}</p>'
        f"<ul>{changes}</ul>{pd.DataFrame([facts]).to_html(index=False, border=0)}<p>{escape(row['reason'])}</p>"
    )


def _interval(row: Mapping[str, Any], colour: str) -> str:
    """Draw the interval as SVG: a line with a dot for the effect, over a band for the margin, with 0 in the middle."""
    low, effect, high, margin = (row.get(name) for name in ("low", "effect", "high", "margin"))
    if not (is_number(low) and is_number(effect) and is_number(high)):
        return ""
    band = margin if is_number(margin) else 0.0
    half = 1.1 * max(abs(low), abs(high), band) or 1.0
    x = {name: _WIDTH / 2 * (1 + value / half) for name, value in (("low", low), ("high", high), ("effect", effect))}
    left, wide, middle = _WIDTH / 2 * (1 - band / half), _WIDTH * band / half, _HEIGHT / 2
    label = true_minus(estimate(effect, low, high)[1])
    return (
        f'<svg width="{_WIDTH}" height="{_HEIGHT}" role="img" aria-label="interval {label}">'
        f'<rect x="{left:.1f}" width="{wide:.1f}" height="{_HEIGHT}" fill="#8883"/>'
        f'<path d="M{_WIDTH / 2} 0V{_HEIGHT}" stroke="#888"/>'
        f'<path d="M{x["low"]:.1f} {middle}H{x["high"]:.1f}" stroke="{colour}" stroke-width="2"/>'
        f'<circle cx="{x["effect"]:.1f}" cy="{middle}" r="4" fill="{colour}"/></svg>'
    )


def results_html(runs: pd.DataFrame, scale: str) -> str:
    """Return an HTML table with a row per study: the numbers of variants, runs, and runs that succeeded."""
    well = runs.assign(well=runs["state"].isin(ENDED_WELL)).groupby("study", sort=False)
    counts = well.agg(variants=("variant", "nunique"), runs=("seed", "size"), ok=("well", "sum"))
    return f"<p>scale {escape(scale)}</p>{counts.to_html()}"

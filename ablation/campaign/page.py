"""Writes the report of a campaign as one HTML file that opens offline, with a figure of its champions."""

import html
import io
from pathlib import Path
from typing import TYPE_CHECKING

from ablation.campaign.campaign import Campaign
from ablation.campaign.report import in_words, path
from ablation.contract.atomic import write_text

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PAGE = """<!doctype html>
<html lang="en"><meta charset="utf-8"><title>Campaign: {metric}</title>
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'; img-src data:">
<style>
body {{ font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #222 }}
pre {{ overflow-x: auto; font-size: 13px }} svg {{ width: 100%; height: auto }}</style>
<h1>Campaign: {metric}</h1>
{figure}
<pre>{text}</pre></html>
"""


def write_page(campaign: Campaign, file: Path) -> None:
    """Write the report of a campaign as a page. Raises WriteError."""
    metric, text = html.escape(campaign.settings.metric), html.escape(in_words(campaign))
    drawn = io.StringIO()
    staircase(campaign).savefig(drawn, format="svg", metadata={"Date": None})
    picture = drawn.getvalue()
    write_text(file, _PAGE.format(metric=metric, figure=picture[picture.index("<svg") :], text=text))


def staircase(campaign: Campaign) -> "Figure":
    """Return a figure of all trials over runs, with the values of the provisional and the verified champion."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    from ablation.show.figure_style import MUTED, PALETTE, RC

    runs = [event for event in campaign.ledger.events if event["event"] == "run"]
    first = [campaign.known[run]["value"] for run in campaign.baseline() if not run[0]]
    base = sum(first) / len(first)
    steps: dict[str, tuple[list[int], list[float]]] = {"provisional": ([0], [base]), "verified": ([0], [base])}
    values = {campaign.commits["base"]: base}
    for row in path(campaign):
        if row["value"] is not None and row["word"] != "back":
            values[row["commit"]] = row["value"]
        for name, commit in (("provisional", row["commit"]), ("verified", row["verified"])):
            steps[name][0].append(row["run"])
            steps[name][1].append(values.get(commit, base))
    heights = [height for _, each in steps.values() for height in each]
    low, high = min(heights), max(heights)
    room = max(high - low, 1e-9)  # a trial that collapsed is not drawn: it would flatten all else
    made = [(n, run["value"]) for n, run in enumerate(runs, 1) if run["purpose"] == "screen"]
    near = [(n, value) for n, value in made if value is not None and low - room <= value <= high + room]
    with rc_context({**RC, "svg.hashsalt": "ablation"}):
        figure = Figure(figsize=(8, 3.2), layout="constrained")
        axes = figure.add_subplot()
        axes.plot([n for n, _ in near], [v for _, v in near], "o", color=MUTED, ms=2, label="trials, one run each")
        for (name, (places, each)), colour, width in zip(steps.items(), PALETTE, (1.0, 2.2), strict=False):
            ends = [*places, len(runs)], [*each, each[-1]]
            axes.step(*ends, where="post", color=colour, linewidth=width, label=name)
        axes.set_xlabel("runs")
        axes.set_ylabel(campaign.settings.metric)
        axes.legend()
    return figure

"""Report the state of a campaign, in words, for programs and as a page: two champions, the claims, and the runs."""

import html
import io
import math
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablation.campaign.campaign import Campaign
from ablation.campaign.policy import Verification
from ablation.campaign.runs import items_of
from ablation.campaign.trial import next_step, verification_fields
from ablation.contract.atomic import write_text
from ablation.contract.display import aligned, one_line
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import (
    alone,
    counted,
    decimals_for,
    duration,
    estimate,
    fixed,
    half,
    percent,
    rough,
    stated,
)
from ablation.contract.reading import read_json, sha256

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_PURPOSES = {"baseline": "baseline", "screen": "trials", "again": "re-measuring", "verify": "verification"}
_NAMED = 3  # items that changed most, in each direction
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


def summary(campaign: Campaign) -> dict[str, Any]:
    """Return the report of a campaign as fields for programs; gains are positive if the metric improves."""
    state, sign = campaign.state, campaign.settings.sign
    claims = [done for done in state.verifications if done.shown and done.margin is None]
    spent = Counter(run["purpose"] for run in campaign.known.values())
    words = Counter(t["decision"]["word"] for t in campaign.trials if t["event"] == "trial" and "decision" in t)
    half, measured = 1.96 * math.hypot(*(done.error for done in claims)), sum(done.gain for done in claims)
    first = {run["code"]: run["value"] for run in reversed(campaign.known.values()) if not run["verify"]}
    variance, freedom = state.pool.noise()
    champions = {"provisional": state.provisional, "verified": state.verified}
    fresh = {name: state.pool.runs[code] for name, code in champions.items()}
    left = campaign.left()
    return {
        "metric": campaign.settings.metric,
        "direction": campaign.settings.direction,
        "noise": math.sqrt(variance),
        "noise_freedom": freedom,
        "champions": {
            name: {"commit": campaign.commits[code], "mean": sign * fresh[name].mean, "fresh_runs": fresh[name].n}
            for name, code in champions.items()
        },
        "trials": sum(words.values()),
        "outcomes": dict(words),
        "verified_gain": sum(done.stated for done in claims),
        "measured_gain": measured,
        "interval": [measured - half, measured + half] if claims else None,
        "kept_gain": sign * (first[state.provisional] - first["base"]) + 0.0,  # of single runs; never -0
        "verifications": [verification_fields(campaign, done) for done in state.verifications],
        "changed_items": {campaign.commits[done.new]: changed_items(campaign, done) for done in claims},
        "false_share": {"allowed": campaign.rules.alpha, "spent": state.levels.spent},
        "next_level": state.levels.next(),
        "runs": {_PURPOSES[purpose]: spent[purpose] for purpose in _PURPOSES},
        "hours": campaign.seconds() / 3600,
        "runs_left": None if math.isinf(left) else int(left),
        "runs_per_hour": 3600 / campaign.of_a_run(),
        "interrupted": sum(event["event"] == "interrupted" for event in campaign.ledger.events),
        "ledger": {"lines": len(campaign.ledger.events), "head": campaign.ledger.last},
        "path": path(campaign),
    }


def changed_items(campaign: Campaign, done: Verification) -> dict[str, float]:
    """Return {item: mean change} of the items that improved most, then of those that worsened most, in a verification.

    Empty if a file of items is missing. Raises ConfigError if such a file has changed.
    """
    total: dict[str, float] = {}
    for (verify, code, seed), run in campaign.known.items():
        pair = (verify, done.old, seed), (verify, done.new, seed)
        if "items" in run and run["purpose"] == "verify" and code == done.new and pair[0] in campaign.known:
            for side, each in zip((-1, 1), pair, strict=True):
                file = items_of(campaign.repository, each)
                if not file.exists():
                    return {}
                if sha256(file) != campaign.known[each]["items"]["sha256"]:
                    raise ConfigError(file, "", None, "has changed since the run wrote it", "restore it")
                for item, value in read_json(file).items():
                    total[item] = total.get(item, 0.0) + campaign.settings.sign * side * value / done.pairs
    ordered = sorted(total.items(), key=lambda pair: -pair[1])
    up = [(item, change) for item, change in ordered[:_NAMED] if change > 0]
    return dict(up + [(item, change) for item, change in ordered[::-1][:_NAMED] if change < 0])


def path(campaign: Campaign) -> list[dict[str, Any]]:
    """Return a record for each decision that changed a champion, in order.

    Its keys: run (number of runs so far), word, commit and verified (both champions), value, why and gain.
    """
    runs, rows = 0, []
    decided = {trial["decision"]["n"]: trial for trial in campaign.trials if "decision" in trial}
    for event in campaign.ledger.events:
        runs += event["event"] == "run"
        if (trial := decided.get(event["n"])) and event["word"] in ("step", "verified", "back"):
            result = trial["result"]
            again = None if isinstance(result, Verification) else result.again
            done = result if isinstance(result, Verification) else result.verification
            own = {"run": runs, "word": event["word"], "commit": event["provisional"], "verified": event["verified"]}
            value = None if again is None else campaign.settings.sign * again
            gain = done.stated if done and done.shown and done.margin is None else None
            rows.append({**own, "value": value, "why": trial["why"], "gain": gain})
    return rows


def in_words(campaign: Campaign) -> str:
    """Return the report of a campaign as text."""
    facts, settings, exact = summary(campaign), campaign.settings, campaign.state.exact
    better = "smaller" if settings.direction == "min" else "larger"
    noise = (
        f"the standard deviation between runs is {rough(facts['noise'])} ({facts['noise_freedom']} degrees of freedom)"
    )
    rows = [
        (f"{name} champion", each["commit"][:9], stated(each["mean"]), counted(each["fresh_runs"], "fresh run"))
        for name, each in facts["champions"].items()
    ]
    first = f"{settings.metric}, {better} is better; {counted(facts['trials'], 'trial')}; {noise}"
    lines = [first, "", *aligned(rows, (False, False, True, True)), ""]
    gain, kept = "verified gain: none yet", alone(facts["kept_gain"], "+")
    if facts["interval"]:
        low, high = facts["interval"]
        decimals = decimals_for((facts["measured_gain"], low, high), [half(low, high)])
        verified, kept = (fixed(facts[name], decimals, "+") for name in ("verified_gain", "kept_gain"))
        measured = " ".join(estimate(facts["measured_gain"], low, high))
        gain = f"verified gain {verified} (measured {measured} in verifications)"
    lines.append(f"{gain}; the first runs alone would suggest {kept}")
    if exact:
        lines[-1] = (
            "All runs of a commit give the same value, so differences are exact for this machine and these data,\n"
        )
        lines[-1] += (
            "but nothing is claimed about other machines or data. To make claims possible, pass seeds with --seed-arg."
        )
    share, verifications = facts["false_share"], facts["verifications"]
    made = f"{counted(sum(done['shown'] for done in verifications), 'claim')} from "
    made += f"{counted(len(verifications), 'verification')}; bound on the expected share of false claims: "
    bounds = f"{percent(share['spent'], 1)} so far ({percent(share['allowed'])} allowed)"
    lines.append(f"{made}{bounds}; the next verification has the significance level {rough(facts['next_level'])}")
    spent = ", ".join(f"{name} {number}" for name, number in facts["runs"].items())
    lines.append(f"runs: {spent}; {duration(3600 * facts['hours'])} in all")
    left = "" if facts["runs_left"] is None else f"; runs left in the budget: {facts['runs_left']:,}"
    lines.append(f"next: {next_step(campaign)}; runs per hour: about {fixed(facts['runs_per_hour'], 0)}{left}")
    if not (settings.seed_arg or settings.seed_env or exact):
        lines.append(
            "the command takes no seed, so claims hold only for the seed that its code fixes; pass seeds with "
            "--seed-arg"
        )
    if facts["interrupted"]:
        lines.append(f"{counted(facts['interrupted'], 'run')} ended without a record and had to be restarted")
    lines.append("")
    if facts["path"]:
        table = [("run", "champion", "fresh mean", "", "")]
        for row in facts["path"]:
            value = "" if row["value"] is None else stated(row["value"])
            word = {"step": "provisional", "back": "back to verified"}.get(row["word"], row["word"])
            word += "" if row["gain"] is None else f" {alone(row['gain'], '+')}"
            table.append((str(row["run"]), row["commit"][:9], value, word, one_line(row["why"], 60)))
        lines += [*aligned(table, (True, False, True, False, False)), ""]
    for commit, items in facts["changed_items"].items():
        if items:
            changes = ", ".join(f"{one_line(item, 40)} {alone(change, '+')}" for item, change in items.items())
            lines.append(f"items that changed most in {commit[:9]}: {changes}")
    lines.append(f"ledger: {facts['ledger']['lines']} lines, hash of the last line {facts['ledger']['head'][:12]}")
    return "\n".join(lines)


def write_page(campaign: Campaign, file: Path) -> None:
    """Write the report of a campaign as a page. Raises WriteError if the page cannot be written."""
    metric, text = html.escape(campaign.settings.metric), html.escape(in_words(campaign))
    drawn = io.StringIO()
    staircase(campaign).savefig(drawn, format="svg", metadata={"Date": None})
    picture = drawn.getvalue()
    write_text(file, _PAGE.format(metric=metric, figure=picture[picture.index("<svg") :], text=text))


def staircase(campaign: Campaign) -> "Figure":
    """Return a figure of both champions' values over runs, with a dot for each trial's first run, except outliers."""
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

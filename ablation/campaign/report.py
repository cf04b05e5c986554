"""The state of a campaign in words and for programs: two champions, what may be claimed, what runs were spent on."""

import math
from collections import Counter
from typing import Any

from ablation.campaign.campaign import Campaign
from ablation.campaign.policy import Verification
from ablation.campaign.trial import next_step, shown, verification_fields
from ablation.contract.display import aligned, counted, duration

_PURPOSES = {"baseline": "baseline", "screen": "trials", "again": "re-measuring", "verify": "verification"}


def summary(campaign: Campaign) -> dict[str, Any]:
    """Return what the report says, for programs. Gains are positive where the metric improves."""
    state, sign = campaign.state, campaign.settings.sign
    claims = [done for done in state.verifications if done.shown and done.margin is None]
    spent = Counter(run["purpose"] for run in campaign.known.values())
    words = Counter(t["decision"]["word"] for t in campaign.trials if t["event"] == "trial" and "decision" in t)
    variance = sum(done.error**2 for done in claims)
    half = 1.96 * math.sqrt(variance)
    fresh = {name: state.pool.of[code] for name, code in _champions(campaign).items()}
    left = campaign.left()
    return {
        "metric": campaign.settings.metric,
        "direction": campaign.settings.direction,
        "noise": math.sqrt(state.pool.noise()[0]),
        "noise_freedom": state.pool.noise()[1],
        "champions": {
            name: {"commit": campaign.commits[code], "mean": sign * fresh[name].mean, "fresh_runs": fresh[name].n}
            for name, code in _champions(campaign).items()
        },
        "trials": sum(words.values()),
        "outcomes": dict(words),
        "verified_gain": sum(done.stated for done in claims),
        "measured_gain": sum(done.gain for done in claims),
        "interval": [sum(d.gain for d in claims) - half, sum(d.gain for d in claims) + half] if claims else None,
        "kept_gain": _kept_gain(campaign),
        "verifications": [verification_fields(campaign, done) for done in state.verifications],
        "false_share_allowed": campaign.rules.alpha,
        "next_level": state.levels.next(),
        "runs": {_PURPOSES[purpose]: spent[purpose] for purpose in _PURPOSES},
        "hours": campaign.seconds(spent=True) / 3600,
        "runs_left": None if math.isinf(left) else int(left),
        "runs_per_hour": 3600 / campaign.seconds(),
        "interrupted": sum(event["event"] == "interrupted" for event in campaign.ledger.events),
        "ledger": {"lines": len(campaign.ledger.events), "head": campaign.ledger.last},
        "path": path(campaign),
    }


def _champions(campaign: Campaign) -> dict[str, str]:
    return {"provisional": campaign.state.provisional, "verified": campaign.state.verified}


def _kept_gain(campaign: Campaign) -> float:
    """Return the gain that keep-if-better would report: the provisional champion's first run over the baseline's."""
    first = {run["code"]: run["value"] for run in reversed(campaign.known.values()) if not run["verify"]}
    return float(campaign.settings.sign * (first[campaign.state.provisional] - first["base"]))


def path(campaign: Campaign) -> list[dict[str, Any]]:
    """Return the champions in order: at which run, with which value, and whether verified."""
    runs, rows = 0, []
    decided = {trial["decision"]["n"]: trial for trial in campaign.trials if "decision" in trial}
    sign = campaign.settings.sign
    for event in campaign.ledger.events:
        runs += event["event"] == "run"
        if (trial := decided.get(event["n"])) and event["word"] in ("step", "verified", "back"):
            result = trial["result"]
            done = result if isinstance(result, Verification) else result.verification
            value = None if isinstance(result, Verification) or result.again is None else sign * result.again
            rows.append(
                {
                    "run": runs,
                    "word": event["word"],
                    "commit": event["provisional"],
                    "verified": event["verified"],
                    "value": value,
                    "why": trial["why"],
                    "gain": done.stated if done and done.shown and done.margin is None else None,
                }
            )
    return rows


def in_words(campaign: Campaign) -> str:
    """Return the report as text."""
    told, settings = summary(campaign), campaign.settings
    better = "smaller" if settings.direction == "min" else "larger"
    noise = f"one run has sd {told['noise']:.3g} ({told['noise_freedom']} degrees of freedom)"
    lines = [f"{settings.metric}, {better} is better; {counted(told['trials'], 'trial')}; {noise}", ""]
    rows = []
    for name, champion in told["champions"].items():
        cells = (champion["commit"][:9], shown(champion["mean"]), counted(champion["fresh_runs"], "fresh run"))
        rows.append((f"{name} champion", *cells))
    lines += aligned(rows, (False, False, True, True))
    lines.append("")
    if campaign.state.exact:
        lines.append("Runs of one commit are equal: differences are exact for this machine and these data, and nothing")
        lines.append("is claimed about others. A command that takes a seed (--seed-arg) makes claims possible.")
    elif told["interval"]:
        low, high = told["interval"]
        measured = f"measured {told['measured_gain']:+.3g} [{low:+.3g}, {high:+.3g}] in verifications"
        lines.append(
            f"verified gain {told['verified_gain']:+.3g} ({measured}); first runs said {told['kept_gain']:+.3g}"
        )
    else:
        lines.append(f"verified gain: none yet; first runs said {told['kept_gain']:+.3g}")
    shown_count = sum(done["shown"] for done in told["verifications"])
    made = counted(len(told["verifications"]), "verification")
    allowed = f"at most {told['false_share_allowed']:.0%} of claims are false in the long run"
    lines.append(
        f"{counted(shown_count, 'claim')} of {made}; {allowed}; the next one is tested at {told['next_level']:.2g}"
    )
    spent = ", ".join(f"{number} {name}" for name, number in told["runs"].items())
    lines.append(f"runs: {spent}; {duration(3600 * told['hours'])} in all")
    lines.append(f"next: {next_step(campaign)}; an hour is {told['runs_per_hour']:.0f} runs{_left(told)}")
    if not (settings.seed_arg or settings.seed_env) and not campaign.state.exact:
        lines.append(
            "the command takes no seed, so claims hold only for the seed that it fixes; pass seeds with --seed-arg"
        )
    if told["interrupted"]:
        lines.append(f"{counted(told['interrupted'], 'run')} ended without a record and started again")
    lines += ["", *_path_lines(told), f"ledger: {told['ledger']['lines']} lines, head {told['ledger']['head'][:12]}"]
    return "\n".join(lines)


def _left(told: dict[str, Any]) -> str:
    return "" if told["runs_left"] is None else f", and the budget holds {told['runs_left']:,}"


def _path_lines(told: dict[str, Any]) -> list[str]:
    if not told["path"]:
        return []
    rows = [("run", "champion", "fresh mean", "", "")]
    for row in told["path"]:
        value = "" if row["value"] is None else shown(row["value"])
        gain = "" if row["gain"] is None else f" {row['gain']:+.3g}"
        word = {"step": "provisional", "back": "back to verified"}.get(row["word"], row["word"]) + gain
        rows.append((str(row["run"]), row["commit"][:9], value, word, row["why"][:60]))
    return [*aligned(rows, (True, False, True, False, False)), ""]

"""`results.tsv`, the table of trials in the loop's own format, as the ledger tells it."""

import sys

from ablation.campaign.campaign import Campaign
from ablation.contract.atomic import WriteError, write_text
from ablation.contract.reading import read_text

_STATUS = {"step": "keep", "verified": "keep", "crash": "crash"}


def results_text(campaign: Campaign) -> str:
    """Return the table: commit, metric, memory, status and description of the baseline and each decided trial."""
    lines = [f"commit\t{campaign.settings.metric}\tmemory_gb\tstatus\tdescription"]
    base = campaign.known[False, "base", 0]
    lines.append(_row(base["commit"], base["value"], base.get("memory_gb"), "keep", "baseline"))
    first = {run["code"]: run for run in reversed(campaign.known.values()) if not run["verify"]}
    for trial in campaign.trials:
        if trial["event"] == "trial" and (decided := trial.get("decision")):
            run = first.get(trial["code"], {})
            why = " ".join(trial["why"].split())
            if reason := decided.get("reason"):
                why = f"refused: {reason} ({why})"
            status = _STATUS.get(decided["word"], "discard")
            lines.append(_row(trial["commit"], run.get("value"), run.get("memory_gb"), status, why))
    return "\n".join(lines) + "\n"


def _row(commit: str, value: float | None, memory: float | None, status: str, why: str) -> str:
    return f"{commit[:7]}\t{value or 0.0:.6f}\t{memory or 0.0:.1f}\t{status}\t{why}"


def write_results(campaign: Campaign) -> None:
    """Bring the table up to date, unless the loop writes that file, too. It is only a view: a failure is said."""
    path, text = campaign.repository.root / campaign.settings.results, results_text(campaign)
    try:
        ours = not path.exists() or text.startswith(read_text(path))
    except (OSError, ValueError):
        ours = False
    if not ours:
        print(f"{path.name}: left unchanged, because another program writes this file too", file=sys.stderr)
        path = path.with_suffix(".referee.tsv")
    try:
        write_text(path, text)
    except WriteError as error:
        print(f"warning: {error}", file=sys.stderr)

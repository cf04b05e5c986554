"""`results.tsv`, the table of trials in the loop's own format, made from the ledger."""

import sys
from typing import Any

from ablation.campaign.campaign import Campaign
from ablation.campaign.settings import TABLE
from ablation.contract.atomic import WriteError, write_text
from ablation.contract.display import one_line
from ablation.contract.reading import read_text

_STATUS = {"step": "keep", "verified": "keep", "crash": "crash"}


def write_table(campaign: Campaign) -> None:
    """Update the table, unless the loop also writes that file. A failure is only printed: the table is a view."""
    first = {run["code"]: run for run in reversed(campaign.known.values()) if not run["verify"]}
    lines = [
        f"commit\t{campaign.settings.metric}\tmemory_gb\tstatus\tdescription",
        _row(first["base"], "keep", "baseline"),
    ]
    for trial in campaign.trials:
        if trial["event"] == "trial" and (decided := trial.get("decision")):
            said = f"refused: {decided['reason']} ({trial['why']})" if "reason" in decided else trial["why"]
            lines.append(_row({**trial, **first.get(trial["code"], {})}, _STATUS.get(decided["word"], "discard"), said))
    path, text = campaign.repository.root / TABLE, "\n".join(lines) + "\n"
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


def _row(run: dict[str, Any], status: str, said: str) -> str:
    value, memory = run.get("value") or 0.0, run.get("memory_gb") or 0.0
    return f"{run['commit'][:7]}\t{value:.6f}\t{memory:.1f}\t{status}\t{one_line(said, 300)}"

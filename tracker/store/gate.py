"""The final gate: a grid goes on past a failure, and its last job says so with its exit status."""

from pathlib import Path

from tracker.store.database import Store
from tracker.store.progress import FAILED


def gate(database: Path) -> tuple[str, bool]:
    """Return (report, whether everything that was run is ok). Stages that never ran are counted, and are no failure."""
    with Store(database) as store:
        stages = store.stages()
    failed = stages[stages["state"].isin(FAILED)]
    waiting = int(stages["state"].isin(["missing", "running"]).sum())
    done = int((stages["state"] == "ok").sum())
    lines = []
    for state in FAILED:
        for stage in failed[failed["state"] == state].to_dict("records"):
            identity = stage["study"] if stage["study"] == stage["stage"] else f"{stage['study']}.{stage['stage']}"
            lines.append(
                f"{state}: {identity} {stage['label']}: {stage['reason'] or 'no reason given'} ({stage['dir']})"
            )
    counts = f"{done} stages ok, {len(failed)} not" + (f", {waiting} not run" if waiting else "")
    if lines:
        lines.append("`snakemake ... --config retry=failed` runs these again")
    return "\n".join([*lines, counts]) + "\n", failed.empty

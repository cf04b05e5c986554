"""Lists failed stages: a grid goes on past a failure, and the exit status of its last job reports it."""

from pathlib import Path

from ablation.contract.errors import ConfigError
from ablation.contract.status import FAILED, TO_COME
from ablation.store.database import Store


def failures(database: Path) -> tuple[str, bool]:
    """Return (report, whether everything that ran is ok). Stages that never ran are counted, but are not failures.

    Raises ConfigError if none has run.
    """
    query = """SELECT state, study, stage, label, reason, dir FROM stages
               WHERE study NOT IN (SELECT study FROM studies WHERE definition->>'imported' <> '') ORDER BY rowid"""
    with Store(database) as store:
        stages = store.rows(query)[1]
    failed = [row for state in FAILED for row in stages if row[0] == state]
    done, waiting = (sum(row[0] in states for row in stages) for states in (("ok",), TO_COME))
    if not done and not failed:
        remedy = "run `snakemake`; for imported runs, `ablation gate STUDY`"
        raise ConfigError(database, "stages", None, "no stage of a plan has run", remedy)
    lines = []
    for state, study, stage, label, reason, folder in failed:
        identity = study if study == stage else f"{study}.{stage}"
        lines.append(f"{state}: {identity} {label}: {reason or 'no reason given'} ({folder})")
    counts = f"{done} stages ok, {len(failed)} not" + (f", {waiting} not run" if waiting else "")
    if lines:
        lines.append("`snakemake ... --config retry=failed` runs these again")
    return "\n".join([*lines, counts]) + "\n", not failed

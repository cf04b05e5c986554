"""What a finished grid cost: CPU and wall time by study and stage, and what its runs would cost with nothing shared.

    python benchmarks/grid.py results             # after `make grid`

Every figure is a sum over `status.json` of stages that ran: nothing is run here. `alone` counts a stage once for each
run that needs it: what the variants would cost if each were started by itself with a seed, in a folder of its own.
Snakemake, the fork server's imports, collecting and the report are not in it. Stages that have not ended ok are left
out, and counted on stderr.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python benchmarks/grid.py` finds the project

from ablation.plan.collected import PLAN_FILE  # noqa: E402
from ablation.plan.plan_file import PlanFile, read_plan  # noqa: E402


def users_of(plan: PlanFile) -> dict[str, int]:
    """Return stage key -> number of runs that need it, assets included."""
    by_folder = {stage.dir: stage for stage in plan.stages}
    by_key = {stage.key: stage for stage in plan.stages}
    users: dict[str, int] = defaultdict(int)
    for study in plan.studies:
        for run in study.runs:
            needed, open_ = set(), list(run.stages.values())
            while open_:
                key = open_.pop()
                if key not in needed:
                    needed.add(key)
                    open_ += [by_folder[folder].key for folder in by_key[key].inputs.values() if folder in by_folder]
            for key in needed:
                users[key] += 1
    return users


def table(plan: PlanFile, results: Path) -> pd.DataFrame:
    """Return a row for each study and stage: how many ended ok, their seconds, and those they would take unshared."""
    users, folders, rows = users_of(plan), plan.folders(results), []
    for stage in plan.stages:
        try:
            status = json.loads((folders[stage.key] / "status.json").read_text(encoding="utf-8"))
            ended_ok, cpu, wall = status["state"] == "ok", float(status["cpu_s"]), float(status["wall_s"])
        except (OSError, ValueError, KeyError, TypeError):
            continue
        if ended_ok:
            rows.append((stage.study, stage.stage, 1, cpu, wall, cpu * users[stage.key]))
    columns = ["study", "stage", "stages", "cpu", "wall", "alone"]
    return pd.DataFrame(rows, columns=columns).groupby(["study", "stage"]).sum()


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, help="folder of plan.json and the stages")
    results = parser.parse_args().results
    plan = read_plan(results / PLAN_FILE)
    costs = table(plan, results)
    costs.loc[("all", ""), :] = costs.sum()
    print("| study | stage | stages | CPU s | wall s | CPU s alone |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for study, stage, *numbers in costs.reset_index().itertuples(index=False):
        print(f"| {study} | {stage} | {' | '.join(f'{number:.0f}' for number in numbers)} |")
    if missing := len(plan.stages) - int(costs["stages"].iloc[-1]):
        print(f"\n{missing} stages have not ended ok, or do not say what they used.", file=sys.stderr)


if __name__ == "__main__":
    main()

"""Print the CPU and wall time of a finished grid by study and stage, and its cost if runs shared no stages.

    python benchmarks/grid.py results             # after `make grid`

Figures are sums over the `status.json` of stages; nothing is run. The column `CPU s alone` counts a stage once for each
run that needs it, which is the cost if every run had its own folder. Figures do not include Snakemake, the imports of
the fork server, collecting and the report. Stages that have not ended ok are left out; stderr has their number.
"""

import argparse
import json
import sys
from collections import defaultdict
from pathlib import Path

import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python benchmarks/grid.py` finds the project

from ablation.contract.numbers import counted  # noqa: E402
from ablation.plan.collected import PLAN_FILE  # noqa: E402
from ablation.plan.plan_file import PlanFile, read_plan  # noqa: E402


def users_of(plan: PlanFile) -> dict[str, int]:
    """Return {key of a stage or asset: number of runs that need it}."""
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
    """Return a row per study and stage: number of stages that ended ok, CPU and wall seconds, CPU seconds unshared."""
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
    parser.add_argument("results", type=Path, help="folder with plan.json and the stages")
    results = parser.parse_args().results
    plan = read_plan(results / PLAN_FILE)
    costs = table(plan, results)
    costs.loc[("all", ""), :] = costs.sum()
    print("| study | stage | stages | CPU s | wall s | CPU s alone |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for study, stage, *numbers in costs.reset_index().itertuples(index=False):
        print(f"| {study} | {stage} | {' | '.join(f'{number:.0f}' for number in numbers)} |")
    if missing := len(plan.stages) - int(costs["stages"].iloc[-1]):
        print(f"\n{counted(missing, 'stage')} left out: not ended ok, or without times in status.json", file=sys.stderr)


if __name__ == "__main__":
    main()

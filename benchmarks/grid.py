"""What a finished grid cost: CPU and wall time by study and stage, and what its runs would cost with nothing shared.

    python benchmarks/grid.py results             # after `make demo`

Every figure is a sum over `status.json` of stages that ran: nothing is run here. `alone` counts a stage once for each
run that needs it: what the variants would cost if each were started by itself with a seed, in a folder of its own.
Snakemake, the fork server's imports, collecting and the report are not in it. Stages that have not ended ok are left
out, and counted on stderr.
"""

import argparse
import json
import sys
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # so that `python benchmarks/grid.py` finds the project

from ablation.plan.collected import PLAN_FILE  # noqa: E402
from ablation.plan.plan_file import PlanFile, read_plan  # noqa: E402


@dataclass
class Cost:
    """CPU and wall seconds of one stage's process."""

    cpu: float
    wall: float


@dataclass
class Row:
    """The stages of one name in one study: how many there are, what they cost, and what they would cost unshared."""

    stages: int = 0
    cpu: float = 0.0
    wall: float = 0.0
    alone: float = 0.0

    def add(self, cost: Cost, users: int) -> None:
        """Count a stage that `users` runs need."""
        self.stages += 1
        self.cpu += cost.cpu
        self.wall += cost.wall
        self.alone += cost.cpu * users


def read_costs(plan: PlanFile, results: Path) -> dict[str, Cost]:
    """Return stage key -> cost, for stages that ended ok and say what they used."""
    costs = {}
    for key, folder in plan.folders(results).items():
        try:
            status = json.loads((folder / "status.json").read_text(encoding="utf-8"))
            if status["state"] == "ok":
                costs[key] = Cost(float(status["cpu_s"]), float(status["wall_s"]))
        except (OSError, ValueError, KeyError, TypeError):
            continue
    return costs


def users_of(plan: PlanFile) -> dict[str, int]:
    """Return stage key -> number of runs that need it, assets included."""
    of_folder = {stage.dir: stage for stage in plan.stages}
    by_key = {stage.key: stage for stage in plan.stages}
    users: dict[str, int] = defaultdict(int)
    for study in plan.studies:
        for run in study.runs:
            needed, open_ = set(), list(run.stages.values())
            while open_:
                key = open_.pop()
                if key not in needed:
                    needed.add(key)
                    open_ += [of_folder[folder].key for folder in by_key[key].inputs.values() if folder in of_folder]
            for key in needed:
                users[key] += 1
    return users


def table(plan: PlanFile, costs: dict[str, Cost]) -> dict[tuple[str, str], Row]:
    """Return (study, stage) -> row, in the order of the plan."""
    users = users_of(plan)
    rows: dict[tuple[str, str], Row] = defaultdict(Row)
    for stage in plan.stages:
        if stage.key in costs:
            rows[stage.study, stage.stage].add(costs[stage.key], users[stage.key])
    return rows


def main() -> None:
    """Print the table as Markdown."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("results", type=Path, help="folder of plan.json and the stages")
    results = parser.parse_args().results
    plan = read_plan(results / PLAN_FILE)
    costs = read_costs(plan, results)
    rows = table(plan, costs)
    total = Row()
    print("| study | stage | stages | CPU s | wall s | CPU s alone |\n| --- | --- | ---: | ---: | ---: | ---: |")
    for (study, stage), row in sorted(rows.items()):
        print(f"| {study} | {stage} | {row.stages} | {row.cpu:.0f} | {row.wall:.0f} | {row.alone:.0f} |")
        for name in ("stages", "cpu", "wall", "alone"):
            setattr(total, name, getattr(total, name) + getattr(row, name))
    print(f"| all | | {total.stages} | {total.cpu:.0f} | {total.wall:.0f} | {total.alone:.0f} |")
    if missing := len(plan.stages) - len(costs):
        print(f"\n{missing} stages have not ended ok, or do not say what they used.", file=sys.stderr)


if __name__ == "__main__":
    main()

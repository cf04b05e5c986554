"""The command `validate`: checks every variant of every study."""

import argparse
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from ablation.cli.common import add_configs, add_json, print_json
from ablation.cli.configs import settings_of
from ablation.config.variants import load_studies
from ablation.contract.numbers import counted, stated
from ablation.contract.stage_folder import CHECKS, DATABASE

if TYPE_CHECKING:
    from ablation.plan.plan_file import Plan


_COUNTED = ("variant", "run", "stage", "asset")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Check every variant of every study, and count jobs. It needs neither results nor a GPU."
    add_configs(parser)
    add_json(parser)
    parser.add_argument("--write-schema", action="store_true", help="also write configs/schema/*.json for editors")


def run(arguments: argparse.Namespace) -> int:
    """Check everything; print a line per study. The exit status is 1 if the grid would refuse a stage."""
    from ablation.plan.build import build_plan
    from ablation.plan.checks import pool_problems

    settings = settings_of(arguments)
    if arguments.write_schema:
        from ablation.config.schema import write_schemas

        for path in write_schemas(load_studies(settings).values(), settings.configs / "schema"):
            if not arguments.json:
                print(f"wrote {path}")
    plan = build_plan(settings)
    rows: list[dict[str, Any]] = []
    for study in plan.studies.values():
        stages = plan.selected(study.name)
        count = sum(stage.study == study.name for stage in stages)
        variants = len(study.variants)
        refused = [f"{problem.problem}; {problem.remedy}" for problem in pool_problems(plan, stages)]
        sizes = {"variants": variants, "runs": variants * len(settings.seeds_of(study.name)), "stages": count}
        rows.append({"study": study.name, **sizes, "assets": len(stages) - count, "refused": refused})
    unlogged = list(_unlogged(plan))
    margins = [(study.name, study.analysis.margin or 0.0) for study in plan.content.studies]
    wide = (
        "{}: margin {} is as wide as the scale if values are shares (0 to 1), and `ablation gate` would refuse it; "
        "state a smaller margin"
    )
    notes = [wide.format(name, stated(margin)) for name, margin in margins if margin >= 1]
    if arguments.json:
        print_json("validate", rows, scale=settings.scale, unlogged=unlogged, notes=notes)
    else:
        for row in rows:
            *counts, assets = (counted(row[f"{name}s"], name) for name in _COUNTED)
            print(f"{row['study']}: {', '.join(counts)} and {assets} at scale {settings.scale}")
            for problem in row["refused"]:
                print(f"    will be refused: {problem}")
        for line in (*unlogged, *(f"note: {note}" for note in notes)):
            print(line)
    return int(any(row["refused"] for row in rows))


def _unlogged(plan: "Plan") -> Iterator[str]:
    """Yield the metrics and items named in studies that no run has logged, if a check or the grid has results."""
    results = plan.settings.results
    database = next((path for path in (results / CHECKS / DATABASE, results / DATABASE) if path.exists()), None)
    if database is None:
        return
    from ablation.store.database import Store  # late: without results nothing of this is needed
    from ablation.store.unlogged import find_unlogged

    with Store(database) as store:
        for study in plan.content.studies:
            for problem in find_unlogged(store, study.name, study) if study.name in store.studies() else ():
                yield f"{study.name}: {problem}"

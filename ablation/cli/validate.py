"""The command `validate`: checks every variant of every study."""

import argparse
from typing import TYPE_CHECKING

from ablation.cli.configs import settings_of
from ablation.cli.options import add_configs
from ablation.config.variants import load_studies
from ablation.contract.reading import counted
from ablation.contract.stage_folder import CHECKS, DATABASE

if TYPE_CHECKING:
    from ablation.plan.plan_file import Plan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Check every variant of every study, and count jobs. No results and no GPU are needed."
    add_configs(parser)
    parser.add_argument("--write-schema", action="store_true", help="also write configs/schema/*.json for editors")


def run(arguments: argparse.Namespace) -> int:
    """Check everything; print a line per study."""
    from ablation.plan.build import build_plan
    from ablation.plan.checks import pool_problems
    from ablation.plan.fit import fullest, needs_of, problem_of

    settings = settings_of(arguments)
    if arguments.write_schema:
        from ablation.config.schema import write_schemas

        for path in write_schemas(load_studies(settings).values(), settings.configs / "schema"):
            print(f"wrote {path}")
    plan = build_plan(settings)
    for study in plan.studies.values():
        stages = plan.selected(study.name)
        own = sum(stage.study == study.name for stage in stages)
        runs = len(study.variants) * len(settings.seeds_of(study.name))
        print(
            f"{study.name}: {counted(len(study.variants), 'variant')}, {counted(runs, 'run')}, "
            f"{counted(own, 'stage')} and {counted(len(stages) - own, 'asset')} at scale {settings.scale}"
        )
        needs = needs_of(plan, stages, device_memory=settings.device_memory)
        unfit = filter(None, map(problem_of, fullest(needs)))
        for problem in (*pool_problems(plan, stages), *unfit):
            print(f"    will be refused: {problem.problem}; {problem.remedy}")
    _print_unlogged(plan)
    return 0


def _print_unlogged(plan: "Plan") -> None:
    """Print which names in the studies nothing has logged, where a check or the grid has results."""
    results = plan.settings.results
    database = next((path for path in (results / CHECKS / DATABASE, results / DATABASE) if path.exists()), None)
    if database is None:
        return
    from ablation.store.database import Store  # late: without results nothing of this is needed
    from ablation.store.unlogged import find_unlogged

    with Store(database) as store:
        for study in plan.content.studies:
            for problem in find_unlogged(store, study.name, study) if study.name in store.studies() else ():
                print(f"{study.name}: {problem}")

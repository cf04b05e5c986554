"""The command `add-seeds`: run more seeds for undecided comparisons."""

import argparse
import sys
from dataclasses import asdict
from functools import partial

from ablation.cli.common import add_shared, overrides_of, print_json, results_folder
from ablation.cli.verdicts import in_lines, reasons
from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError
from ablation.contract.extras import need
from ablation.contract.numbers import counted, device_time
from ablation.judge import verdicts
from ablation.judge.decide import decide, grid_command, run_snakemake
from ablation.show.text import clean_records


def declare_add_seeds(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `add-seeds`."""
    parser.description = "Add seeds to undecided comparisons until they are decided or the budget is used up."
    add_shared(parser, "--results")
    add = parser.add_argument
    add("study", metavar="STUDY")
    add("--budget", type=float, required=True, metavar="HOURS", help="maximum device-hours to spend")
    add("--dry-run", action="store_true", help="show the next round without running it")
    add("--cores", default="all", help="number of CPU cores for Snakemake (default: all)")
    add("--gpus", type=int, help="number of devices, such as GPUs (default: from configs/config.yaml)")
    add("--config", nargs="*", default=[], metavar="KEY=VALUE", help="override settings, as `snakemake --config` does")
    add_shared(parser, "--json")


def run_add_seeds(arguments: argparse.Namespace) -> int:
    """Run the grid in rounds, each with more seeds; print the verdicts and the cost."""
    if not arguments.dry_run:
        need("snakemake", "`ablation add-seeds`")
    overrides = overrides_of(arguments.config)
    results = results_folder(arguments, overrides)
    if (results / "imported" / arguments.study / "study.json").exists():
        remedy = "run more seeds with the program that made the runs, then import all runs again"
        problem = "was imported, so `add-seeds` cannot run more seeds"
        raise ConfigError("add-seeds", "STUDY", arguments.study, problem, remedy)
    pairs = [*arguments.config, *([f"results={results}"] if arguments.results else [])]
    gpus = load_settings(overrides).gpus if arguments.gpus is None else arguments.gpus
    command = grid_command(arguments.study, arguments.cores, gpus, pairs)
    output = sys.stderr if arguments.json else None
    say = partial(print, file=output)
    grid = partial(run_snakemake, command, output)
    run = decide(arguments.study, arguments.budget, results, grid, say, dry_run=arguments.dry_run)
    if arguments.json:
        summary = {"stopped": run.why, "rounds": run.rounds, "spent_hours": run.spent_hours}
        print_json(
            "add-seeds",
            clean_records(verdicts.comparison_rows(run.comparisons)),
            **summary,
            offers=[asdict(each) for each in run.offers],
        )
        return 0
    spent = device_time(run.spent_hours)
    print(f"stopped: {run.why}; {spent} spent in {counted(run.rounds, 'round')}\n{run.report()}")
    if arguments.dry_run:
        return 0
    print(f"{in_lines(verdicts.comparison_rows(run.comparisons), run.comparisons)}\n\n{reasons(run.comparisons)}")
    return 0

"""The command `power`: how many seeds and items detect an effect, and what they cost.

    python -m ablation.cli.power RESULTS STUDY=SEEDS ...

prints which effects this many seeds can detect, for the end of `snakemake -n`: a line for each study with known noise.
"""

import argparse
import sys
from collections.abc import Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from ablation.cli.common import add_shared, open_store, price_per_hour, print_json, results_folder
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.numbers import device_time
from ablation.contract.stage_folder import DATABASE
from ablation.judge.planning import MOST_SEEDS
from ablation.judge.power import POWER
from ablation.judge.sizes import (
    EVALUATED,
    Request,
    Search,
    Source,
    evaluations_source,
    findable,
    search_sizes,
    study_source,
)
from ablation.show.power import in_words, size, smallest, wanted
from ablation.store.current import check_study
from ablation.store.database import Store


def declare_power(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `power`."""
    parser.description = "Calculate the minimum detectable effect and the cost for each number of seeds and items."
    add = parser.add_argument
    add_shared(parser, "--results", "--json")
    add("study", nargs="?", metavar="STUDY", help="study whose results give the noise")
    add("comparisons", nargs="*", metavar="COMPARISON", help="CHILD or PARENT:CHILD (default: all comparisons)")
    add("--effect", type=float, required=True, metavar="E", help="the effect to detect")
    add("--power", type=float, default=POWER, metavar="P", help="probability of detecting the effect (default: 0.8)")
    text = "take the noise from another results folder, or from evaluations of a baseline and a candidate"
    add("--pilot", nargs="+", type=Path, default=[], metavar="PATH", help=text)
    add("--metric", metavar="NAME", help="metric of the evaluations in --pilot (default: as for `compare`)")
    add("--item", metavar="NAME", help="column of the tables in --pilot that names the items (default: `item`)")
    text = "stated noise: standard deviation, over seeds, of the difference between two runs"
    add("--seed-sd", type=float, metavar="SD", help=text)
    text = "stated noise: standard deviation, over items, of the difference between two variants' means over many seeds"
    add("--item-sd", type=float, metavar="SD", help=text)
    text = (
        "stated noise: standard deviation of the difference between two samples of an item (default: estimated, if "
        "the values of samples are 0 or 1)"
    )
    add("--sample-sd", type=float, metavar="SD", help=text)
    text = "stated noise: standard deviation, over checkpoints, of the difference between two runs"
    add("--checkpoint-sd", type=float, metavar="SD", help=text)
    text = "with stated noise: number of comparisons to correct for (default: 1)"
    add("--family", type=int, default=1, metavar="N", help=text)
    text = "numbers of seeds to show (default: those of the interim analyses, or 3 to 20)"
    add("--seeds", type=int, nargs="+", metavar="N", help=text)
    text = "numbers of items to show (default: 1, 2 and 4 times the current number)"
    add("--items", type=int, nargs="+", metavar="N", help=text)
    add("--samples", type=int, nargs="+", metavar="N", help="samples per item (default: the current number)")
    add("--checkpoints", type=int, nargs="+", metavar="N", help="checkpoints to average (default: the current number)")
    add("--hours", type=float, metavar="H", help="fail if no plan detects the effect within this many device-hours")


def run_power(arguments: argparse.Namespace) -> int:
    """Print a table of numbers of seeds and items, and the smallest numbers that detect the effect."""
    request = Request(**{field.name: _given(arguments, field.name) for field in fields(Request)})
    _check(arguments)
    source = None if request.seed_sd is not None and not _two(arguments) else _source(arguments)
    search = search_sizes(request, source, arguments.comparisons)
    if search.cost:
        search = replace(search, price=price_per_hour())
    if arguments.hours is not None:
        _check_budget(search, arguments.hours)
    if arguments.json:
        print_json("power", search.rows(), notes=list(smallest(search)))
    else:
        print(f"calculated from {search.noise}; the table is for {search.middle.name}\n\n{in_words(search)}")
    return 0


def _given(arguments: argparse.Namespace, name: str) -> Any:
    value = getattr(arguments, name)
    return () if value is None and name in ("seeds", *EVALUATED) else value


def _source(arguments: argparse.Namespace) -> Source:
    if _two(arguments):
        baseline, candidate = arguments.pilot
        return evaluations_source(baseline, candidate, arguments.metric, arguments.item)
    with open_store(arguments.pilot[0] if arguments.pilot else results_folder(arguments)) as store:
        check_study(store, "power", arguments.study)
        return study_source(store, arguments.study)


def _check(arguments: argparse.Namespace) -> None:
    """Raise ConfigError, before anything is read, for options that cannot be combined."""
    if arguments.hours is not None and not 0 <= arguments.hours <= sys.float_info.max:
        raise ConfigError("power", "--hours", arguments.hours, "is not a valid number", "pass a number of at least 0")
    stated = [arguments.seed_sd is not None, arguments.item_sd is not None]
    if stated == [True, False] and _two(arguments):  # the pilot gives the noise of the items
        stated = [False, False]
    if any(stated) and not (all(stated) and arguments.items and not arguments.study and not arguments.pilot):
        problem = "must be passed together with --items, and without STUDY or --pilot"
        remedy = "pass --seed-sd, --item-sd and --items without STUDY or --pilot, or leave out both standard deviations"
        raise ConfigError("power", "--seed-sd, --item-sd", None, problem, remedy)
    if not any(stated) and arguments.study is None and not _two(arguments):
        remedy = "name a STUDY, pass a baseline and a candidate with --pilot, or pass --seed-sd, --item-sd and --items"
        raise ConfigError("power", "", None, "there is nothing to estimate the noise from", remedy)
    for option in ("metric", "item"):
        if (given := getattr(arguments, option)) and not _two(arguments):
            remedy = f"pass a baseline and a candidate with --pilot, or leave out --{option}"
            raise ConfigError("power", f"--{option}", given, "needs evaluations of a baseline and a candidate", remedy)
    if len(arguments.pilot) > 2:
        remedy = "pass one results folder, or the evaluations of a baseline and a candidate"
        problem = "is a third path, but --pilot takes at most two"
        raise ConfigError("power", "--pilot", str(arguments.pilot[2]), problem, remedy)
    if arguments.family != 1 and not any(stated):
        problem = "works only with --seed-sd, --item-sd and --items"
        raise ConfigError("power", "--family", arguments.family, problem, "leave it out")
    if arguments.study is not None and _two(arguments):
        problem = "cannot be combined with the evaluations of --pilot"
        raise ConfigError("power", "STUDY", arguments.study, problem, "leave one out")
    if arguments.results is not None and (any(stated) or arguments.pilot):
        problem = f"cannot be combined with {'--pilot' if arguments.pilot else '--seed-sd'}"
        raise ConfigError("power", "--results", str(arguments.results), problem, "leave one out")


def _two(arguments: argparse.Namespace) -> bool:
    return len(arguments.pilot) == 2


def _check_budget(search: Search, most: float) -> None:
    problem, remedy = "the cost of a seed is not known", "leave out --hours, or name a study that has results"
    if not search.plans:
        problem = f"{MOST_SEEDS} seeds{size(search, max(search.evaluated))} do not detect {wanted(search)}"
        remedy = "pass more items with --items, or a larger effect"
    elif search.cheapest:
        hours, seeds, evaluated = search.cheapest
        if hours <= most:
            return
        plan = f"{seeds} seeds{size(search, evaluated)}"
        problem = f"the cheapest plan ({plan}) still needs {device_time(hours)} to detect {wanted(search)}"
        remedy = "pass more hours, or a larger effect"
    raise ConfigError("power", "--hours", most, problem, remedy)


def main(words: Sequence[str]) -> int:
    """Print which effects the grid can detect; return 0, even if this cannot be calculated."""
    seeds = {study: int(count) for study, count in (word.split("=") for word in words[1:])}
    try:
        with Store(Path(words[0]) / DATABASE) as store:
            for line in findable(store, seeds):
                print(line)
    except (TrackerError, OSError) as error:
        print(f"cannot calculate which effects the grid can detect: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

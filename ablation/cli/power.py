"""The command `power`: how many seeds and items detect an effect, and what they cost.

    python -m ablation.cli.power RESULTS STUDY=SEEDS ...

says what so many seeds can find, for the end of `snakemake -n`: a line for each study whose results tell its noise.
"""

import argparse
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from ablation.cli.common import check_study, open_store, price_per_hour, print_json, results_folder
from ablation.cli.options import add_json, add_results
from ablation.config import dotted
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.reading import aligned, device_time, duration
from ablation.contract.rows import LOGGED
from ablation.contract.stage_folder import DATABASE
from ablation.judge.comparisons import Comparison, judge_comparisons
from ablation.judge.correct import Correction
from ablation.judge.decide import read_seeded_stages
from ablation.judge.gate import chosen
from ablation.judge.measurements import Measurements, read_measurements
from ablation.judge.planning import (
    MOST_SEEDS,
    Cost,
    Evaluated,
    Level,
    Pilot,
    detectable,
    fewest_items,
    fewest_seeds,
    sampling_variance,
    split,
)
from ablation.judge.power import minimal_detectable_effect
from ablation.judge.significance import interim_weights
from ablation.judge.statistics import FEWEST_CLUSTERS
from ablation.show.text import leveled
from ablation.store.database import Store

SEEDS = (3, 5, 8, 12, 20)
POWER = 0.8
_EVALUATED = ("items", "samples", "checkpoints")
_Source = tuple[
    Measurements, Callable[[Sequence[Comparison], Evaluated], Cost | None], int
]  # with averaged checkpoints


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Calculate the minimum detectable effect of each number of seeds and items, and the cost."
    add = parser.add_argument
    add_results(parser)
    add_json(parser)
    add("study", nargs="?", metavar="STUDY", help="the study whose results give the noise")
    add("comparisons", nargs="*", metavar="COMPARISON", help="CHILD or PARENT:CHILD (default: all)")
    add("--effect", type=float, required=True, metavar="E", help="the effect to detect")
    add("--power", type=float, default=0.8, metavar="P", help="probability of detecting it (default: 0.8)")
    pilot = "another results folder, or evaluations of a baseline and of a candidate"
    add("--pilot", nargs="+", type=Path, default=[], metavar="PATH", help=pilot)
    add("--metric", metavar="NAME", help="of these evaluations, as for `compare`")
    add("--item", metavar="NAME", help="the column that names a table's items, as for `compare`")
    add("--seed-sd", type=float, metavar="SD", help="stated noise: of the difference of two runs between seeds")
    add("--item-sd", type=float, metavar="SD", help="of that difference between items, over many seeds")
    said = "of the difference of two samples of an item (default: estimated, if samples are right or wrong)"
    add("--sample-sd", type=float, metavar="SD", help=said)
    add("--checkpoint-sd", type=float, metavar="SD", help="of the difference of two runs between checkpoints")
    add("--family", type=int, default=1, metavar="N", help="number of comparisons, with stated noise (default: 1)")
    add("--seeds", type=int, nargs="+", metavar="N", help="rows of the table (default: 3 to 20, or interim analyses)")
    add("--items", type=int, nargs="+", metavar="N", help="rows of the table (default: as now, 2 and 4 times as many)")
    add("--samples", type=int, nargs="+", metavar="N", help="samples of an item (default: as now)")
    add("--checkpoints", type=int, nargs="+", metavar="N", help="checkpoints that are averaged (default: as now)")
    add("--hours", type=float, metavar="H", help="fail if no plan detects the effect within so many device-hours")


def run(arguments: argparse.Namespace) -> int:
    """Print the table and the smallest plans."""
    _check(arguments)
    interims: Sequence[int] = ()
    if arguments.seed_sd is not None:
        pilots, cost, alone = [_stated(arguments)], None, 0.05 / arguments.family
        said = f"stated noise, alpha 0.05 / {arguments.family}"
    else:
        study, cost_of, averaged = _of_evaluations(arguments) if _two(arguments) else _of_results(arguments)
        comparisons = judge_comparisons(study)
        tried = _known(chosen(comparisons, arguments.comparisons))
        pilots = [_pilot(study, comparison, averaged, arguments) for comparison in tried]
        largest = max(pilots, key=lambda pilot: pilot.items)
        cost = cost_of(tried, (largest.items, largest.samples, largest.checkpoints))
        alone, interims = Correction.of(study, comparisons).level, study.analysis.interim_analyses
        comparisons_ = "1 comparison" if len(tried) == 1 else f"{len(tried)} comparisons"
        logged = study.analysis.protocol == LOGGED  # a value of each run, without items
        said = f"the noise of {comparisons_}, {pilots[0].seeds} seeds" + (
            "" if logged else f" of {pilots[0].items:,} items"
        )
        if logged and arguments.items:
            problem, remedy = f"{' and '.join(study.analysis.subsets)} was logged without items", "leave --items out"
            raise ConfigError("power", "--items", arguments.items[0], problem, remedy)

    for few in arguments.items or ():
        if clusters := next((n for pilot in pilots if (n := pilot.clusters(few)) < FEWEST_CLUSTERS), 0.0):
            problem = f"is about {clusters:.1f} independent items: too few to say anything about other items"
            raise ConfigError("power", "--items", few, problem, "plan more")
    pilots = _by_noise(pilots, alone)
    items, middle = max(pilot.items for pilot in pilots), _middle(pilots)
    sizes = Sizes(
        arguments.seeds or interims or SEEDS,
        list(
            product(
                arguments.items or ((items,) if items == 1 else (items, 2 * items, 4 * items)),
                arguments.samples or [middle.samples],
                arguments.checkpoints or [middle.checkpoints],
            )
        ),
        cost,
        price_per_hour() if cost else None,
    )
    question = Question(arguments.effect, arguments.power, _level_at(alone, interims), arguments.hours)
    if arguments.json:
        print_json("power", as_rows(question, pilots, sizes), notes=list(smallest(question, pilots, sizes)))
        return 0
    text = in_words(question, pilots, sizes)
    print(f"from {said}; the table is of {middle.name}\n\n{text}")
    return 0


def _level_at(alone: float, interims: Sequence[int]) -> Level:
    """Return the level of a comparison at so many seeds; `alone`: of all its interim analyses together."""
    shares = interim_weights(interims)
    last = shares[interims[-1]] if interims else 1.0  # verdicts on more seeds rest on this interim analysis
    return lambda seeds: alone * next((share for interim, share in shares.items() if interim >= seeds), last)


def _by_noise(pilots: Sequence[Pilot], level: float) -> list[Pilot]:
    return sorted(pilots, key=lambda pilot: minimal_detectable_effect(pilot.noise(pilot.seeds, pilot.items), level))


def _check(arguments: argparse.Namespace) -> None:
    """Refuse invalid arguments before anything is read."""
    tiny, huge = math.ulp(0.0), sys.float_info.max
    for option, least, most, wanted in (
        ("effect", tiny, huge, "one above 0, below inf"),
        ("power", tiny, 1 - sys.float_info.epsilon, "one above 0, below 1"),
        *(
            (name, 0, huge, "one of at least 0")
            for name in ("hours", "seed_sd", "item_sd", "sample_sd", "checkpoint_sd")
        ),
        ("seeds", 2, 10**9, "at least 2"),
        *((name, 1, 10**9, "at least 1") for name in ("items", "samples", "checkpoints")),
    ):
        given = getattr(arguments, option)
        for value in given if isinstance(given, list) else [] if given is None else [given]:
            if not least <= value <= most:
                name = f"--{option.replace('_', '-')}"
                raise ConfigError("power", name, value, "is not a valid number", f"give {wanted}")
    if arguments.family < 1:
        raise ConfigError("power", "--family", arguments.family, "is not a number of comparisons", "give at least 1")
    stated = [arguments.seed_sd is not None, arguments.item_sd is not None]
    if any(stated) and not (all(stated) and arguments.items and not arguments.study and not arguments.pilot):
        remedy = "give both and --items, and neither STUDY nor --pilot"
        raise ConfigError("power", "--seed-sd, --item-sd", None, "state the noise by hand", remedy)
    if not any(stated) and arguments.study is None and not _two(arguments):
        remedy = "name a STUDY, or a baseline and a candidate with --pilot, or state it (--seed-sd, --item-sd, --items)"
        raise ConfigError("power", "", None, "no variance estimate", remedy)
    for option in ("metric", "item"):
        if (given := getattr(arguments, option)) and not _two(arguments):
            remedy = "give both with --pilot, or leave it out"
            raise ConfigError("power", f"--{option}", given, "is of evaluations of a baseline and a candidate", remedy)
    if len(arguments.pilot) > 2:
        remedy = "give one folder of results, or the evaluations of a baseline and of a candidate"
        raise ConfigError("power", "--pilot", str(arguments.pilot[2]), "is a third path", remedy)


def _two(arguments: argparse.Namespace) -> bool:
    return len(arguments.pilot) == 2


def _stated(arguments: argparse.Namespace) -> Pilot:
    """As it is with the first of `--items`, `--samples` and `--checkpoints`."""
    items, samples, checkpoints = (
        (given or [1])[0] for given in (arguments.items, arguments.samples, arguments.checkpoints)
    )
    drawn = min((arguments.sample_sd or 0.0) ** 2 / (items * samples * checkpoints), arguments.seed_sd**2)
    pilot = Pilot("the noise as stated", 2, items, arguments.seed_sd**2, drawn, arguments.item_sd**2 / items)
    return _evaluated(pilot, samples, checkpoints, None, arguments)


def _pilot(study: Measurements, comparison: Comparison, averaged: int, arguments: argparse.Namespace) -> Pilot:
    """The noise of a comparison, whose values are means over so many checkpoints."""
    if arguments.samples and comparison.child not in study.samples and not study.imported:
        problem = f"{study.name} does not say how many samples its items' values are the mean of"
        raise ConfigError("power", "--samples", None, problem, "add `samples` to its analysis plan")
    total = study.samples.get(comparison.child, averaged)
    samples, checkpoints = (total // averaged, averaged) if total % averaged == 0 else (total, 1)
    return _evaluated(split(comparison), samples, checkpoints, sampling_variance(study, comparison), arguments)


def _evaluated(
    pilot: Pilot, samples: int, checkpoints: int, drawn: float | None, arguments: argparse.Namespace
) -> Pilot:
    """The pilot with what its samples and checkpoints add to its noise, estimated or as the options state it.

    Raises ConfigError where a number of samples or of checkpoints is asked for, and nothing tells what it changes.
    """
    if arguments.sample_sd is not None:
        drawn = arguments.sample_sd**2 / (pilot.items * samples * checkpoints)
    if arguments.samples and drawn is None:
        problem = "nothing tells what drawing an item's samples adds to the noise"
        raise ConfigError(
            "power", "--samples", None, problem, "state it with --sample-sd (docs/how-to/choose-seeds.md)"
        )
    of_checkpoints = arguments.checkpoint_sd is not None
    fewer = min(arguments.checkpoints or [checkpoints]) < checkpoints
    if arguments.checkpoints and not of_checkpoints and (fewer or drawn is None):
        problem = "nothing tells what averaging over checkpoints takes from the noise"
        raise ConfigError(
            "power", "--checkpoints", None, problem, "state it with --checkpoint-sd (docs/how-to/choose-seeds.md)"
        )
    between = arguments.checkpoint_sd**2 / checkpoints if of_checkpoints else 0.0
    return pilot.evaluated(samples, checkpoints, drawn or 0.0, between)


def _of_results(arguments: argparse.Namespace) -> _Source:
    """The study of a database, with the cost of its stages."""
    with open_store(arguments.pilot[0] if arguments.pilot else results_folder(arguments)) as store:
        check_study(store, "power", arguments.study)
        study, stages = read_measurements(store, arguments.study), read_seeded_stages(store, arguments.study)
        definition = store.study(arguments.study)

    def cost(comparisons: Sequence[Comparison], evaluated: Evaluated) -> Cost | None:
        names = {name for comparison in comparisons for name in (comparison.child, comparison.parent)}
        return Cost.of(stages, definition.last_stage, names, evaluated) if stages["hours"].any() else None

    averaged = definition.table.means_over
    if averaged is None or study.analysis.protocol not in averaged.protocols:
        return study, cost, 1
    counts = {dotted.get(variant.resolved, averaged.key, 1) for variant in study.variants}
    return study, cost, counts.pop() if len(counts) == 1 else 1


def _of_evaluations(arguments: argparse.Namespace) -> _Source:
    """Evaluations of a baseline and a candidate by other tools; their cost is not known."""
    from ablation.judge.compare.comparison import Rules, compare_files
    from ablation.judge.compare.groups import Options, expand
    from ablation.readers.sheet import Wanted

    a, b = (expand([str(path)]) for path in arguments.pilot)
    # Of one run each `compare` would judge these checkpoints, which say nothing of other seeds.
    analysis = {"claim": "recipe"}
    rules = Rules(margin=1.0, allow=frozenset({"prompt", "target", "task"}), changed_items=0, analysis=analysis)
    wanted = Wanted(arguments.metric, None, (), None, arguments.item)
    return compare_files(a, b, None, Options(wanted), rules).measured, lambda *_: None, 1


def _known(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """The comparisons from which the noise of seeds can be estimated. Raises ConfigError where none does."""
    known = [comparison for comparison in comparisons if _tells_noise(comparison)]
    if not known:
        same = "the same value or difference in every seed"
        problem = f"has one seed, or none, or {same}: it tells nothing of the noise between seeds"
        raise ConfigError("power", "--pilot", None, problem, "run two seeds, or state the noise with --seed-sd")
    return known


def _tells_noise(comparison: Comparison) -> bool:
    return comparison.estimate is not None and comparison.noise.seeds_known


@dataclass(frozen=True)
class Question:
    """An effect to be found with a given power, at the levels that the analysis plan leaves to one comparison."""

    effect: float
    power: float
    level: Level
    hours: float | None = None  # that may be spent


@dataclass(frozen=True)
class Sizes:
    """The sizes of the table, what they cost, and the price of a device-hour."""

    seeds: Sequence[int]
    evaluated: Sequence[Evaluated]
    cost: Cost | None
    price: float | None

    def hours(self, seeds: int, evaluated: Evaluated, *, all_of_it: bool = False) -> float | None:
        """Device-hours that are still to run, or all of it; None where nothing tells."""
        return None if self.cost is None else self.cost.hours(seeds, evaluated, all_of_it=all_of_it)

    def of(self, evaluated: Evaluated) -> str:
        """In words, ` of 400 items`; a metric that was logged has none."""
        items, samples, checkpoints = evaluated
        of_each = f" with {samples} samples each" if any(others[1] > 1 for others in self.evaluated) else ""
        averaged = (
            f" at {checkpoints} checkpoint{'s' * (checkpoints > 1)}"
            if any(others[2] > 1 for others in self.evaluated)
            else ""
        )
        of_items = f" of {items:,} items" if any(others[0] > 1 for others in self.evaluated) else ""
        return f"{of_items}{of_each}{averaged}"


def in_words(question: Question, pilots: Sequence[Pilot], sizes: Sizes) -> str:
    """The table, and the smallest plans that find the effect.

    `pilots` are ordered by their noise: the table is of the one in the middle, and of the noisiest.

    Raises ConfigError where no plan fits the hours.
    """
    heads = {
        "seeds": "seeds",
        "items": "items",
        "samples": "samples",
        "checkpoints": "checkpoints",
        "effect": f"MDE ({question.power:.0%} power)",
        "range": "likely range",
        "noisiest": pilots[-1].name,
        "hours": "device time",
        "hours_to_run": "to run",
        "cost": "cost",
    }
    rows = as_rows(question, pilots, sizes)
    effects = iter(leveled(row[name] for row in rows for name in ("effect", "low", "high", "noisiest")))
    found = []
    for row, effect, low, high, noisiest in zip(rows, effects, effects, effects, effects, strict=True):
        shown = {"seeds": str(row["seeds"]), **{name: f"{row[name]:,}" for name in _EVALUATED}}
        shown |= {"effect": effect, "range": f"{low} to {high}"} | ({"noisiest": noisiest} if len(pilots) > 1 else {})
        if sizes.cost is not None:
            known = {
                name: "-" if row[name] is None else duration(3600 * row[name]) for name in ("hours", "hours_to_run")
            }
            shown |= known | ({"cost": "-" if row["cost"] is None else f"{row['cost']:.2f}"} if sizes.price else {})
        found.append(shown)
    once = {name for name in _EVALUATED if {row[name] for row in found} == {"1"}}
    columns = [[heads[name], *(row[name] for row in found)] for name in heads if name in found[0] and name not in once]
    table = aligned(list(zip(*columns, strict=True)), [True] * len(columns))
    return "\n".join([*table, "", *smallest(question, pilots, sizes)])


def as_rows(question: Question, pilots: Sequence[Pilot], sizes: Sizes) -> list[dict[str, Any]]:
    """A map for each size: what is found, on the comparison in the middle and on the noisiest, and what it costs."""
    rows = []
    for evaluated in sizes.evaluated:
        items, *draws = evaluated
        middle, noisiest = _middle(pilots).at(*draws), pilots[-1].at(*draws)
        for seeds in sizes.seeds:
            level = question.level(seeds)
            effect, low, high = detectable(middle, seeds, items, level, question.power)
            most = detectable(noisiest, seeds, items, level, question.power)[0] if len(pilots) > 1 else None
            left = sizes.hours(seeds, evaluated)
            row: dict[str, Any] = {"seeds": seeds, **dict(zip(_EVALUATED, evaluated, strict=True)), "effect": effect}
            row |= {"low": low, "high": high, "noisiest": most}
            row |= {"hours": sizes.hours(seeds, evaluated, all_of_it=True), "hours_to_run": left}
            rows.append(row | {"cost": None if left is None or not sizes.price else left * sizes.price})
    return rows


def _middle(pilots: Sequence[Pilot]) -> Pilot:
    return pilots[(len(pilots) - 1) // 2]


def smallest(question: Question, pilots: Sequence[Pilot], sizes: Sizes) -> Iterator[str]:
    """The seeds that find the effect, for every comparison at the same items, and cheaper plans of other items.

    Raises as `in_words`.
    """
    wanted = f"an effect of {question.effect:g} with {question.power:.0%} power"
    middle = _middle(pilots)
    own = (middle.items, middle.samples, middle.checkpoints)
    first = own if own in sizes.evaluated else sizes.evaluated[0]

    def seeds_of(pilot: Pilot, evaluated: Evaluated) -> int | None:
        items, *draws = evaluated
        return fewest_seeds(pilot.at(*draws), question.effect, items, question.level, question.power)

    plans = {of: seeds for of in sizes.evaluated if (seeds := seeds_of(middle, of))}
    cheapest = _affordable(question, sizes, plans)
    for pilot in pilots:
        seeds = seeds_of(pilot, first)
        if seeds is None:
            more = _more_items(question, pilot, sizes, first)
            yield f"{pilot.name}: not even {MOST_SEEDS} seeds{sizes.of(first)} detect {wanted}{more}"
            continue
        items, *draws = first
        low, high = detectable(pilot.at(*draws), seeds, items, question.level(seeds), question.power)[1:]
        likely = "" if low == high else " (likely {} to {})".format(*leveled([low, high]))
        hours = sizes.hours(seeds, first) if pilot is middle else None
        best = "; no cheaper plan does" if hours is not None and cheapest and cheapest[2] == first else ""
        found = f"{seeds} seeds{sizes.of(first)} detect {wanted}{likely}"
        yield f"{pilot.name}: {found}{_cost(sizes, hours)}{best}"
    if sizes.cost is None:
        alternatives = [f"or {seeds} seeds{sizes.of(of)}" for of, seeds in plans.items() if of != first]
        if alternatives:
            yield f"{middle.name}: {', '.join(alternatives)}"
    elif cheapest and cheapest[2] != first:
        hours, seeds, of = cheapest
        yield f"{middle.name}: the cheapest plan is {seeds} seeds{sizes.of(of)}{_cost(sizes, hours)}"


def _more_items(question: Question, pilot: Pilot, sizes: Sizes, of: Evaluated) -> str:
    """How many items detect the effect with the most seeds of the table; nothing where no number does."""
    items, *draws = of
    seeds = max(sizes.seeds)
    found = fewest_items(pilot.at(*draws), question.effect, seeds, question.level(seeds), question.power)
    return "" if items == 1 or found is None else f"; {seeds} seeds of {found:,} items do"


def _affordable(
    question: Question, sizes: Sizes, plans: Mapping[Evaluated, int]
) -> tuple[float, int, Evaluated] | None:
    """The cheapest of {evaluated: seeds}, as far as costs are known. Raises as `in_words`."""
    known = [(hours, seeds, of) for of, seeds in plans.items() if (hours := sizes.hours(seeds, of)) is not None]
    cheapest = min(known, default=None)
    if question.hours is None:
        return cheapest
    wanted = f"an effect of {question.effect:g} with {question.power:.0%} power"
    problem, remedy = "nothing tells what a seed costs", "plan with the results of a study"
    if not plans:
        problem = f"{MOST_SEEDS} seeds{sizes.of(max(sizes.evaluated))} do not detect {wanted}"
        remedy = "plan more items"
    elif cheapest:
        hours, seeds, of = cheapest
        if hours <= question.hours:
            return cheapest
        problem = f"no plan detects {wanted} below {device_time(hours)} ({seeds} seeds{sizes.of(of)})"
        remedy = "allow more, or ask for a larger effect"
    raise ConfigError("power", "--hours", question.hours, problem, remedy)


def _cost(sizes: Sizes, hours: float | None) -> str:
    return "" if hours is None else f", with {device_time(hours, sizes.price)} to run"


def findable(results: Path, seeds: Mapping[str, int]) -> Iterator[str]:
    """Yield `gad: 5 seeds detect an effect of 0.02 with 80% power (median of 19 comparisons)` for studies of two seeds.

    Raises TrackerError where the database cannot be read.
    """
    with Store(results / DATABASE) as store:
        for name in store.studies():
            if (count := seeds.get(name, 0)) < 2:
                continue
            study = read_measurements(store, name)
            comparisons = judge_comparisons(study)
            level = _level_at(Correction.of(study, comparisons).level, study.analysis.interim_analyses)(count)
            if pilots := _by_noise(
                [split(comparison) for comparison in comparisons if _tells_noise(comparison)], level
            ):
                middle = _middle(pilots)
                effect = detectable(middle, count, middle.items, level, POWER)[0]
                of = f" (median of {len(pilots)} comparisons)" if len(pilots) > 1 else ""
                yield f"{name}: {count} seeds detect an effect of {effect:.3g} with {POWER:.0%} power{of}"


def main(words: Sequence[str]) -> int:
    """Print what the grid can find; return the exit status."""
    wanted = dict(word.split("=") for word in words[1:])
    try:
        for line in findable(Path(words[0]), {study: int(seeds) for study, seeds in wanted.items()}):
            print(line)
    except (TrackerError, OSError) as error:
        print(f"what the grid can find is not known: {error}", file=sys.stderr)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

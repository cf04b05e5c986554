"""Searches for numbers of seeds and items that detect an effect, and states the cost of each."""

import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from ablation.config import dotted
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import fixed, percent, rough
from ablation.contract.rows import LOGGED
from ablation.judge.comparisons import Comparison, judge_comparisons
from ablation.judge.correct import Correction
from ablation.judge.decide import read_seeded_stages
from ablation.judge.gate import chosen
from ablation.judge.measurements import Measurements
from ablation.judge.planning import (
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
from ablation.judge.power import POWER, minimal_detectable_effect
from ablation.judge.significance import interim_weights
from ablation.judge.stored import read_measurements
from ablation.readers.sheet import Wanted
from ablation.store.database import Store

SEEDS = (3, 5, 8, 12, 20)
EVALUATED = ("items", "samples", "checkpoints")
_STATED = ("seed_sd", "item_sd", "sample_sd", "checkpoint_sd")


@dataclass(frozen=True)
class Request:
    """An effect to detect and the sizes to try.

    By default the sizes are the seeds of the interim analyses, else 3 to 20; one, two and four times the pilot's items;
    and the pilot's samples and checkpoints.

    Raises:
        ConfigError: a value is not a valid number.
    """

    effect: float
    power: float = POWER
    seeds: Sequence[int] = ()
    items: Sequence[int] = ()
    samples: Sequence[int] = ()  # of an item
    checkpoints: Sequence[int] = ()  # over which a run's values are averaged
    seed_sd: float | None = None  # stated noise: of the difference of two runs between seeds
    item_sd: float | None = None  # of that difference between items, over many seeds
    sample_sd: float | None = None  # of the difference of two samples of an item
    checkpoint_sd: float | None = None  # of the difference of two runs between checkpoints
    family: int = 1  # comparisons, with stated noise

    def __post_init__(self) -> None:
        """Raise ConfigError for a value that is out of range, such as a negative number."""
        tiny, huge = math.ulp(0.0), sys.float_info.max
        for option, least, most, wanted in (
            ("effect", tiny, huge, "a finite number above 0"),
            ("power", tiny, 1 - sys.float_info.epsilon, "a number between 0 and 1"),
            *((name, 0, huge, "a finite number of at least 0") for name in _STATED),
            ("seeds", 2, 10**9, "at least 2"),
            *((name, 1, 10**9, "at least 1") for name in EVALUATED),
        ):
            given = getattr(self, option)
            for value in given if isinstance(given, Sequence) else [] if given is None else [given]:
                if not least <= value <= most:
                    name = f"--{option.replace('_', '-')}"
                    raise ConfigError("power", name, value, "is not a valid number", f"give {wanted}")
        if self.family < 1:
            raise ConfigError(
                "power", "--family", self.family, "is not a valid number of comparisons", "give at least 1"
            )


@dataclass(frozen=True)
class Source:
    """Results from which the noise is estimated, and the cost of further results."""

    study: Measurements
    cost: Callable[[Sequence[Comparison], Evaluated], Cost | None]
    averaged: int = 1  # checkpoints


def study_source(store: Store, name: str) -> Source:
    """Return a study of a database as the source of noise and cost."""
    study, stages, definition = read_measurements(store, name), read_seeded_stages(store, name), store.study(name)

    def cost(comparisons: Sequence[Comparison], evaluated: Evaluated) -> Cost | None:
        names = {name for comparison in comparisons for name in (comparison.child, comparison.parent)}
        return Cost.of(stages, definition.last_stage, names, evaluated) if stages["hours"].any() else None

    averaged = definition.table.means_over
    if averaged is None or study.analysis.protocol not in averaged.protocols:
        return Source(study, cost)
    counts = {dotted.get(variant.resolved, averaged.key, 1) for variant in study.variants}
    return Source(study, cost, counts.pop() if len(counts) == 1 else 1)


def evaluations_source(baseline: Path, candidate: Path, metric: str | None = None, item: str | None = None) -> Source:
    """Return evaluations of a baseline and a candidate by other tools as the source of noise; the cost is unknown."""
    from ablation.judge.compare.comparison import Rules, compare_files
    from ablation.judge.compare.groups import expand

    a, b = (expand([str(path)]) for path in (baseline, candidate))
    allow = frozenset({"prompt", "target", "task"})
    wanted = Wanted(metric, item=item, errors="leave-out")
    rules = Rules(wanted, weight="tasks", allow=allow)
    return Source(compare_files([a, b], None, rules).measured, lambda *_: None)


class Smallest(NamedTuple):
    """The fewest seeds that detect the effect, for one pilot."""

    name: str
    seeds: int | None  # None: not even `MOST_SEEDS` are enough
    low: float = math.nan  # minimum detectable effect of these seeds for small and for large true noise
    high: float = math.nan
    hours: float | None = None  # device-hours to run, for the pilot in the middle; None: unknown
    more_items: int | None = None  # if no number of seeds is enough, the items that the most seeds to try would need


@dataclass(frozen=True)
class Search:
    """A search for sizes that detect an effect, given the noise of pilots and the level of one comparison."""

    request: Request
    pilots: Sequence[Pilot]  # ordered by their noise
    level: Level
    noise: str  # its source, in words
    seeds: Sequence[int]
    evaluated: Sequence[Evaluated]
    cost: Cost | None = None
    price: float | None = None  # of a device-hour
    one_run: bool = False  # whether the pilot has one run per side, so that the noise between seeds is unknown

    @property
    def middle(self) -> Pilot:
        """The pilot with the median noise, for which sizes are sought."""
        return middle(self.pilots)

    def hours(self, seeds: int, evaluated: Evaluated, *, all_of_it: bool = False) -> float | None:
        """Return the device-hours that are still to run, or those of all runs; None if unknown."""
        return None if self.cost is None else self.cost.hours(seeds, evaluated, all_of_it=all_of_it)

    def rows(self) -> list[dict[str, Any]]:
        """Return a row for each size: the effects that the middle and the noisiest pilot detect, and the cost."""
        rows = []
        for evaluated in self.evaluated:
            items, *draws = evaluated
            pilot, noisiest = self.middle.at(*draws), self.pilots[-1].at(*draws)
            for seeds in self.seeds:
                level, power = self.level(seeds), self.request.power
                effect, low, high = detectable(pilot, seeds, items, level, power)
                most = detectable(noisiest, seeds, items, level, power)[0] if len(self.pilots) > 1 else None
                left = self.hours(seeds, evaluated)
                row: dict[str, Any] = {"seeds": seeds, **dict(zip(EVALUATED, evaluated, strict=True)), "effect": effect}
                row |= {"low": low, "high": high, "noisiest": most}
                row |= {"hours": self.hours(seeds, evaluated, all_of_it=True), "hours_to_run": left}
                rows.append(row | {"cost": None if left is None or not self.price else left * self.price})
        return rows

    @cached_property
    def plans(self) -> dict[Evaluated, int]:
        """{evaluation size: fewest seeds that detect the effect}, except for sizes at which no number is enough."""
        return {
            evaluated: seeds
            for evaluated in self.evaluated
            if (seeds := self._fewest_seeds(self.middle, evaluated)) is not None
        }

    @cached_property
    def cheapest(self) -> tuple[float, int, Evaluated] | None:
        """The cheapest plan, as (device-hours to run, seeds, size of the evaluation); None if no cost is known."""
        costs = [
            (hours, seeds, evaluated)
            for evaluated, seeds in self.plans.items()
            if (hours := self.hours(seeds, evaluated)) is not None
        ]
        return min(costs, default=None)

    @property
    def first(self) -> Evaluated:
        """Evaluation size at which pilots are compared: the size of the middle pilot if it is tried, else the first."""
        middle_sizes = (self.middle.items, self.middle.samples, self.middle.checkpoints)
        return middle_sizes if middle_sizes in self.evaluated else self.evaluated[0]

    def smallest(self) -> Iterator[Smallest]:
        """Yield the fewest seeds that detect the effect, for each pilot."""
        items, *draws = self.first
        for pilot in () if self.one_run else self.pilots:
            seeds = self._fewest_seeds(pilot, self.first)
            planned, power = pilot.at(*draws), self.request.power
            if seeds is None:
                most = max(self.seeds)
                more = fewest_items(planned, self.request.effect, most, self.level(most), power)
                yield Smallest(pilot.name, None, more_items=None if items == 1 else more)
            else:
                low, high = detectable(planned, seeds, items, self.level(seeds), power)[1:]
                hours = self.hours(seeds, self.first) if pilot is self.middle else None
                yield Smallest(pilot.name, seeds, low, high, hours)

    def enough_items(self) -> int | None:
        """Return the fewest items with which one run per side detects the effect; None if a million are not enough."""
        effect, level, power = self.request.effect, self.level(1), self.request.power
        if self.middle.power(effect, 1, self.middle.items, level) >= power:
            return self.middle.items
        return fewest_items(self.middle, effect, 1, level, power)

    def if_seeds_vary(self) -> list[tuple[float, int | None]]:
        """Return [(SD, seeds needed with the most items)] for some SDs between seeds of the difference of two runs."""
        effect = self.request.effect
        pilots = [(sd, with_seed_sd(self.middle, sd)) for sd in (effect / 2, effect, 2 * effect)]
        return [(sd, self._fewest_seeds(pilot, self.evaluated[-1])) for sd, pilot in pilots]

    def _fewest_seeds(self, pilot: Pilot, evaluated: Evaluated) -> int | None:
        items, *draws = evaluated
        return fewest_seeds(pilot.at(*draws), self.request.effect, items, self.level, self.request.power)


def search_sizes(request: Request, source: Source | None, comparisons: Sequence[str] = ()) -> Search:
    """Return a search with the noise of comparisons of a source or, without a source, with the stated noise.

    comparisons: names of comparisons; none for all.

    Raises:
        ConfigError: the noise is not known, or samples or checkpoints are requested whose noise is unknown.
    """
    cost: Cost | None = None
    interims: Sequence[int] = ()
    one_run = False
    if source is None:
        pilots, level, noise = (
            [_stated(request)],
            0.05 / request.family,
            f"stated noise, with alpha 0.05 / {request.family}",
        )
    else:
        study, judged = source.study, judge_comparisons(source.study)
        tried = _with_noise(chosen(judged, comparisons))
        pilots = [_pilot(source, comparison, request) for comparison in tried]
        one_run = study.design.claim == "checkpoints" and pilots[0].seeds == 1
        if request.seed_sd is not None:
            if not one_run:
                problem, remedy = (
                    f"the noise between seeds is estimated from the pilot's {pilots[0].seeds} seeds",
                    "leave out --seed-sd",
                )
                raise ConfigError("power", "--seed-sd", request.seed_sd, problem, remedy)
            pilots, one_run = [with_seed_sd(pilot, request.seed_sd) for pilot in pilots], False
        elif one_run and request.seeds:
            problem, remedy = (
                "the pilot has one run per side, so it says nothing about seed-to-seed noise",
                "state the noise with --seed-sd",
            )
            raise ConfigError("power", "--seeds", request.seeds[0], problem, remedy)
        largest = max(pilots, key=lambda pilot: pilot.items)
        cost = source.cost(tried, (largest.items, largest.samples, largest.checkpoints))
        level, interims = Correction.of(study, judged).level, study.analysis.interim_analyses
        several = "1 comparison" if len(tried) == 1 else f"{len(tried)} comparisons"
        noise = (
            f"the noise of {several} with {'one run per side' if pilots[0].seeds == 1 else f'{pilots[0].seeds} seeds'}"
        )
        if study.analysis.protocol != LOGGED:
            noise += f" and {pilots[0].items:,} items"
        elif request.items:  # a value of each run
            logged = study.analysis.subsets
            problem = f"{' and '.join(logged)} {'was' if len(logged) == 1 else 'were'} logged without items"
            raise ConfigError("power", "--items", request.items[0], problem, "leave out --items")
    for few in request.items:
        if clusters := next((n for pilot in pilots if (n := pilot.clusters(few)) < 2), 0.0):
            problem = (
                f"corresponds to {fixed(clusters, 1)} independent items, which are too few to generalise to other items"
            )
            raise ConfigError("power", "--items", few, problem, "plan more items")
    pilots = _by_noise(pilots, level)
    items, typical = max(pilot.items for pilot in pilots), middle(pilots)
    sizes = (
        request.items or ((items,) if items == 1 else (items, 2 * items, 4 * items)),
        request.samples or [typical.samples],
        request.checkpoints or [typical.checkpoints],
    )
    seeds = (1,) if one_run else request.seeds or interims or SEEDS
    level_of = level_at(level, interims)
    return Search(request, pilots, level_of, noise, seeds, list(product(*sizes)), cost, one_run=one_run)


def with_seed_sd(pilot: Pilot, sd: float) -> Pilot:
    """Return a pilot of one run per side with `sd`, the stated SD between seeds of the difference of two runs."""
    return replace(pilot, variance=sd**2, sampling=0.0, df=math.inf, prior_df=0.0)


def middle(pilots: Sequence[Pilot]) -> Pilot:
    """Return the pilot with the median noise, from pilots in the order of their noise."""
    return pilots[(len(pilots) - 1) // 2]


def level_at(level: float, interims: Sequence[int]) -> Level:
    """Return the level of a comparison at each number of seeds; `level` is for all interim analyses together."""
    shares = interim_weights(interims)
    last = shares[interims[-1]] if interims else 1.0  # verdicts on more seeds rest on this interim analysis
    return lambda seeds: level * next((share for interim, share in shares.items() if interim >= seeds), last)


def _by_noise(pilots: Sequence[Pilot], level: float) -> list[Pilot]:
    return sorted(pilots, key=lambda pilot: minimal_detectable_effect(pilot.noise(pilot.seeds, pilot.items), level))


def _stated(request: Request) -> Pilot:
    """Return a pilot with the stated noise, at the first of `items`, `samples` and `checkpoints`."""
    assert request.seed_sd is not None
    assert request.item_sd is not None
    items, samples, checkpoints = ((given or [1])[0] for given in (request.items, request.samples, request.checkpoints))
    drawn = min((request.sample_sd or 0.0) ** 2 / (items * samples * checkpoints), request.seed_sd**2)
    pilot = Pilot("stated noise", 2, items, request.seed_sd**2, drawn, request.item_sd**2 / items)
    return _evaluated(pilot, samples, checkpoints, None, request)


def _pilot(source: Source, comparison: Comparison, request: Request) -> Pilot:
    """Return the pilot of a comparison of a source."""
    study, averaged = source.study, source.averaged
    if request.samples and comparison.child not in study.samples and not study.imported:
        problem = f"{study.name} does not state how many samples each item's value averages"
        raise ConfigError("power", "--samples", None, problem, "add `samples` to the analysis plan of the study")
    total = study.samples.get(comparison.child, averaged)
    samples, checkpoints = (total // averaged, averaged) if total % averaged == 0 else (total, 1)
    return _evaluated(split(comparison), samples, checkpoints, sampling_variance(study, comparison), request)


def _evaluated(pilot: Pilot, samples: int, checkpoints: int, drawn: float | None, request: Request) -> Pilot:
    """Return the pilot with the noise that samples and checkpoints add, estimated (`drawn`) or stated by the request.

    Raises ConfigError if samples or checkpoints are requested and their effect on the noise is not known.
    """
    if request.sample_sd is not None:
        drawn = request.sample_sd**2 / (pilot.items * samples * checkpoints)
    if request.samples and drawn is None:
        problem = "the noise that drawing samples adds is not known"
        remedy = "state this noise with --sample-sd (docs/how-to/choose-seeds.md)"
        raise ConfigError("power", "--samples", None, problem, remedy)
    fewer = min(request.checkpoints or [checkpoints]) < checkpoints
    if request.checkpoints and request.checkpoint_sd is None and (fewer or drawn is None):
        problem = "the noise between checkpoints is not known"
        remedy = "state this noise with --checkpoint-sd (docs/how-to/choose-seeds.md)"
        raise ConfigError("power", "--checkpoints", None, problem, remedy)
    between = 0.0 if request.checkpoint_sd is None else request.checkpoint_sd**2 / checkpoints
    return pilot.evaluated(samples, checkpoints, drawn or 0.0, between)


def _with_noise(comparisons: Sequence[Comparison]) -> list[Comparison]:
    """Return the comparisons from which the seed noise can be estimated. Raises ConfigError if there are none."""
    noisy = [comparison for comparison in comparisons if _tells_noise(comparison)]
    if not noisy:
        same = "the same value or difference in every seed"
        problem = f"has at most one seed, or {same}, so it says nothing about seed-to-seed noise"
        raise ConfigError("power", "--pilot", None, problem, "run two seeds, or state the noise with --seed-sd")
    return noisy


def _tells_noise(comparison: Comparison) -> bool:
    return comparison.estimate is not None and comparison.noise.seeds_known


def findable(store: Store, seeds: Mapping[str, int]) -> Iterator[str]:
    """Yield lines such as `gad: 5 seeds detect an effect of 0.02 with 80% power`; `seeds` is {study: number}."""
    for name in store.studies():
        if (count := seeds.get(name, 0)) < 2:
            continue
        study = read_measurements(store, name)
        comparisons = judge_comparisons(study)
        level = level_at(Correction.of(study, comparisons).level, study.analysis.interim_analyses)(count)
        noisy = [split(comparison) for comparison in comparisons if _tells_noise(comparison)]
        if pilots := _by_noise(noisy, level):
            typical = middle(pilots)
            effect = detectable(typical, count, typical.items, level, POWER)[0]
            median = f" (median of {len(pilots)} comparisons)" if len(pilots) > 1 else ""
            yield f"{name}: {count} seeds detect an effect of {rough(effect)} with {percent(POWER)} power{median}"

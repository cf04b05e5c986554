"""Makes the measurements of a study from its runs and items, and checks which runs may be compared."""

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from ablation.config.study_schema import Analysis, Target
from ablation.contract.display import listed, one_line
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted, stated
from ablation.contract.rows import LARGEST
from ablation.contract.status import TO_COME
from ablation.judge.design import Design
from ablation.judge.moderation import FEWEST_VARIANTS, SeedPrior, seed_prior
from ablation.judge.outcomes import Outcome, outcome_values
from ablation.judge.resampling import Clusters, Numbers, number_clusters
from ablation.judge.significance import Array
from ablation.judge.statistics import Direction, Group
from ablation.plan.plan_file import PlannedVariant
from ablation.store.database import ENDED_WELL, Run

PACKAGES = ("torch", "transformers", "vllm")
_NO_STAGES = pd.DataFrame(columns=["variant", "seed", "key", "hours"])


@dataclass(frozen=True)
class Weights:
    """The trained weights of one stage of one run."""

    key: str  # of the stage: equal where two variants share it
    digest: str
    moved: tuple[float, ...]  # empty if the stage measured models; its digest is then of all that its items depend on
    last: bool = False  # the run's last stage, whose items are compared


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Values by item, like a pandas series, which takes 20 times as long to build."""

    index: pd.Index  # the same object where runs have the same items
    values: Array


class Environment(NamedTuple):
    """The environment of a stage of a run, from the stage's provenance; None if unknown."""

    key: str  # of the stage: equal where two variants share it
    torch: str | None
    transformers: str | None
    vllm: str | None
    device: str | None  # the accelerator, or the processor where it had none
    devices: str | None  # how many: sums over several are rounded differently, and in bfloat16 other tokens are sampled


class Rule(NamedTuple):
    """A health rule that a run broke."""

    id: str
    diagnosis: str

    def __str__(self) -> str:
        return f"{self.id}: {self.diagnosis}"


@dataclass(frozen=True)
class Measurements:
    """The measurements of one study's runs, and what else is needed to judge the study."""

    name: str
    analysis: Analysis
    variants: Sequence[PlannedVariant]
    states: Mapping[Run, tuple[str, str]]  # (variant, seed): (state, reason); seeds in the order they were added
    values: Mapping[Run, Mapping[str, Column]]  # subset: value by item, sorted
    duplicates: frozenset[Run] = frozenset()  # runs in which an item occurs twice
    aborted: Mapping[Run, str] = field(default_factory=dict)  # why a run is unhealthy: rules of severity abort
    stages: pd.DataFrame = field(default_factory=lambda: _NO_STAGES)
    warned: Mapping[Run, Sequence[Rule]] = field(default_factory=dict)  # rules of severity warn that runs broke
    weights: Mapping[Run, Mapping[str, Weights]] = field(default_factory=dict)  # by stage
    clusters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # subset: cluster by item, where named
    cluster_fault: str = ""  # an item that two runs put into different clusters
    environments: Mapping[Run, Mapping[str, Environment]] = field(default_factory=dict)  # by stage
    not_judgeable: Mapping[Run, str] = field(
        default_factory=dict
    )  # why items have no value of the outcome or transform
    samples: Mapping[str, int] = field(default_factory=dict)  # {variant: samples of which an item's value is the mean}
    imported: bool = False  # whether other programs made the runs
    planned: bool = True  # whether a plan lists the runs that should exist; else they are those that somebody gave
    allowed: frozenset[str] = frozenset()  # differences that a gate accepts (`judge_study`)
    without: frozenset[Run] = frozenset()  # runs that may be missing or have failed; their seeds are left out
    steps: Mapping[Run, Sequence[int]] = field(default_factory=dict)  # of logged final metrics, by subset
    kept: bool = False  # whether these steps are of kept models, which are not the last ones in some runs
    history: Sequence[Mapping[str, Any]] = ()  # analysis plans since there were results, the present one last
    _groups: dict[Hashable, Group] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def direction(self) -> Direction:
        """Direction of improvement: max, min, or {"target": value}."""
        wanted = self.analysis.direction
        return {"target": wanted.target} if isinstance(wanted, Target) else wanted

    @cached_property
    def design(self) -> Design:
        """The plan's design: whether seeds are paired, and whether verdicts are about the recipe or the checkpoints."""
        return Design(self.analysis.seeds or "paired", self.analysis.claim or "recipe")

    @cached_property
    def parents(self) -> dict[str, str | None]:
        """The parent of each variant, in the order of the variants."""
        return {variant.name: variant.parent for variant in self.variants}

    def seeds(self, variant: str) -> list[int]:
        """Return the planned seeds of a variant in the order in which they were added, as in interim analyses."""
        return self._by_variant.get(variant, [])

    @cached_property
    def _by_variant(self) -> dict[str, list[int]]:
        seeds: dict[str, list[int]] = {}
        for name, seed in self.states:
            seeds.setdefault(name, []).append(seed)
        return seeds

    @cached_property
    def faults(self) -> dict[Run, str]:
        """The fault of each run, {run: message}; the message is empty for a sound run."""
        return {run: _fault(self, run) for run in self.states}

    @cached_property
    def item_lists(self) -> dict[Run, int]:
        """A number for each sound run, equal for runs that have the same items in the same order."""
        lists: list[list[pd.Index]] = []
        numbers: dict[Run, int] = {}
        for run in (run for run in self.states if not self.faults[run]):
            own = [self.values[run][subset].index for subset in self.analysis.subsets]
            alike = (all(a.equals(b) for a, b in zip(own, other, strict=True)) for other in lists)
            numbers[run] = next((number for number, same in enumerate(alike) if same), len(lists))
            lists += [own] if numbers[run] == len(lists) else []
        return numbers

    @cached_property
    def item_clusters(self) -> dict[Run, Clusters]:
        """Clusters of each sound run's items, as one object for all runs with the same items."""
        clusters: dict[int, Clusters] = {}
        for run, number in self.item_lists.items():
            if number not in clusters:
                sizes = [len(self.values[run][subset].values) for subset in self.analysis.subsets]
                clusters[number] = number_clusters(sizes, item_clusters(self, *run) if self.clusters else None)
        return {run: clusters[number] for run, number in self.item_lists.items()}

    @cached_property
    def prior(self) -> SeedPrior | None:
        """Prior of the seed noise, from all variants; if interim analyses are planned, from the seeds of the first."""
        few = len(self.variants) < FEWEST_VARIANTS
        return None if few or self.analysis.variance == "own" else _seed_prior(self)

    @cached_property
    def stage_hours(self) -> dict[str, dict[str, float]]:
        """Device-hours of each stage that a variant's runs used, by the stage's key."""
        hours: dict[str, dict[str, float]] = {}
        columns = (self.stages[name].tolist() for name in ("variant", "key", "hours"))
        for name, key, spent in zip(*columns, strict=True):
            hours.setdefault(name, {}).setdefault(key, spent)
        return hours

    def group(self, variant: str, seeds: Sequence[int], clusters: Clusters) -> Group:
        """Return the sound runs of a variant with these seeds, as one object for all comparisons that use the runs."""
        key = (variant, tuple(seeds), clusters)
        if key not in self._groups:
            runs = [self.values[variant, seed] for seed in seeds]
            values = [np.stack([run[subset].values for run in runs])[None] for subset in self.analysis.subsets]
            self._groups[key] = Group(
                values,
                self.direction,
                clusters,
                samples=self.samples.get(variant, 1),
                planned=self.planned,
                logarithms=bool(self.analysis.transform),
            )
        return self._groups[key]


def measurements_of(
    name: str,
    analysis: Analysis,
    variants: Sequence[PlannedVariant],
    states: Mapping[Run, tuple[str, str]],
    values: dict[Run, dict[str, Column]],
    *,
    samples: Mapping[str, int],
    clusters: Iterable[tuple[str, str, str]] = (),
    **further: Any,
) -> Measurements:
    """Return the measurements of a study from its runs and items, whether of a grid, an import, files or arrays.

    Args:
        name: of the study.
        analysis: its analysis plan.
        variants: its variants, parents before children.
        states: {run: (state, reason)} of all runs, in the order in which they were added.
        values: {run: {subset: values by item, sorted}}; replaced by the plan's outcome or transform.
        samples: {variant: samples of which an item's value is the mean}.
        clusters: (subset, item, cluster); repetitions are allowed.
        further: other fields of Measurements, which only a grid or an import knows.
    """
    not_judgeable: dict[Run, str] = {}
    if analysis.transform:
        not_judgeable = _logarithms(values, analysis)
    elif analysis.k:
        not_judgeable = _outcomes(values, analysis, samples)
    named, fault = _named_clusters(clusters)
    return Measurements(
        name=name,
        analysis=analysis,
        variants=variants,
        states=states,
        values=values,
        not_judgeable=not_judgeable,
        samples={} if analysis.k or analysis.transform else samples,
        clusters=named,
        cluster_fault=fault,
        **further,
    )


def _named_clusters(rows: Iterable[tuple[str, str, str]]) -> tuple[dict[str, dict[str, str]], str]:
    """Return {subset: {item: cluster}}, and a message if an item is in two clusters."""
    clusters: dict[str, dict[str, str]] = {}
    fault = ""
    for subset, item, cluster in rows:
        if (known := clusters.setdefault(subset, {}).setdefault(item, cluster)) != cluster and not fault:
            remedy = "name the same cluster for the item in every run"
            fault = f"item {item} of {subset} is in cluster {known} in one run and in {cluster} in another; {remedy}"
    return clusters, fault


def _outcomes(values: dict[Run, dict[str, Column]], analysis: Analysis, samples: Mapping[str, int]) -> dict[Run, str]:
    """Replace the items' means by the plan's outcome, such as pass@4; return {run: reason} if that is impossible."""
    outcome, faults = Outcome("pass" if analysis.pass_at else "cons", analysis.k), {}
    for run, by_subset in values.items():
        for subset, series in by_subset.items():
            count = samples.get(run[0], 0)
            if count < outcome.k:
                faults[run] = (
                    f"{counted(count, 'sample') if count else 'an unknown number of samples'} per item, "
                    f"but {analysis.outcome} needs {outcome.k}"
                )
                continue
            outcomes, odd = outcome_values(series.values, count, outcome)
            if odd is None:
                by_subset[subset] = Column(series.index, outcomes)
            else:
                item, value = one_line(series.index[odd], 80), stated(series.values[odd])
                share = f"a share of {counted(count, 'sample')}"
                faults[run] = f"{analysis.value} {value} for item {item}, which is not {share}"
    return faults


def _logarithms(values: dict[Run, dict[str, Column]], analysis: Analysis) -> dict[Run, str]:
    """Replace the items' values by their logarithms; return {run: message} for runs with a value without logarithm."""
    faults = {}
    for run, by_subset in values.items():
        for subset, series in list(by_subset.items()):
            without = np.flatnonzero(~(series.values > 0))
            if len(without):
                item, value = one_line(series.index[without[0]], 80), stated(series.values[without[0]])
                faults[run] = f"{analysis.value} {value} for item {item}, which has no logarithm"
                del by_subset[subset]  # what is left there would count in the study's range of values
            else:
                by_subset[subset] = Column(series.index, np.log(series.values))
    return faults


@dataclass(frozen=True)
class Problem:
    """The reason why runs cannot be compared.

    `waiting` is whether the only reason is that some runs have not ended.
    """

    text: str = ""
    waiting: bool = False

    def __bool__(self) -> bool:
        """Return whether there is a problem."""
        return bool(self.text)


class Compared(NamedTuple):
    """The compared runs of several variants.

    `runs` holds the seeds of each group, in the order in which they were added.
    """

    groups: list[Group]
    runs: list[list[int]]
    problem: Problem


def comparable(study: Measurements, variants: Sequence[str], *, paired: bool | None = None) -> Compared:
    """Return the runs of several variants that can be compared; `paired` overrides the study's design.

    With a problem, these are the sound runs that are left, or none: tables still show their values.
    """
    find_runs = _paired_runs if (study.design.paired if paired is None else paired) else _independent_runs
    runs, problems, waiting = find_runs(study, variants)

    groups, copies = [], []
    if all(runs):
        clusters = study.item_clusters[variants[0], runs[0][0]]
        groups = [study.group(variant, seeds, clusters) for variant, seeds in zip(variants, runs, strict=True)]
        copies = [_copy(*of) for of in zip(variants, runs, groups, strict=True) if of[-1].copy is not None]
    texts = dict.fromkeys([*problems, *copies])
    return Compared(groups, runs if groups else [], Problem("; ".join(texts), bool(texts) and waiting and not copies))


def _independent_runs(study: Measurements, variants: Sequence[str]) -> tuple[list[list[int]], list[str], bool]:
    """Return the sound seeds of each variant, the problems, and whether all problems are runs that have not ended."""
    problems = [study.cluster_fault] if study.cluster_fault else []
    sound, waiting = [], not problems
    for variant in variants:
        own = [seed for seed in study.seeds(variant) if (variant, seed) not in study.without]
        faulty = {seed: fault for seed in own if (fault := study.faults[variant, seed])}
        problems += [*faulty.values(), *(() if own else (f"{variant} has no runs",))]
        waiting = waiting and all(study.states[variant, seed][0] in TO_COME for seed in faulty)
        sound.append([seed for seed in own if seed not in faulty])
    runs = [(variant, seed) for variant, seeds in zip(variants, sound, strict=True) for seed in seeds]
    if faults := _item_faults(study, runs):
        return [[]], [*problems, *faults], False
    return sound, problems, waiting


def _paired_runs(study: Measurements, variants: Sequence[str]) -> tuple[list[list[int]], list[str], bool]:
    """Return the seeds with sound runs of all variants, the problems, and whether all problems are unfinished runs."""
    left_out = {seed for variant, seed in study.without if variant in variants}
    planned = [[seed for seed in study.seeds(variant) if seed not in left_out] for variant in variants]
    paired = [seed for seed in planned[0] if all(seed in seeds for seeds in planned)]
    problems = [study.cluster_fault] if study.cluster_fault else []

    # `add-seeds` adds seeds to some variants only: what both have is the beginning of what each has.
    begins = all(seeds[: len(paired)] == paired for seeds in planned if study.planned)
    if len(paired) < min(map(len, planned)) or not paired or not begins:
        listed = "; ".join(f"{v} has seeds {sorted(s)}" for v, s in zip(variants, planned, strict=True))
        remedy = "run the missing seeds, leave out fewer runs or, if runs share nothing, choose `seeds: independent`"
        problems.append(f"runs cannot be paired by seed: {listed}; {remedy}")

    # A run that is still to come makes the comparison wait; any other fault makes it invalid.
    sound, waiting = [], not problems
    for seed in paired:
        faulty = {variant: fault for variant in variants if (fault := study.faults[variant, seed])}
        faults = list(faulty.values()) or _item_faults(study, [(variant, seed) for variant in variants])
        problems += faults
        to_come = all(study.states[variant, seed][0] in TO_COME for variant in faulty)
        waiting = waiting and (not faults or (bool(faulty) and to_come))
        if not faults:
            sound.append(seed)

    # Items are drawn once for all seeds, so they must agree between seeds too.
    if faults := _item_faults(study, [(variants[0], seed) for seed in sound]):
        problems, waiting = [*problems, *faults], False
        lists = {seed: study.item_lists[variants[0], seed] for seed in sound}
        sound = [seed for seed in sound if lists[seed] == lists[sound[0]]]
    return [sound] * len(variants), problems, waiting


def _copy(variant: str, seeds: Sequence[int], group: Group) -> str:
    """Return, in words, which two seeds of a variant have the same values, and what to do."""
    assert group.copy is not None
    one, other = (seeds[place] for place in group.copy)
    problem = f"seeds {one} and {other} of {variant} have the same value on every item, so they may be one run"
    return f"{problem}; correct the run of seed {other}, or leave it out with --without {variant}:{other}"


def paired_values(study: Measurements, variants: Sequence[str]) -> tuple[list[Array], list[int], Problem]:
    """Return the paired runs of variants: an array [variants, seeds, items] per subset, the seeds, and the problem."""
    groups, runs, problem = comparable(study, variants, paired=True)
    values = [np.concatenate(by_group) for by_group in zip(*(group.values for group in groups), strict=True)]
    return values, runs[0] if runs else [], problem


def runs_named(command: str, words: Sequence[str]) -> frozenset[Run]:
    """Return (variant, seed) for each VARIANT:SEED. Raises ConfigError for any other text."""
    runs = []
    for word in words:
        variant, _, seed = word.rpartition(":")
        if not variant or not seed.isdecimal():
            raise ConfigError(command, "--without", word, "does not name a run", "write VARIANT:SEED, such as `new:5`")
        runs.append((variant, int(seed)))
    return frozenset(runs)


def permitting(study: Measurements, without: frozenset[Run]) -> Measurements:
    """Return the study in which these runs may be missing or failed. Raises ConfigError for an unknown run."""
    names = list(study.parents)
    seeds = {seed for _, seed in study.states}
    for variant, seed in sorted(without):
        if variant not in names or seed not in seeds:
            problem, remedy = f"the run does not exist in {study.name}", f"choose a run of {' or '.join(names)}"
            raise ConfigError("--without", f"{variant}:{seed}", None, problem, remedy)
    return replace(study, without=without)


def without_partner(study: Measurements, child: str, parent: str) -> list[Run]:
    """Return runs that are missing although the other variant has their seeds; a missing run may have failed.

    There are none in a planned study, in which `add-seeds` may plan more seeds of one variant.
    """
    if study.planned or not study.design.paired:
        return []
    of_child, of_parent = {*study.seeds(child)}, {*study.seeds(parent)}
    missing = [*((child, seed) for seed in of_parent - of_child), *((parent, seed) for seed in of_child - of_parent)]
    return sorted(run for run in missing if run not in study.without)


def item_clusters(study: Measurements, variant: str, seed: int) -> list[Numbers]:
    """Return the cluster number of each item of a run, one array [items] per subset.

    One name is one cluster in every subset. An item without a cluster is a cluster of its own.
    """
    numbers: dict[Any, int] = {}
    by_subset, unnamed = [], 0  # items that are clusters of their own
    for subset in study.analysis.subsets:
        named = study.clusters.get(subset, {})
        items = study.values[variant, seed][subset].index
        if named:
            keys = [named.get(item, (subset, item)) for item in items.tolist()]
            numbered = np.array([numbers.setdefault(key, unnamed + len(numbers)) for key in keys], dtype=np.int64)
        else:
            numbered = unnamed + len(numbers) + np.arange(len(items))
            unnamed += len(items)
        by_subset.append(numbered)
    return by_subset


def _fault(study: Measurements, run: Run) -> str:
    variant, seed = run
    state, reason = study.states[run]
    if state not in ENDED_WELL:
        words = {"missing": "has not run", "failed": "failed"}.get(state, f"is {state}")
        return f"{variant} seed {seed} {words}" + (f" ({reason})" if reason else "")
    if run in study.aborted:
        return f"{variant} seed {seed} is unhealthy ({study.aborted[run]})"
    if run in study.duplicates or run in study.not_judgeable:
        return f"{variant} seed {seed} has {study.not_judgeable.get(run, 'an item that occurs twice')}"
    values = study.values.get(run, {})
    for subset in study.analysis.subsets:
        if subset not in values:
            return f"{variant} seed {seed} has no items of {subset}"
        if not (np.abs(values[subset].values) <= LARGEST).all():
            return (
                f"{variant} seed {seed} has an item of {subset} whose value is not finite, or exceeds {stated(LARGEST)}"
            )
    return ""


def _item_faults(study: Measurements, runs: Sequence[Run]) -> list[str]:
    """Return the reason why sound runs cannot be paired item by item; empty if they can be paired."""
    if len({study.item_lists[run] for run in runs}) < 2:
        return []
    (first, first_seed), faults = runs[0], []
    for variant, seed in runs[1:]:
        for subset in study.analysis.subsets:
            wanted, items = (study.values[run][subset].index for run in (runs[0], (variant, seed)))
            if not items.equals(wanted):
                parent = f"{first} seed {first_seed} has {counted(len(wanted), 'item')}"
                counts = f"{parent} and {variant} seed {seed} has {len(items)}, with only"
                common = len(items.intersection(wanted))
                faults.append(f"items of {subset} cannot be paired: {counts} {common} in common")
    return faults


def _seed_prior(study: Measurements) -> SeedPrior | None:
    first = study.analysis.interim_analyses[0] if study.analysis.interim_analyses else None
    gains: dict[str, dict[int, float]] = {}
    for variant in study.variants:
        groups, runs, _ = comparable(study, [variant.name])
        if groups and not groups[0].one_run and (study.planned or not groups[0].copied):
            gains[variant.name] = dict(list(zip(runs[0], groups[0].gains.tolist(), strict=True))[:first])
    return seed_prior(gains, paired=study.design.paired)


@dataclass(frozen=True)
class Warned:
    """A health rule of severity `warn`, with the runs that broke the rule."""

    rule: Rule
    runs: tuple[str, ...]

    def __str__(self) -> str:
        """Return the rule and its runs as part of a reason."""
        return f"unhealthy (warn): {self.rule} ({listed(self.runs)})"


def warnings(study: Measurements, variants: Sequence[str]) -> tuple[Warned, ...]:
    """Return the health rules of severity `warn` that runs of the variants broke."""
    runs: dict[Rule, list[str]] = {}
    for variant in variants:
        for seed in sorted(study.seeds(variant)):
            for rule in study.warned.get((variant, seed), ()):
                runs.setdefault(rule, []).append(f"{variant} seed {seed}")
    return tuple(Warned(rule, tuple(broken_by)) for rule, broken_by in runs.items())

"""The measurements of one study's runs, read once from the database, and which runs may be compared."""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
import pandas as pd
import pyarrow as pa

from ablation.config.study_schema import Analysis, Target
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError
from ablation.contract.rows import LARGEST, LOGGED
from ablation.contract.status import TO_COME
from ablation.judge.design import Design
from ablation.judge.moderation import SeedPrior, seed_prior
from ablation.judge.outcomes import Outcome, outcome_values
from ablation.judge.resampling import Clusters, Numbers, number_clusters
from ablation.judge.significance import Array
from ablation.judge.statistics import Direction, Group
from ablation.plan.plan_file import PlannedVariant
from ablation.store.database import ENDED_WELL, Store

Run = tuple[str, int]  # variant, seed
_MEAN = {"samples": None, "pass_at": None, "cons_at": None}  # of another value than the plan's
PACKAGES = ("torch", "transformers", "vllm")


@dataclass(frozen=True)
class Weights:
    """The trained weights of one stage of one run."""

    key: str  # of the stage: equal where two variants share it
    digest: str
    moved: tuple[float, ...]  # none where the stage measured models: the digest is of all that its items depend on
    last: bool = False  # the run's last stage, whose items are compared


@dataclass(frozen=True, slots=True, eq=False)
class Column:
    """Values by item: the part of a pandas series that judging uses, built in a twentieth of the time."""

    index: pd.Index  # the same object where runs have the same items
    values: Array


class Environment(NamedTuple):
    """The environment of a stage of a run, by its provenance; None where unknown."""

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
    """The measurements of one study's runs, as verdicts need them: read once."""

    name: str
    analysis: Analysis
    variants: Sequence[PlannedVariant]
    states: Mapping[Run, tuple[str, str]]  # (variant, seed): (state, reason); seeds in the order they were added
    aborted: Mapping[Run, str]  # runs with a health event of severity abort
    values: Mapping[Run, Mapping[str, Column]]  # subset: value by item, sorted
    duplicates: frozenset[Run]
    stages: pd.DataFrame  # variant, seed, key, hours
    warned: Mapping[Run, Sequence[Rule]] = field(default_factory=dict)  # rules of severity warn that runs broke
    weights: Mapping[Run, Mapping[str, Weights]] = field(default_factory=dict)  # by stage
    clusters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # subset: cluster by item, where named
    cluster_fault: str = ""  # an item that two runs put into different clusters
    environments: Mapping[Run, Mapping[str, Environment]] = field(default_factory=dict)  # by stage
    no_shares: Mapping[Run, str] = field(default_factory=dict)  # why the plan's outcome is not in a run's items
    samples: Mapping[str, int] = field(default_factory=dict)  # of an item, that its value is the mean of, by variant
    imported: bool = False  # other programs made the runs
    planned: bool = True  # a plan knows which runs should be there; else they are those that somebody gave
    may_be_identical: bool = False  # evaluations that somebody gave may have the same values throughout
    without: frozenset[Run] = frozenset()  # runs that may be missing or have failed: their seeds are left out
    steps: Mapping[Run, Sequence[int]] = field(default_factory=dict)  # of final metrics that were logged, by subset
    kept: bool = False  # these steps are of models that were kept, and not the last, in some runs
    history: Sequence[Mapping[str, Any]] = ()  # analysis plans since there were results, the present one last
    _groups: dict[Hashable, Group] = field(default_factory=dict, init=False, repr=False, compare=False)

    @property
    def direction(self) -> Direction:
        """The direction of improvement, as `ablation.judge.statistics` takes it."""
        wanted = self.analysis.direction
        return {"target": wanted.target} if isinstance(wanted, Target) else wanted

    @cached_property
    def design(self) -> Design:
        """Which runs vary together, and what verdicts are about, as the analysis plan declares."""
        return Design(self.analysis.seeds or "paired", self.analysis.claim or "recipe")

    @cached_property
    def parents(self) -> dict[str, str | None]:
        """The parent of each variant, in the order of the variants."""
        return {variant.name: variant.parent for variant in self.variants}

    def seeds(self, variant: str) -> list[int]:
        """Planned seeds of a variant in the order in which the plan added them: that of the interim analyses."""
        return self._by_variant.get(variant, [])

    @cached_property
    def _by_variant(self) -> dict[str, list[int]]:
        seeds: dict[str, list[int]] = {}
        for name, seed in self.states:
            seeds.setdefault(name, []).append(seed)
        return seeds

    @cached_property
    def faults(self) -> dict[Run, str]:
        """The problem of each run, or nothing."""
        return {run: _fault(self, run) for run in self.states}

    @cached_property
    def item_lists(self) -> dict[Run, int]:
        """The number of each sound run's list of items: equal where they are the same items in the same order."""
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
        """The clusters of each sound run's items, the same object where the items are the same."""
        clusters: dict[int, Clusters] = {}
        for run, number in self.item_lists.items():
            if number not in clusters:
                by_subset = item_clusters(self, *run)
                clusters[number] = number_clusters([len(numbers) for numbers in by_subset], by_subset)
        return {run: clusters[number] for run, number in self.item_lists.items()}

    @cached_property
    def prior(self) -> SeedPrior | None:
        """The prior of the seeds' noise, from all variants; with interim analyses, from the seeds of the first."""
        return None if self.analysis.variance == "own" else _seed_prior(self)

    @cached_property
    def stage_hours(self) -> dict[str, dict[str, float]]:
        """Device-hours of each stage that a variant's runs used, by its key."""
        hours: dict[str, dict[str, float]] = {}
        columns = (self.stages[name].tolist() for name in ("variant", "key", "hours"))
        for name, key, spent in zip(*columns, strict=True):
            hours.setdefault(name, {}).setdefault(key, spent)
        return hours

    def group(self, variant: str, seeds: Sequence[int], clusters: Clusters) -> Group:
        """The sound runs of a variant in these seeds, the same object for all comparisons."""
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
            )
        return self._groups[key]


@dataclass(frozen=True)
class Problem:
    """The reason why runs cannot be compared; `waiting` if some have just not ended."""

    text: str = ""
    waiting: bool = False

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.text)


class Compared(NamedTuple):
    """What of several variants is compared: `runs` are the seeds of each group, in the order they were added."""

    groups: list[Group]
    runs: list[list[int]]
    problem: Problem


def comparable(study: Measurements, variants: Sequence[str], *, paired: bool | None = None) -> Compared:
    """The runs of several variants that are compared; `paired`: by seed, in place of what the study's design says.

    If there is a problem, they are the runs that can be compared all the same, or none.
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
    """Return the sound runs of each variant, the problems, and whether these are only that runs have not ended."""
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
    """As `_independent_runs`, of the seeds in which the runs of all variants are sound and have the same items."""
    left_out = {seed for variant, seed in study.without if variant in variants}
    planned = [[seed for seed in study.seeds(variant) if seed not in left_out] for variant in variants]
    paired = [seed for seed in planned[0] if all(seed in seeds for seeds in planned)]
    problems = [study.cluster_fault] if study.cluster_fault else []
    # `add-seeds` adds seeds to some variants only: what both have is the beginning of what each has.
    begins = all(seeds[: len(paired)] == paired for seeds in planned if study.planned)
    if len(paired) < min(map(len, planned)) or not paired or not begins:
        listed = "; ".join(f"{v} has seeds {sorted(s)}" for v, s in zip(variants, planned, strict=True))
        problems.append(f"unpaired: {listed}")
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
    """Which of a variant's runs stands under two seeds."""
    assert group.copy is not None
    one, other = (seeds[place] for place in group.copy)
    told = f"seeds {one} and {other} of {variant} have the same value on every item, as one run under two seeds"
    return f"{told}; give the run of seed {other}, or leave it out: --without {variant}:{other}"


def paired_values(study: Measurements, variants: Sequence[str]) -> tuple[list[Array], list[int], Problem]:
    """Pair runs of several variants: (one [variants, seeds, items] array per subset, seeds, problem)."""
    groups, runs, problem = comparable(study, variants, paired=True)
    values = [np.concatenate(by_group) for by_group in zip(*(group.values for group in groups), strict=True)]
    return values, runs[0] if runs else [], problem


def runs_named(command: str, words: Sequence[str]) -> frozenset[Run]:
    """Return (variant, seed) of each VARIANT:SEED. Raises ConfigError."""
    runs = []
    for word in words:
        variant, _, seed = word.rpartition(":")
        if not variant or not seed.isdecimal():
            raise ConfigError(command, "--without", word, "does not name a run", "write VARIANT:SEED, as `new:5`")
        runs.append((variant, int(seed)))
    return frozenset(runs)


def permitting(study: Measurements, without: frozenset[Run]) -> Measurements:
    """The study where these runs may be missing or have failed. Raises ConfigError for one that cannot be."""
    names = list(study.parents)
    seeds = {seed for _, seed in study.states}
    for variant, seed in sorted(without):
        if variant not in names or seed not in seeds:
            problem, remedy = f"{study.name} has no such run", f"variants are {', '.join(names)}"
            raise ConfigError("--without", f"{variant}:{seed}", None, problem, remedy)
    return replace(study, without=without) if without else study


def without_partner(study: Measurements, child: str, parent: str) -> list[Run]:
    """The runs that are missing beside one of the same seed: nobody knows whether they failed.

    A plan knows which runs there should be, and `add-seeds` may plan more of one variant.
    """
    if study.planned or not study.design.paired:
        return []
    ours, theirs = {*study.seeds(child)}, {*study.seeds(parent)}
    missing = [*((child, seed) for seed in theirs - ours), *((parent, seed) for seed in ours - theirs)]
    return sorted(run for run in missing if run not in study.without)


def item_clusters(study: Measurements, variant: str, seed: int) -> list[Numbers]:
    """Number of the cluster of each item, one array [items] per subset, in the order of `paired_values`.

    One name is one cluster, in every subset. An item without a cluster is one of its own.
    """
    numbers: dict[Any, int] = {}
    by_subset, own = [], 0  # items that are clusters of their own
    for subset in study.analysis.subsets:
        named = study.clusters.get(subset, {})
        items = study.values[variant, seed][subset].index
        if named:
            keys = [named.get(item, (subset, item)) for item in items.tolist()]
            numbered = np.array([numbers.setdefault(key, own + len(numbers)) for key in keys], dtype=np.int64)
        else:
            numbered = own + len(numbers) + np.arange(len(items))
            own += len(items)
        by_subset.append(numbered)
    return by_subset


def _fault(study: Measurements, run: Run) -> str:
    variant, seed = run
    state, reason = study.states[run]
    if state not in ENDED_WELL:
        word = "not run" if state == "missing" else state
        return f"{variant} seed {seed} is {word}" + (f" ({reason})" if reason else "")
    if run in study.aborted:
        return f"{variant} seed {seed} is unhealthy ({study.aborted[run]})"
    if run in study.duplicates or run in study.no_shares:
        return f"{variant} seed {seed} has {study.no_shares.get(run, 'an item twice')}"
    values = study.values.get(run, {})
    for subset in study.analysis.subsets:
        if subset not in values:
            return f"{variant} seed {seed} has no items of {subset}"
        if not (np.abs(values[subset].values) <= LARGEST).all():
            return f"{variant} seed {seed} has an item of {subset} whose value is not finite, or above {LARGEST:g}"
    return ""


def _item_faults(study: Measurements, runs: Sequence[Run]) -> list[str]:
    """The reason why sound runs cannot be paired item by item."""
    if len({study.item_lists[run] for run in runs}) < 2:
        return []
    (first, first_seed), faults = runs[0], []
    for variant, seed in runs[1:]:
        for subset in study.analysis.subsets:
            theirs, ours = (study.values[run][subset].index for run in (runs[0], (variant, seed)))
            if not ours.equals(theirs):
                counts = f"{first} seed {first_seed} has {len(theirs)}, {variant} seed {seed} has {len(ours)}"
                common = len(ours.intersection(theirs))
                faults.append(f"unpaired items of {subset}: {counts}, {common} in common")
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
    """A rule of severity warn, and the runs that broke it; it does not change a verdict."""

    rule: Rule
    runs: tuple[str, ...]

    def __str__(self) -> str:
        """The phrase of a reason."""
        more = f" and {len(self.runs) - 3} more" if len(self.runs) > 3 else ""
        return f"unhealthy (warn): {self.rule} ({', '.join(self.runs[:3])}{more})"


def warnings(study: Measurements, variants: Sequence[str]) -> tuple[Warned, ...]:
    """Return the rules of severity warn that runs of the variants broke."""
    runs: dict[Rule, list[str]] = {}
    for variant in variants:
        for seed in sorted(study.seeds(variant)):
            for rule in study.warned.get((variant, seed), ()):
                runs.setdefault(rule, []).append(f"{variant} seed {seed}")
    return tuple(Warned(rule, tuple(broken_by)) for rule, broken_by in runs.items())


def read_measurements(store: Store, name: str, value: str | None = None) -> Measurements:
    """Read one study from the database; `value` names another item value than the analysis plan's, as its mean."""
    definition = store.study(name)
    analysis = definition.analysis.model_copy(update={"value": value} | _MEAN if value else {})
    variants = store.variants(name)
    runs = store.runs(name)
    # Rows stand in the order of the plan, where added seeds follow those that were there.
    added = store.sql("SELECT seed FROM run_stages WHERE study = ? GROUP BY seed ORDER BY min(rowid)", [name])
    place = {int(seed): number for number, seed in enumerate(added["seed"])}
    runs = runs.sort_values("seed", key=lambda seeds: seeds.map(place), kind="stable")
    stages = store.sql(
        """SELECT r.variant, r.seed, r.key, s.device_hours AS hours
           FROM run_stages r JOIN stages s USING (key) WHERE r.study = ? ORDER BY r.variant, r.seed, r.position""",
        [name],
    )
    broken = _broken_rules(store, name)
    values, duplicates = _item_values(store, name, analysis)
    samples = {variant.name: count for variant in variants if (count := analysis.samples_in(variant.resolved))}
    no_shares = _outcomes(values, analysis, samples)
    clusters, cluster_fault = _named_clusters(store, name, analysis)
    return Measurements(
        name=name,
        analysis=analysis,
        variants=variants,
        states={(r["variant"], int(r["seed"])): (r["state"], r["reason"] or "") for r in runs.to_dict("records")},
        aborted={run: "; ".join(map(str, rules)) for run, rules in broken["abort"].items()},
        warned=broken["warn"],
        values=values,
        duplicates=duplicates,
        no_shares=no_shares,
        samples={} if analysis.k else samples,
        clusters=clusters,
        cluster_fault=cluster_fault,
        stages=stages,
        weights=_trained_weights(store, name),
        environments=_environments(store, name),
        imported=bool(definition.imported),
        planned=not definition.imported,
        steps=_steps(store, name, analysis),
        kept=definition.kept,
        history=definition.analysis_history,
    )


def _broken_rules(store: Store, name: str) -> dict[str, dict[Run, list[Rule]]]:
    """Health rules that runs broke: {severity: {run: rules}}."""
    events = store.sql(
        """SELECT DISTINCT r.variant, r.seed, h.severity, h.rule || ': ' || h.diagnosis AS said, h.rule, h.diagnosis
           FROM run_stages r JOIN health h USING (key)
           WHERE r.study = ? AND h.severity IN ('abort', 'warn') ORDER BY ALL""",
        [name],
    )
    broken: dict[str, dict[Run, list[Rule]]] = {"abort": {}, "warn": {}}
    for event in events.to_dict("records"):
        rule = Rule(event["rule"], event["diagnosis"])
        broken[event["severity"]].setdefault((event["variant"], int(event["seed"])), []).append(rule)
    return broken


_CHOSEN = """
WITH ended AS (SELECT key, dense_rank() OVER (ORDER BY variant, seed) - 1 AS run FROM finals WHERE study = ?),
chosen AS (SELECT run, list_position(?, subset) - 1 AS subset, item, value FROM ended JOIN items USING (key)
           WHERE protocol = ? AND name = ? AND list_contains(?, subset)),
numbered AS (SELECT item, row_number() OVER (ORDER BY item) - 1 AS number FROM (SELECT DISTINCT item FROM chosen))
"""


def _item_values(store: Store, name: str, analysis: Analysis) -> tuple[dict[Run, dict[str, Column]], frozenset[Run]]:
    """{run: {subset: values by item}} of the runs that ended well, and the runs that have an item twice."""
    # Runs, subsets and items are read as numbers: the names of millions of rows would take gigabytes.
    subsets = sorted(analysis.subsets)
    where = [name, subsets, analysis.protocol, analysis.value, subsets]
    names = pd.Index([item for (item,) in store.rows(f"{_CHOSEN} SELECT item FROM numbered ORDER BY number", where)[1]])
    ended = store.rows("SELECT DISTINCT variant, seed FROM finals WHERE study = ? ORDER BY variant, seed", [name])[1]
    place = f"(run * {len(subsets)} + subset) * {len(names)} + number"  # sorted here, in a third of DuckDB's memory
    rows = store.arrow(f"{_CHOSEN} SELECT CAST({place} AS BIGINT), value FROM chosen JOIN numbered USING (item)", where)
    places, value = (column.to_numpy() for column in rows.columns)
    del rows
    order = np.argsort(places, kind="stable")
    value, places = value[order], places[order]
    del order
    pa.default_memory_pool().release_unused()  # Arrow would keep what held the rows
    groups = places // max(len(names), 1)
    places -= groups * max(len(names), 1)
    number = places.astype(np.int32)
    del places
    ends = np.flatnonzero(groups[1:] != groups[:-1]) + 1
    values: dict[Run, dict[str, Column]] = {}
    duplicates: set[Run] = set()
    lists: dict[bytes, pd.Index] = {}  # most runs have the same items
    for start, end in pairwise([0, *ends.tolist(), len(value)] if len(value) else []):
        key = number[start:end].tobytes()
        index = lists[key] if key in lists else lists.setdefault(key, names[number[start:end]])
        run, subset = divmod(int(groups[start]), len(subsets))
        values.setdefault(ended[run], {})[subsets[subset]] = Column(index, value[start:end])
        if index.has_duplicates:
            duplicates.add(ended[run])
    return values, frozenset(duplicates)


def _outcomes(values: dict[Run, dict[str, Column]], analysis: Analysis, samples: Mapping[str, int]) -> dict[Run, str]:
    """Put the plan's outcome, if it has one, in place of the items' means; return why it cannot be in some runs."""
    if not analysis.k:
        return {}
    outcome, faults = Outcome("pass" if analysis.pass_at else "cons", analysis.k), {}
    for run, by_subset in values.items():
        for subset, series in by_subset.items():
            count = samples.get(run[0], 0)
            if count < outcome.k:
                told = f"{count or 'an unknown number of'} samples of an item"
                faults[run] = f"{told}, and {analysis.outcome} needs {outcome.k}"
                continue
            outcomes, odd = outcome_values(series.values, count, outcome)
            if odd is None:
                by_subset[subset] = Column(series.index, outcomes)
            else:
                item, value = one_line(series.index[odd], 80), series.values[odd]
                faults[run] = f"{analysis.value} {value:g} of item {item}, which is no share of {count} samples"
    return faults


def _named_clusters(store: Store, name: str, analysis: Analysis) -> tuple[dict[str, dict[str, str]], str]:
    """{subset: cluster by item} of the items whose runs name clusters, and the first item with two."""
    _, rows = store.rows(
        """SELECT i.subset, i.item, min(i.cluster), max(i.cluster) FROM finals f JOIN items i USING (key)
           WHERE f.study = ? AND i.protocol = ? AND i.name = ? AND list_contains(?, i.subset) AND i.cluster IS NOT NULL
           GROUP BY i.subset, i.item ORDER BY i.subset, i.item""",
        [name, analysis.protocol, analysis.value, analysis.subsets],
    )
    clusters: dict[str, dict[str, str]] = {}
    fault = ""
    for subset, item, cluster, other in rows:
        clusters.setdefault(subset, {})[item] = cluster
        if cluster != other and not fault:
            words = "a cluster belongs to the item: name the same one in every run"
            fault = f"item {item} of {subset} is in cluster {cluster} in one run and in {other} in another; {words}"
    return clusters, fault


def _steps(store: Store, name: str, analysis: Analysis) -> dict[Run, list[int]]:
    """The steps of the final metrics that decide; nothing where items do."""
    if analysis.protocol != LOGGED:
        return {}
    query = """SELECT variant, seed, step FROM finals JOIN metrics USING (key)
               WHERE study = ? AND list_contains(?, name) ORDER BY variant, seed, name"""
    steps: dict[Run, list[int]] = {}
    for variant, seed, step in store.rows(query, [name, analysis.subsets])[1]:
        steps.setdefault((variant, int(seed)), []).append(step)
    return steps


def _trained_weights(store: Store, name: str) -> dict[Run, dict[str, Weights]]:
    trained = store.sql(
        """SELECT r.variant, r.seed, r.stage, r.key, w.digest, w.moved, r.stage = ? AS last
           FROM run_stages r JOIN weights w USING (key) WHERE r.study = ?""",
        [store.study(name).last_stage, name],
    )
    weights: dict[Run, dict[str, Weights]] = {}
    for row in trained.to_dict("records"):
        made = Weights(row["key"], row["digest"], tuple(row["moved"]), bool(row["last"]))
        weights.setdefault((row["variant"], int(row["seed"])), {})[row["stage"]] = made
    return weights


def _environments(store: Store, name: str) -> dict[Run, dict[str, Environment]]:
    versions = ", ".join(f"p.data->'packages'->>'{package}'" for package in PACKAGES)
    device = "regexp_replace(s.device, '^[0-9]+ x ', '')"
    _, rows = store.rows(
        f"""SELECT r.variant, r.seed, r.stage, r.key, {versions},
               CASE WHEN s.device = 'cpu' THEN p.data->'hardware'->>'processor' ELSE {device} END,
               CAST(s.devices AS VARCHAR)
           FROM run_stages r JOIN stages s USING (key) JOIN provenance p USING (key) WHERE r.study = ?
           ORDER BY r.variant, r.seed, r.position""",
        [name],
    )
    environments: dict[Run, dict[str, Environment]] = {}
    for variant, seed, stage, *facts in rows:
        words = (text and one_line(text, 100) for text in facts)  # of any program
        environments.setdefault((variant, int(seed)), {})[stage] = Environment(*words)
    return environments

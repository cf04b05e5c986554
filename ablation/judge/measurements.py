"""What one study's runs measured, read from the database once for all that judges them."""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import pandas as pd

from ablation.config.study_schema import Analysis, Target
from ablation.contract.reading import one_line
from ablation.judge import no_effect
from ablation.judge.environments import PACKAGES, Environment, Environments
from ablation.judge.statistics import Direction
from ablation.plan.plan_file import PlannedVariant
from ablation.store.database import Store

Run = tuple[str, int]  # variant, seed


class Rule(NamedTuple):
    """A health rule that a run broke."""

    id: str
    diagnosis: str

    def __str__(self) -> str:
        return f"{self.id}: {self.diagnosis}"


@dataclass(frozen=True)
class Measurements:
    """What the runs of one study measured, as its verdicts need it: read once."""

    name: str
    analysis: Analysis
    variants: Sequence[PlannedVariant]
    states: Mapping[Run, tuple[str, str]]  # (variant, seed): (state, reason); seeds in the order they were added
    aborted: Mapping[Run, str]  # runs with a health event of severity abort
    values: Mapping[Run, Mapping[str, pd.Series]]  # subset: value by item, sorted
    duplicates: frozenset[Run]
    stages: pd.DataFrame  # variant, seed, key, hours
    warned: Mapping[Run, Sequence[Rule]] = field(default_factory=dict)  # rules of severity warn that runs broke
    weights: no_effect.TrainedWeights = field(default_factory=dict)
    clusters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # subset: cluster by item, where named
    cluster_fault: str = ""  # an item that two runs put into different clusters
    environments: Environments = field(default_factory=dict)
    imported: bool = False  # other programs made the runs
    history: Sequence[Mapping[str, Any]] = ()  # analysis plans since there were results, the present one last

    @property
    def direction(self) -> Direction:
        """The direction of improvement, as `ablation.judge.statistics` takes it."""
        wanted = self.analysis.direction
        return {"target": wanted.target} if isinstance(wanted, Target) else wanted

    def seeds(self, variant: str) -> set[int]:
        """Planned seeds of a variant."""
        return self._by_variant.get(variant, set())

    def in_order_added(self, seeds: Set[int]) -> list[int]:
        """These seeds in the order in which the plan added them, which is that of the looks."""
        return [seed for seed in self._every_seed if seed in seeds]

    @cached_property
    def _by_variant(self) -> dict[str, set[int]]:
        found: dict[str, set[int]] = {}
        for name, seed in self.states:
            found.setdefault(name, set()).add(seed)
        return found

    @cached_property
    def _every_seed(self) -> list[int]:
        return list(dict.fromkeys(seed for _, seed in self.states))


def read_measurements(store: Store, name: str, value: str | None = None) -> Measurements:
    """Read one study from the database; `value` names another item value than the analysis plan's."""
    definition = store.study(name)
    analysis = definition.analysis.model_copy(update={"value": value} if value else {})
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
    clusters, cluster_fault = _item_clusters(store, name, analysis)
    return Measurements(
        name=name,
        analysis=analysis,
        variants=store.variants(name),
        states={(r["variant"], int(r["seed"])): (r["state"], r["reason"] or "") for r in runs.to_dict("records")},
        aborted={run: "; ".join(map(str, rules)) for run, rules in broken["abort"].items()},
        warned=broken["warn"],
        values=values,
        duplicates=duplicates,
        clusters=clusters,
        cluster_fault=cluster_fault,
        stages=stages,
        weights=_trained_weights(store, name),
        environments=_environments(store, name),
        imported=bool(definition.imported),
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


def _item_values(store: Store, name: str, analysis: Analysis) -> tuple[dict[Run, dict[str, pd.Series]], frozenset[Run]]:
    """{run: {subset: values by item}} of the runs that ended well, and those of them that have an item twice."""
    items = store.sql(
        """SELECT f.variant, f.seed, i.subset, i.item, i.value FROM finals f JOIN items i USING (key)
           WHERE f.study = ? AND i.protocol = ? AND i.name = ? AND list_contains(?, i.subset)
           ORDER BY f.variant, f.seed, i.subset, i.item""",
        [name, analysis.protocol, analysis.value, analysis.subsets],
    )
    values: dict[Run, dict[str, pd.Series]] = {}
    duplicates: set[Run] = set()
    groups: Any = items.groupby(["variant", "seed", "subset"], sort=False)
    for (variant, seed, subset), group in groups:
        series = pd.Series(group["value"].to_numpy(dtype=float), index=pd.Index(group["item"]))
        values.setdefault((variant, int(seed)), {})[subset] = series
        if series.index.has_duplicates:
            duplicates.add((variant, int(seed)))
    return values, frozenset(duplicates)


def _item_clusters(store: Store, name: str, analysis: Analysis) -> tuple[dict[str, dict[str, str]], str]:
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


def _trained_weights(store: Store, name: str) -> dict[Run, dict[str, no_effect.Weights]]:
    trained = store.sql(
        """SELECT r.variant, r.seed, r.stage, r.key, w.digest, w.moved, r.stage = d.definition->>'last_stage' AS last
           FROM run_stages r JOIN weights w USING (key) JOIN studies d USING (study) WHERE r.study = ?""",
        [name],
    )
    weights: dict[Run, dict[str, no_effect.Weights]] = {}
    for row in trained.to_dict("records"):
        made = no_effect.Weights(row["key"], row["digest"], tuple(row["moved"]), bool(row["last"]))
        weights.setdefault((row["variant"], int(row["seed"])), {})[row["stage"]] = made
    return weights


def _environments(store: Store, name: str) -> dict[Run, dict[str, Environment]]:
    versions = ", ".join(f"p.data->'packages'->>'{package}'" for package in PACKAGES)
    device = "regexp_replace(s.device, '^[0-9]+ x ', '')"
    _, rows = store.rows(
        f"""SELECT r.variant, r.seed, r.stage, r.key, {versions},
               CASE WHEN s.device = 'cpu' THEN p.data->'hardware'->>'processor' ELSE {device} END
           FROM run_stages r JOIN stages s USING (key) JOIN provenance p USING (key) WHERE r.study = ?
           ORDER BY r.variant, r.seed, r.position""",
        [name],
    )
    found: dict[Run, dict[str, Environment]] = {}
    for variant, seed, stage, *known in rows:
        words = (text and one_line(text, 100) for text in known)  # of any program
        found.setdefault((variant, int(seed)), {})[stage] = Environment(*words)
    return found

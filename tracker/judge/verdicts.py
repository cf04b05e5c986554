"""From the database to one word per edge, with its evidence.

    edge_verdicts(store) -> DataFrame, one row per edge (parent -> child) of every study, columns COLUMNS
    interactions(store)  -> DataFrame, one row per declared combination, columns INTERACTION_COLUMNS

`store` is a `tracker.store.database.Store` or a duckdb connection to the same tables. Numbers that do not exist are
NaN or None.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import pandas as pd

from tracker.config.study_schema import Analysis, Target
from tracker.judge import no_effect
from tracker.judge.power import minimal_detectable_effect, seeds_needed
from tracker.judge.sequential import look_weights, sequential_p
from tracker.judge.statistics import Array, Direction, Estimate, contrast, half_width, holm, sign_flip
from tracker.store.stored_study import StoredStudy

WORDS = ("better", "worse", "equivalent", "undecided", "confounded", "invalid")
INTERACTION_COLUMNS = [
    "study",
    "combination",
    "parts",
    "baseline",
    "effect",
    "low",
    "high",
    "p",
    "seeds",
    "items",
    "reason",
]
UNHEALTHY = "unhealthy (warn): "  # begins a phrase of a reason: rule, diagnosis, runs
_NAN = float("nan")


@dataclass
class Edge:
    """One comparison; `effect`, `low`, `high`, `mde` in units of the statistic, positive is an improvement."""

    study: str
    parent: str
    child: str
    verdict: str = "invalid"  # one of WORDS
    detail: str = "invalid"  # the word were it not confounded
    effect: float = _NAN
    low: float = _NAN  # interval at 1 - alpha, not adjusted for the number of edges
    high: float = _NAN
    p: float = _NAN  # two-sided; over all looks where the study declares looks
    p_adjusted: float = _NAN  # Holm over the study's edges
    p_sign_flip: float = _NAN  # over seeds, the items taken as fixed
    mde: float = _NAN  # at 80% power and level alpha / edges
    seeds: int = 0
    items: int = 0
    seeds_needed: int | None = None  # to find the observed effect with 80% power
    cost_hours: float = 0.0  # device-hours of the child's stages that the parent does not share
    confounded: bool = False
    factors: tuple[str, ...] = ()
    reason: str = ""
    estimate: Estimate | None = field(default=None, repr=False)


COLUMNS = [name for name in Edge.__dataclass_fields__ if name != "estimate"]


@dataclass(frozen=True)
class Study:
    """What one study's verdicts need, read once."""

    name: str
    analysis: Analysis
    variants: pd.DataFrame  # variant, parent, factors, changes
    states: Mapping[tuple[str, int], tuple[str, str]]  # (variant, seed): (state, reason)
    aborted: Mapping[tuple[str, int], str]  # runs with a health event of severity abort
    values: Mapping[tuple[str, int], Mapping[str, pd.Series]]  # subset: value by item, sorted
    duplicates: frozenset[tuple[str, int]]
    stages: pd.DataFrame  # variant, seed, key, hours
    warned: Mapping[tuple[str, int], Sequence[str]] = field(default_factory=dict)  # runs with events of severity warn
    weights: no_effect.TrainedWeights = field(default_factory=dict)
    history: Sequence[Mapping[str, Any]] = ()  # analysis plans since there were results, the present one last

    def seeds(self, variant: str) -> set[int]:
        """Planned seeds of a variant."""
        return {seed for name, seed in self.states if name == variant}


def edge_verdicts(store: Any, study: str | None = None) -> pd.DataFrame:
    """Judge every edge of every study, or of one."""
    edges = [edge for name in _study_names(store, study) for edge in judge(load_study(store, name))]
    rows = [{name: value for name, value in asdict(edge).items() if name != "estimate"} for edge in edges]
    frame = pd.DataFrame(rows, columns=COLUMNS)
    return frame.astype({"seeds_needed": "Int64", "seeds": "int64", "items": "int64", "confounded": bool})


def judge(study: Study) -> list[Edge]:
    """Verdicts of one study's edges, in the order of its variants."""
    edges = [_measure(study, row) for row in study.variants.itertuples() if isinstance(row.parent, str)]
    analysis = study.analysis
    for edge, p in zip(edges, holm([edge.p for edge in edges]), strict=True):
        edge.p_adjusted = float(p)
    tested = max(sum(not np.isnan(edge.p) for edge in edges), 1)
    for edge in edges:
        if edge.estimate is not None:
            _decide(edge, edge.estimate, analysis, tested)
        notes = (*_idle(study, edge), *_warnings(study, (edge.child, edge.parent)))
        edge.reason = "; ".join(filter(None, (edge.reason, *notes)))
    return edges


def _idle(study: Study, edge: Edge) -> list[str]:
    """What is known of changes without effect; it does not change the verdict."""
    rows = study.variants.loc[study.variants["variant"] == edge.child, "changes"]
    changes = json.loads(rows.iloc[0]) if isinstance(rows.iloc[0], str) else rows.iloc[0]
    return no_effect.planned(changes or ()) + no_effect.trained(study.weights, edge.child, edge.parent)


def _decide(edge: Edge, numbers: Estimate, analysis: Analysis, tested: int) -> None:
    level = analysis.alpha / tested
    edge.mde = minimal_detectable_effect(numbers.seed_variance, numbers.item_variance, numbers.seeds, level)
    edge.seeds_needed = seeds_needed(numbers.centre, numbers.seed_variance, numbers.item_variance, numbers.seeds, level)
    if edge.detail != "invalid":
        edge.detail, edge.reason = _word(edge, numbers, analysis)
    edge.verdict = "confounded" if edge.confounded and edge.detail != "invalid" else edge.detail


def interactions(store: Any, study: str | None = None) -> pd.DataFrame:
    """Each declared combination minus the sum of its parts, all against the parts' common parent."""
    rows = []
    for name in _study_names(store, study):
        loaded = load_study(store, name)
        parents = dict(zip(loaded.variants["variant"], loaded.variants["parent"], strict=True))
        for combination, parts in loaded.analysis.combinations.items():
            rows.append({"study": name} | _interaction(loaded, parents, combination, parts))
    return pd.DataFrame(rows, columns=INTERACTION_COLUMNS)


def load_study(store: Any, name: str) -> Study:
    """Read one study from the database."""
    definition = query(store, "SELECT definition FROM studies WHERE study = ?", [name])["definition"][0]
    record = StoredStudy.model_validate_json(definition)
    analysis = record.analysis
    variants = query(
        store, "SELECT variant, parent, factors, changes FROM variants WHERE study = ? ORDER BY position", [name]
    )
    runs = query(store, "SELECT variant, seed, state, reason FROM runs WHERE study = ? ORDER BY variant, seed", [name])
    events = query(
        store,
        """SELECT DISTINCT r.variant, r.seed, h.severity, h.rule || ': ' || h.diagnosis AS why
           FROM run_stages r JOIN health h USING (key)
           WHERE r.study = ? AND h.severity IN ('abort', 'warn') ORDER BY ALL""",
        [name],
    )
    unhealthy: dict[str, dict[tuple[str, int], list[str]]] = {"abort": {}, "warn": {}}
    for event in events.to_dict("records"):
        unhealthy[event["severity"]].setdefault((event["variant"], int(event["seed"])), []).append(event["why"])
    stages = query(
        store,
        """SELECT r.variant, r.seed, r.key, s.device_hours AS hours
           FROM run_stages r JOIN stages s USING (key) WHERE r.study = ? ORDER BY r.variant, r.seed, r.position""",
        [name],
    )
    items = query(
        store,
        """SELECT f.variant, f.seed, i.subset, i.item, i.value FROM finals f JOIN items i USING (key)
           WHERE f.study = ? AND i.protocol = ? AND i.name = ? AND list_contains(?, i.subset)
           ORDER BY f.variant, f.seed, i.subset, i.item""",
        [name, analysis.protocol, analysis.value, analysis.subsets],
    )
    values: dict[tuple[str, int], dict[str, pd.Series]] = {}
    duplicates: set[tuple[str, int]] = set()
    groups: Any = items.groupby(["variant", "seed", "subset"], sort=False)
    for (variant, seed, subset), group in groups:
        series = pd.Series(group["value"].to_numpy(dtype=float), index=pd.Index(group["item"]))
        values.setdefault((variant, int(seed)), {})[subset] = series
        if series.index.has_duplicates:
            duplicates.add((variant, int(seed)))
    trained = query(
        store,
        """SELECT r.variant, r.seed, r.stage, r.key, w.digest, w.moved
           FROM run_stages r JOIN weights w USING (key) WHERE r.study = ?""",
        [name],
    )
    weights: dict[tuple[str, int], dict[str, no_effect.Weights]] = {}
    for row in trained.to_dict("records"):
        made = no_effect.Weights(row["key"], row["digest"], tuple(row["moved"]))
        weights.setdefault((row["variant"], int(row["seed"])), {})[row["stage"]] = made
    return Study(
        name=name,
        analysis=analysis,
        variants=variants,
        states={(r["variant"], int(r["seed"])): (r["state"], r["reason"] or "") for r in runs.to_dict("records")},
        aborted={run: "; ".join(reasons) for run, reasons in unhealthy["abort"].items()},
        warned=unhealthy["warn"],
        values=values,
        duplicates=frozenset(duplicates),
        stages=stages,
        weights=weights,
        history=record.analysis_history,
    )


def direction_of(analysis: Analysis) -> Direction:
    """Return the direction as `tracker.judge.statistics` takes it."""
    direction = analysis.direction
    return {"target": direction.target} if isinstance(direction, Target) else direction


def paired_values(study: Study, variants: Sequence[str]) -> tuple[list[Array], list[int], str]:
    """Pair runs of several variants: (one [variants, seeds, items] array per subset, seeds, problem).

    `problem` is "" where the pairing holds; otherwise the arrays hold the seeds that can be paired, or none.
    """
    planned = [study.seeds(variant) for variant in variants]
    common = set.intersection(*planned)
    # `decide` adds seeds to some variants only: more seeds on one side is a longer prefix, not another pairing.
    smallest = min(planned, key=len)
    problems = []
    if common != smallest or not common:
        listed = "; ".join(f"{v} has seeds {sorted(s)}" for v, s in zip(variants, planned, strict=True))
        problems.append(f"unpaired: {listed}")
    usable = []
    for seed in sorted(common):
        faults = [fault for variant in variants if (fault := _fault(study, variant, seed))]
        faults = faults or list(_item_faults(study, [(variant, seed) for variant in variants]))
        problems += faults
        if not faults:
            usable.append(seed)
    # Items are drawn once for all seeds, so they must agree between seeds too.
    first = [run for seed in usable[:1] for run in [(variants[0], seed)]]
    for seed in list(usable[1:]):
        if faults := list(_item_faults(study, [*first, (variants[0], seed)])):
            problems += faults
            usable.remove(seed)
    if not usable:
        return [], [], "; ".join(dict.fromkeys(problems)) or "no seeds"
    arrays = [
        np.stack([[study.values[variant, seed][subset].to_numpy() for seed in usable] for variant in variants])
        for subset in study.analysis.subsets
    ]
    return arrays, usable, "; ".join(dict.fromkeys(problems))


def _fault(study: Study, variant: str, seed: int) -> str:
    run = (variant, seed)
    state, reason = study.states[run]
    if state != "ok":
        return f"{variant} seed {seed} is {state}" + (f" ({reason})" if reason else "")
    if run in study.aborted:
        return f"{variant} seed {seed} is unhealthy ({study.aborted[run]})"
    if run in study.duplicates:
        return f"{variant} seed {seed} has an item twice"
    found = study.values.get(run, {})
    for subset in study.analysis.subsets:
        if subset not in found:
            return f"{variant} seed {seed} has no items of {subset}"
        if not np.isfinite(found[subset].to_numpy()).all():
            return f"{variant} seed {seed} has an item of {subset} whose value is not finite"
    return ""


def _warnings(study: Study, variants: Sequence[str]) -> list[str]:
    """One phrase per rule of severity warn that runs of the variants broke; they do not change the verdict."""
    runs: dict[str, list[str]] = {}
    for variant in variants:
        for seed in sorted(study.seeds(variant)):
            for why in study.warned.get((variant, seed), ()):
                runs.setdefault(why, []).append(f"{variant} seed {seed}")
    return [
        f"{UNHEALTHY}{why} ({', '.join(found[:3])}{f' and {len(found) - 3} more' if len(found) > 3 else ''})"
        for why, found in runs.items()
    ]


def _item_faults(study: Study, runs: Sequence[tuple[str, int]]) -> Iterator[str]:
    reference = study.values[runs[0]]
    for variant, seed in runs[1:]:
        for subset in study.analysis.subsets:
            ours, theirs = reference[subset].index, study.values[variant, seed][subset].index
            if not ours.equals(theirs):
                shared = len(ours.intersection(theirs))
                yield (
                    f"unpaired items of {subset}: {runs[0][0]} seed {runs[0][1]} has {len(ours)}, "
                    f"{variant} seed {seed} has {len(theirs)}, {shared} in common"
                )


def _measure(study: Study, row: Any) -> Edge:
    factors = tuple(json.loads(row.factors) if isinstance(row.factors, str) else row.factors or ())
    edge = Edge(study.name, row.parent, row.variant, factors=factors, confounded=len(factors) > 1)
    values, _, problem = paired_values(study, [row.variant, row.parent])
    edge.cost_hours = _cost_hours(study, row.variant, row.parent)
    edge.detail, edge.reason = ("invalid", problem) if problem else ("", "")
    if not values:
        return edge
    direction, confidence = direction_of(study.analysis), 1 - study.analysis.alpha
    numbers = contrast(values, (1, -1), direction, confidence=confidence)
    edge.estimate, edge.seeds, edge.items = numbers, numbers.seeds, numbers.items
    edge.effect, edge.low, edge.high = numbers.effect, numbers.low, numbers.high
    if numbers.seeds > 1:
        edge.p_sign_flip = sign_flip(numbers.per_seed)[0]
    if not problem:
        edge.p = _p_over_looks(study.analysis, values, numbers)
    return edge


def _p_over_looks(analysis: Analysis, values: Sequence[Array], numbers: Estimate) -> float:
    if not (looks := analysis.looks):
        return numbers.p
    taken = {}
    for look in (count for count in looks if count <= numbers.seeds):
        seen = [subset[:, :look] for subset in values]
        taken[look] = numbers.p if look == numbers.seeds else contrast(seen, (1, -1), direction_of(analysis)).p
    return sequential_p(taken, look_weights(looks, analysis.alpha))


def _word(edge: Edge, numbers: Estimate, analysis: Analysis) -> tuple[str, str]:
    margin, alpha = analysis.margin, analysis.alpha
    if numbers.seeds == 1:
        tendency = "no difference" if numbers.item_p > alpha else ("better" if numbers.effect > 0 else "worse")
        said = f"item noise alone would say {tendency} (p = {numbers.item_p:.2g})"
        return "undecided", f"one seed: seed noise is unknown; {said}"
    sign = "better" if numbers.centre > 0 else "worse"
    significant = edge.p_adjusted <= alpha
    shown = f"p = {edge.p_adjusted:.2g} after Holm's correction"
    same = numbers.effect == 0 and numbers.seed_variance + numbers.item_variance == 0
    if _inside(numbers, margin, analysis):
        if same:
            return "equivalent", "no item differs, in any seed: the change had no effect on these runs"
        tail = f"; {sign} by less than the margin, {shown}" if significant else ""
        return "equivalent", f"the interval lies within ±{margin:g}{tail}"
    if significant:
        return sign, shown
    if np.isnan(edge.p):
        shown = f"before the first look, at {analysis.looks[0]} seeds"
    if same:
        unseen = "no item differs, in any seed; a difference too rare for so few items would not have been seen"
        return "undecided", unseen
    more = f"about {edge.seeds_needed} seeds" if edge.seeds_needed else "more items, not only more seeds,"
    return "undecided", f"{shown}; {more} would be needed for an effect this large"


def _inside(numbers: Estimate, margin: float, analysis: Analysis) -> bool:
    """Two one-sided tests at alpha / 2; with looks, the interval is widened to what the look may spend."""
    low, high = numbers.low, numbers.high
    if looks := analysis.looks:
        weights = look_weights(looks, analysis.alpha)
        taken = [look for look in looks if look <= numbers.seeds]
        if not taken or weights[taken[-1]] <= 0:
            return False
        level = analysis.alpha * weights[taken[-1]]
        half = half_width(numbers.seed_variance, numbers.item_variance, numbers.seeds, level)
        low, high = min(low, numbers.centre - half), max(high, numbers.centre + half)
    return -margin <= low and high <= margin


def _cost_hours(study: Study, child: str, parent: str) -> float:
    stages = study.stages
    shared = set(stages.loc[stages["variant"] == parent, "key"])
    own = stages[(stages["variant"] == child) & ~stages["key"].isin(shared)].drop_duplicates("key")
    return float(own["hours"].sum())


def _interaction(study: Study, parents: Mapping[str, Any], combination: str, parts: Sequence[str]) -> dict[str, Any]:
    row: dict[str, Any] = {
        "combination": combination,
        "parts": " + ".join(parts),
        "baseline": None,
        "seeds": 0,
        "items": 0,
    }
    row |= dict.fromkeys(("effect", "low", "high", "p"), _NAN)
    unknown = [name for name in (combination, *parts) if name not in parents]
    baselines = {parents.get(part) for part in parts}
    if unknown or len(parts) < 2 or len(baselines) != 1 or not isinstance(baseline := baselines.pop(), str):
        why = (
            f"no variant {unknown[0]!r}" if unknown else "a combination needs two or more parts with one common parent"
        )
        return row | {"reason": why}
    values, _, problem = paired_values(study, [combination, *parts, baseline])
    warnings = _warnings(study, [combination, *parts, baseline])
    row |= {"baseline": baseline, "reason": "; ".join(filter(None, (problem, *warnings)))}
    if not values:
        return row
    weights = [1.0, *[-1.0] * len(parts), len(parts) - 1.0]
    numbers = contrast(values, weights, direction_of(study.analysis), confidence=1 - study.analysis.alpha)
    return row | {name: getattr(numbers, name) for name in ("effect", "low", "high", "p", "seeds", "items")}


def _study_names(store: Any, only: str | None) -> list[str]:
    names = query(store, "SELECT study FROM studies ORDER BY rowid")["study"].tolist()
    return names if only is None else [name for name in names if name == only]


def query(store: Any, text: str, parameters: Sequence[Any] = ()) -> pd.DataFrame:
    """Run SQL on a Store or on a duckdb connection."""
    if hasattr(store, "execute"):
        return store.execute(text, list(parameters)).df()
    return store.sql(text, parameters)

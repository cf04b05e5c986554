"""All content of the page, gathered from the database; the templates arrange it."""

import json
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from types import SimpleNamespace
from typing import Any
from urllib.parse import quote

from ablation.audit import audit, claimed
from ablation.audit.claimed import Claimed
from ablation.audit.measured import measured, published_value
from ablation.audit.table import Finding
from ablation.config import dotted
from ablation.config.study import differences
from ablation.contract.errors import TrackerError
from ablation.contract.numbers import confidence, is_number, plural
from ablation.contract.status import FAILED, TO_COME
from ablation.judge.budget import Prices
from ablation.judge.comparisons import joint_steps, judge_all_pairs, may_differ
from ablation.judge.decide import read_seeded_stages
from ablation.judge.explain import explain, group_name
from ablation.judge.factorial import FRACTION, design
from ablation.judge.measurements import Measurements
from ablation.judge.stored import read_measurements
from ablation.judge.verdicts import JudgedStudy, comparison_table, interaction_table, judge_study
from ablation.plan.plan_file import PlannedVariant
from ablation.show.answer import findings, interval_words, nearest_decision
from ablation.show.methods import could_help
from ablation.show.other_tables import group_table, keys_that_group
from ablation.show.page.comparisons import Record, bound_of, forest_axis, study_comparisons, within
from ablation.show.page.data import MOST_VARIANTS, plan_curves, study_curves, study_pairs
from ablation.show.page.published import DotPlot, dot_plots
from ablation.show.page.samples import Quoted, page_samples
from ablation.show.tables import build_table, items_in_words, means_over
from ablation.show.text import clean_records, day, describe_change
from ablation.store.analysis_history import StoredStudy
from ablation.store.database import ENDED_WELL, Store
from ablation.store.samples import study_samples

SEVERITIES = {"abort": 0, "warn": 1, "note": 2}
EFFECTS = ("effect", "low", "high", "joint_low", "joint_high", "p", "p_adjusted", "seeds", "items")


class StudyPage(SimpleNamespace):
    """Content of one study for the templates, gathered by `study_page`."""

    name: str
    anchor: str
    answers: list[str]


@dataclass(frozen=True)
class Page:
    """Content of the report page.

    last: the time when the last stage ended. samples: texts of the items that changed most in each comparison.
    """

    scale: str
    plan_digest: str | None
    last: str | None
    studies: list[StudyPage]
    samples: Quoted = field(default_factory=dict)


def read_page(store: Store) -> Page:
    """Judge every study once and gather the content of the page."""
    meta, names = store.meta(), store.studies()
    definitions = {name: store.study(name) for name in names}
    budget = plan_curves(store, definitions)
    studies, texts = [], []
    for name, anchor in zip(names, anchors(names), strict=True):
        definition = definitions[name]
        curves, judged = study_curves(store, name, definition, budget), judge_study(store, name)
        study = study_page(store, definition, judged, curves)
        study.anchor = anchor
        study.curves_left_out = budget.left_out.get(name, 0)
        study.curves_of = 0 if budget.all_seeds(name) else budget.seeds
        studies.append(study)
        if (samples := study_samples(store, name)).files:  # without texts, the items of the study need not be kept
            pairs = [(comparison.parent, comparison.child) for comparison in judged.comparisons]
            texts.append((judged.measurements, pairs, samples))
        del judged  # before the next study is read
    studies.sort(key=lambda study: study.rank)  # the others stay in the order of the plan
    return Page(meta["scale"], meta.get("plan digest"), day(store.stages()["ended"]), studies, page_samples(texts))


def study_page(store: Store, definition: StoredStudy, judged: JudgedStudy, curves: Mapping[str, Any]) -> StudyPage:
    """Gather the content of one study."""
    name, analysis, history = definition.name, definition.analysis, definition.analysis_history
    variants, table, bound = store.variants(name), build_table(store, name), bound_of(store, name, analysis)
    verdicts, joint = clean_records(within(comparison_table([judged]), bound)), joint_steps(judged.comparisons)
    comparisons = study_comparisons(variants, verdicts, analysis.margin)
    pairs = judge_all_pairs(judged.measurements) if len(variants) <= MOST_VARIANTS else ()
    plots = dot_plots(table) if definition.published else []
    audited, claims = _audited(store, definition, judged.measurements)
    states: dict[str, dict[int, str]] = {variant.name: {} for variant in variants}
    for variant, seed, state in store.runs(name)[["variant", "seed", "state"]].itertuples(index=False):
        states[variant][int(seed)] = state
    counts = Counter(state for row in states.values() for state in row.values())
    seeds = sorted(map(len, states.values())) or [0]
    outcomes = {verdict for verdict, _ in comparisons.counts}
    # The place on the page: a change is better or worse, a change is judged, a run has started, or nothing has.
    progress = (outcomes & {"better", "worse"}, outcomes - {"not run"}, set(counts) - {"missing"}, True)
    health = broken_rules(store, name)
    return StudyPage(
        name=name,
        definition=definition,
        analysis=analysis,
        confidence=confidence(analysis.alpha),
        seeds_shown=may_differ(judged.comparisons),
        rank=next(place for place, reached in enumerate(progress) if reached),
        comparisons=comparisons,
        comparison_of={row.variant.name: row for row in comparisons.rows},
        number_of={row.variant.name: number for number, row in enumerate(comparisons.rows, 1)},  # for the ids of rows
        curves=curves,
        highlight=_highlight(comparisons.measured, curves),
        answers=findings(verdicts, analysis, joint),
        moved={name: _moved(comparisons.judged, name) for name in ("better", "worse")},
        others=findings([row for row in verdicts if row["verdict"] not in ("better", "worse")], analysis, joint),
        explained=_explained(store, name),
        next_cost=_next_cost(store, name, verdicts),
        over=interval_words(judged.comparisons) if judged.comparisons else "",
        resized=_resized(variants),
        averaged=means_over(definition, variants, analysis.protocol),
        pairs=study_pairs(variants, comparisons, pairs, bound),
        interactions=clean_records(interaction_table([judged])),
        states=states,
        state_counts={state: counts[state] for state in (*ENDED_WELL, *FAILED, *TO_COME) if counts[state]},
        planned=counts.total(),
        ended_well=sum(counts[state] for state in ENDED_WELL),
        seeds=sorted({seed for row in states.values() for seed in row}),
        one_seed=seeds[-1] == 1,
        seeds_per_variant=plural(seeds[-1], "seed") if seeds[0] == seeds[-1] else f"{seeds[0]} to {seeds[-1]} seeds",
        problems=problems(store, name),
        run_files=run_files(store, name, definition.run_url),
        table=table,
        groups=[(key, group_table(table, variants, key)) for key in keys_that_group(variants)],
        items_in_words=items_in_words(store.item_counts(name)),
        health=health,
        broken={
            variant.name: [rule for rule in health if rule["severity"] != "note" and variant.name in rule["variants"]]
            for variant in variants
        },
        plots=plots,
        findings=audited,
        claims=claims,
        errors=sum(finding.severity == "error" for finding in audited),  # numbers that are wrong or impossible
        figures=_figures(definition.title, comparisons.judged, plots),
        plan_changed=judged.plan_changed,
        plan_causes=[cause for old, new in pairwise(history) for cause in could_help(old, new)],
        provenance=provenance(store, name),
        seconds=_device_seconds(store, name),
    )


def _moved(comparisons: Iterable[Record], verdict: str) -> list[Record]:
    """Return the comparisons that have this verdict, the largest effect first."""
    return sorted((each for each in comparisons if each["verdict"] == verdict), key=lambda each: -abs(each["effect"]))


def _explained(store: Store, study: str) -> dict[tuple[str, str], SimpleNamespace]:
    """Return the answers of `ablation explain` for each change of several factors whose intermediate runs exist.

    {(parent, child): the answer in `words`, the effects of factors and interactions as `parts`, and their `axis`}.
    """
    found: dict[tuple[str, str], SimpleNamespace] = {}
    variants = store.variants(study, helpers=True)
    if not any(variant.helper for variant in variants):
        return found
    measured = read_measurements(store, study, helpers=True)
    for variant in variants:
        n = len(variant.factors)
        if variant.parent is None or not 2 <= n <= FRACTION:
            continue
        runs = _runs_between(variant, variants)
        if not all(run in runs for run in design(n)):
            continue
        try:
            answer = explain(measured, {run: runs[run] for run in design(n)}, n)
        except TrackerError:  # a run in between is missing or failed, which the list of runs shows
            continue
        named = [(group_name(part, variant.factors), part) for part in answer.parts]
        joint = [part for part in answer.joint if len(part.sets[0]) > 1]
        named += [(f"interaction of {part.name(variant.factors)}", part) for part in joint]
        parts = [
            {
                "name": name,
                "effect": part.effect,
                "interval": (part.low, part.high),
                "verdict": "undecided" if not part.shown else "better" if part.effect > 0 else "worse",
            }
            for name, part in named
        ]
        bounds = [end for _, part in named for end in (part.low, part.high)]
        axis = forest_axis(bounds, measured.analysis.margin)
        words = answer.in_words(variant.factors)
        found[variant.parent, variant.name] = SimpleNamespace(words=words, parts=parts, axis=axis)
    return found


def _runs_between(child: PlannedVariant, variants: Iterable[PlannedVariant]) -> dict[frozenset[int], str]:
    """Return {indices of factors: variant that has these factors from the child and all others from the parent}."""
    parent = next(variant for variant in variants if variant.name == child.parent)
    keys: dict[str, set[str]] = {}
    for change in child.changes:
        keys.setdefault(change.factor, set()).add(change.key)
    found: dict[frozenset[int], str] = {frozenset(): parent.name, frozenset(range(len(child.factors))): child.name}
    for variant in variants:
        changed = {key for key, _, _ in differences(parent.resolved, variant.resolved)}
        missing = {key for key, _, _ in differences(child.resolved, variant.resolved)}
        chosen = frozenset(i for i, factor in enumerate(child.factors) if keys[factor] <= changed)
        chosen_keys = set[str]().union(*(keys[child.factors[i]] for i in chosen))
        if changed == chosen_keys and not missing & chosen_keys:
            found.setdefault(chosen, variant.name)
    return found


def _next_cost(store: Store, study: str, verdicts: Sequence[Record]) -> float:
    """Return the device time, in seconds, of the additional seeds that `findings` suggests; 0 if unknown."""
    nearest = nearest_decision(verdicts)
    if nearest is None:
        return 0.0
    prices = Prices.from_stages(read_seeded_stages(store, study))
    units = prices.units.get(nearest["child"], frozenset()) | prices.units.get(nearest["parent"], frozenset())
    more = nearest["seeds_needed"] - nearest["seeds"]
    return 3600 * more * sum(prices.hours.get(unit, 0.0) for unit in units)


def _audited(store: Store, definition: StoredStudy, study: Measurements) -> tuple[Sequence[Finding], Sequence[Claimed]]:
    """Return the findings of the audit, and the claims of the source beside the measured values."""
    published = definition.published
    if published is None:
        return (), ()
    value = published_value(store, definition.name, published)
    if value is not None and value != study.analysis.named:
        study = read_measurements(store, definition.name, value)
    measurements = measured(store, study, published)
    return audit(published, measurements), claimed(published, measurements)


def _resized(variants: Sequence[PlannedVariant]) -> bool:
    """Return whether the scale changed a value that is shown in the variant tree."""
    return any(dotted.get(v.resolved, change.key, change.new) != change.new for v in variants for change in v.changes)


def _highlight(comparisons: Sequence[Record], curves: Mapping[str, Any]) -> Record | None:
    """Return the comparison that the curves show first: the largest effect among those that are better or worse.

    Prefers two variants with a curve of the first metric, and takes other verdicts if none is better or worse.
    """
    drawn = {curves["variants"][series[0]] for metric in curves["metrics"][:1] for series in metric["series"]}
    shown = [record for record in comparisons if {record["child"], record["parent"]} <= drawn] or comparisons
    decided = [record for record in shown if record["verdict"] in ("better", "worse")]
    return max(decided or shown, key=lambda record: abs(record["effect"]), default=None)


def _figures(title: str, comparisons: Iterable[Record], plots: Sequence[DotPlot]) -> dict[str, Any]:
    """Return `{title, effects, published}`, the numbers behind the figures of the page; None for a missing figure.

    effects: `{columns, rows}` with a row per comparison, in the order of the variant tree: variant, against, change,
    verdict and the numbers of EFFECTS, null if there is none. published: `[{label, rows}]` of each `DotPlot`.
    """
    rows = [
        [record["child"], record["parent"], "; ".join(map(describe_change, record["changes"])), record["verdict"]]
        + [value if is_number(value := record[column]) else None for column in EFFECTS]
        for record in comparisons
    ]
    effects = {"columns": ["variant", "against", "change", "verdict", *EFFECTS], "rows": rows}
    published = [{"label": plot.label, "rows": plot.rows} for plot in plots]
    return {"title": title, "effects": effects if rows else None, "published": published or None}


def _device_seconds(store: Store, study: str) -> float:
    """Return the device time, in seconds, of all stages of the study's runs; a shared stage counts once."""
    query = """SELECT coalesce(sum(device_hours), 0) * 3600 FROM stages
        WHERE key IN (SELECT key FROM run_stages WHERE study = ?)"""
    return float(store.rows(query, [study])[1][0][0])


def anchors(names: Sequence[str]) -> list[str]:
    """Return a unique and readable HTML id for each name."""
    ids: list[str] = []
    for name in names:
        base = "study-" + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "x")
        anchor, number = base, 1
        while anchor in ids:
            number += 1
            anchor = f"{base}-{number}"
        ids.append(anchor)
    return ids


def run_files(store: Store, study: str, url: str) -> list[dict[str, Any]]:
    """Return a record per run: {run, stages: [(name, folder)], origin, id, url}; runs made here have no origin or id.

    `url`: address of a run's page at its tracker, with {id} for the id of the run; empty if it is not known.
    """
    query = """SELECT r.variant || ' seed ' || r.seed AS run, list([r.stage, s.dir] ORDER BY r.position) AS stages,
            min(json_extract_string(p.data, '$.imported.from')) AS origin,
            min(json_extract_string(p.data, '$.imported.run')) AS id
        FROM run_stages r JOIN stages s USING (key) LEFT JOIN provenance p USING (key)
        JOIN variants v ON v.study = r.study AND v.variant = r.variant
        WHERE r.study = ? AND s.state NOT IN ('missing', 'blocked')
        GROUP BY r.variant, r.seed, v.position ORDER BY v.position, r.seed"""
    records = clean_records(store.sql(query, [study]))
    return [record | {"url": url.replace("{id}", quote(record["id"] or "", safe="/"))} for record in records]


def problems(store: Store, study: str) -> list[dict[str, Any]]:
    """Return the stages that did not succeed, grouped: {stage, state, reason, runs, dirs that contain a log}.

    Stages that only wait for another stage of the same run are left out. Failures come before stages that have not run.
    """
    frame = store.sql(
        "SELECT s.stage, s.state, coalesce(s.reason, '') AS reason, s.dir, any_value(r.position) AS position,"
        " list(r.variant || ' seed ' || r.seed ORDER BY v.position, r.seed) AS runs, min(v.position) AS first"
        " FROM stages s JOIN run_stages r USING (key) JOIN variants v ON v.study = r.study AND v.variant = r.variant"
        " WHERE r.study = ? AND s.state NOT IN ('ok', 'imported') GROUP BY s.key, s.stage, s.state, s.reason, s.dir"
        " ORDER BY position, first, min(r.seed)",
        [study],
    )
    explained: set[str] = set()
    groups: dict[tuple[str, str, str], dict[str, Any]] = {}
    for row in clean_records(frame):
        runs = [run for run in row["runs"] if run not in explained or row["state"] not in ("blocked", "missing")]
        explained.update(row["runs"])
        if not runs:
            continue
        blank = {"stage": row["stage"], "state": row["state"], "reason": row["reason"], "runs": [], "dirs": []}
        group = groups.setdefault((row["stage"], row["state"], row["reason"]), blank)
        group["runs"] += runs
        group["dirs"] += [] if row["state"] in ("blocked", "missing") else [row["dir"]]
    return sorted(groups.values(), key=lambda group: group["state"] in TO_COME)


def broken_rules(store: Store, study: str) -> list[dict[str, Any]]:
    """Return the broken health rules, the most severe first: {severity, rule, diagnosis, remedy, events, variants}.

    events: {runs, stage, metric, value, first_step, last_step}; an event of a shared stage occurs once, with all runs
    that use the stage. variants: {name: seeds}.
    """
    frame = store.sql(
        "SELECT h.*, any_value(r.stage) AS stage, min(v.position) AS first,"
        " list({variant: r.variant, seed: r.seed} ORDER BY v.position, r.seed) AS runs"
        " FROM health h JOIN run_stages r USING (key) JOIN variants v ON v.study = r.study AND v.variant = r.variant"
        " WHERE r.study = ? GROUP BY ALL ORDER BY first, runs, h.first_step, h.rule",
        [study],
    )
    rules: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in clean_records(frame):
        words = {key: event[key] for key in ("severity", "rule", "diagnosis", "remedy")}
        rule = rules.setdefault(tuple(words.values()), {**words, "events": [], "variants": {}})
        for run in event["runs"]:
            seeds = rule["variants"].setdefault(run["variant"], [])
            seeds += [] if run["seed"] in seeds else [run["seed"]]
        rule["events"].append({**event, "runs": [f"{run['variant']} seed {run['seed']}" for run in event["runs"]]})
    return sorted(rules.values(), key=lambda rule: SEVERITIES.get(rule["severity"], 1))


MAIN_FACTS = {"git.commit", "git.dirty", "python", "packages.torch", "packages.transformers"}
MAIN_FACTS |= {"hardware.processor", "hardware.gpus"}


def provenance(store: Store, study: str) -> list[dict[str, Any]]:
    """Return an entry per key of provenance.json: {key, main, values: [(text, number of stages)]}."""
    frame = store.sql(
        "SELECT key, data FROM provenance WHERE key IN (SELECT key FROM run_stages WHERE study = ?) ORDER BY key",
        [study],
    )
    counted: dict[str, Counter[str]] = {}
    for text in frame["data"]:
        for key, value in dotted.leaves(json.loads(text)):
            counted.setdefault(key, Counter())[_fact(value)] += 1
    return [
        {"key": key, "main": key in MAIN_FACTS, "values": sorted(values.items(), key=lambda item: (-item[1], item[0]))}
        for key, values in sorted(counted.items())
        if key.split(".")[0] not in ("argv", "command")
    ]


def _fact(value: Any) -> str:
    if isinstance(value, bool) or value is None:
        return {None: "none", True: "yes", False: "no"}[value]
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)

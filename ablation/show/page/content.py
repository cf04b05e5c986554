"""Everything that the page says, gathered from the database; the templates only place it."""

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import pandas as pd

from ablation.audit.table import Finding
from ablation.config.published_schema import PublishedFile
from ablation.config.study_schema import Analysis
from ablation.contract.status import TO_COME
from ablation.judge.certificate.tally import StudyCertificate
from ablation.judge.edges import Pair
from ablation.show.answer import answer
from ablation.show.other_tables import group_table, keys_that_group
from ablation.show.page.curves import plan_curves, study_curves
from ablation.show.page.edges import EdgeRow, Edges, bound_of, clean_records, figure_data, study_edges, within
from ablation.show.page.format import day, plural
from ablation.show.page.pairs import MOST_VARIANTS, Pairs, study_pairs
from ablation.show.page.plan_words import could_help
from ablation.show.page.plots import DotPlot, FindingGroup, Plane, dot_plots, finding_groups
from ablation.show.page.samples import Quoted
from ablation.show.tables import ComparisonTable, build_table, means_over
from ablation.store.database import ENDED_WELL, Store
from ablation.store.stored_study import StoredStudy

Judge = Callable[[str], tuple[pd.DataFrame, pd.DataFrame]]
Check = Callable[[str, PublishedFile], Sequence[Finding]]
Compare = Callable[[str], Sequence[Pair]]
Certify = Callable[[str], StudyCertificate | None]
SEVERITIES = {"abort": 0, "error": 0, "warn": 1, "warning": 1, "note": 2, "info": 2}


@dataclass(frozen=True)
class RunGrid:
    """State of every run: `cells[variant][seed]` is (state, reason), or None where the plan has no such run."""

    seeds: list[int]
    cells: dict[str, dict[int, tuple[str, str] | None]]
    counts: dict[str, int]

    @property
    def seeds_per_variant(self) -> str:
        """`5 seeds`, or `2 to 5 seeds` where some variants have more than others."""
        planned = sorted(sum(cell is not None for cell in row.values()) for row in self.cells.values()) or [0]
        return plural(planned[-1], "seed") if planned[0] == planned[-1] else f"{planned[0]} to {planned[-1]} seeds"

    @property
    def planned(self) -> int:
        """Number of runs in the plan."""
        return sum(self.counts.values())

    @property
    def ok(self) -> int:
        """Number of runs that ended well."""
        return sum(self.counts.get(state, 0) for state in ENDED_WELL)


@dataclass(frozen=True)
class Published:
    """Numbers that someone reported: their source, plots that set them beside ours, and the audit's findings."""

    source: str
    plots: list[DotPlot]
    findings: Sequence[Finding]

    @property
    def groups(self) -> list[FindingGroup]:
        """The findings by kind."""
        return finding_groups(self.findings)

    @property
    def errors(self) -> int:
        """Number of findings that are wrong or impossible, not merely unsupported."""
        return sum(finding.severity == "error" for finding in self.findings)


@dataclass(frozen=True)
class StudyPage:
    """One study. `table_reference` is the index of the table's reference row."""

    anchor: str
    name: str
    title: str
    question: str
    source: str
    analysis: Analysis
    analysis_digest: str
    imported: str
    history: list[dict[str, Any]]
    rules: int
    edges: Edges
    answer: str
    averaged: str
    pairs: Pairs
    interactions: list[dict[str, Any]]
    grid: RunGrid
    problems: list[dict[str, Any]]
    table: ComparisonTable
    table_reference: int | None
    groups: list[tuple[str, ComparisonTable]]
    curves: Mapping[str, Any]
    curves_left_out: int
    items: int
    health: list[dict[str, Any]]
    published: Published | None
    figures: Mapping[str, Any]
    certificate: StudyCertificate | None
    provenance: list[dict[str, Any]]
    seconds: float
    planes: Sequence[Plane] = ()

    @property
    def plan_changed(self) -> bool:
        """Whether the analysis plan was changed after there were results."""
        return len(self.history) > 1

    @property
    def plan_causes(self) -> list[str]:
        """Changes to the plan, made after results existed, that could have favoured a verdict."""
        return [cause for old, new in pairwise(self.history) for cause in could_help(old, new)]

    @property
    def stir(self) -> int:
        """Place on the page: 0 where a change is better or worse, 2 where none is judged yet, else 1."""
        words = {word for word, _ in self.edges.counts}
        return 0 if words & {"better", "worse"} else 1 if words - {"not run"} else 2

    @property
    def confidence(self) -> str:
        """Level of the intervals, as a percentage."""
        return f"{100 * (1 - self.analysis.alpha):g}%"

    @property
    def number_of(self) -> dict[str, int]:
        """Place of each variant in the lineage, from 1: the tail of its row's id."""
        return {row.variant.name: number for number, row in enumerate(self.edges.rows, 1)}

    @property
    def highlight(self) -> tuple[str, str] | None:
        """The edge (parent, variant) with the largest effect, decided ones first: what the curves show at first."""
        edges = [(name, edge) for name, edge in self.edges.comparisons if edge.interval]
        decided = [(name, edge) for name, edge in edges if edge.verdict in ("better", "worse")]
        best = max(decided or edges, key=lambda found: abs(found[1].evidence["effect"]), default=None)
        return (best[1].parent, best[0]) if best else None

    @property
    def edge_of(self) -> dict[str, EdgeRow]:
        """The lineage's row of each variant."""
        return {row.variant.name: row for row in self.edges.rows}


@dataclass(frozen=True)
class Page:
    """The whole report. `last` is when the last stage ended: the page tells the time of its data, never its own.

    samples: items that changed along the edges of each study, in words.
    """

    scale: str
    plan_digest: str | None
    last: str | None
    studies: list[StudyPage]
    samples: Quoted = field(default_factory=dict)


def build_page(store: Store, judge: Judge, check: Check, certify: Certify, compare: Compare) -> Page:
    """Gather the page; `judge(study)` returns verdicts and interactions, `check(study, published)` the audit.

    `certify(study)` returns the certificate of the study as it is in the database, if there is one, and
    `compare(study)` its judged pairs.
    """
    meta, names = store.meta(), store.studies()
    definitions = {name: store.study(name) for name in names}
    budget = plan_curves(store, definitions)
    studies = []
    for name, anchor in zip(names, anchors(names), strict=True):
        definition, variants, table = definitions[name], store.variants(name), build_table(store, name)
        analysis, found = definition.analysis, _published(name, definition, table, check)
        verdicts, combinations = judge(name)
        bound = bound_of(store, name, analysis)
        verdicts = within(verdicts, bound)
        curves = study_curves(store, name, definition, budget)
        reference = definition.table.reference
        edges = study_edges(variants, verdicts, analysis.margin)
        pairs = compare(name) if len(variants) <= MOST_VARIANTS else ()
        studies.append(
            StudyPage(
                anchor=anchor,
                name=name,
                title=definition.title,
                question=definition.question,
                source=definition.source or "",
                analysis=analysis,
                analysis_digest=definition.analysis_digest,
                imported=definition.imported,
                history=definition.analysis_history,
                rules=len(definition.health),
                edges=edges,
                answer=answer(verdicts, analysis.margin),
                averaged=means_over(definition, variants, analysis.protocol) if analysis else "",
                pairs=study_pairs(variants, edges, pairs, bound),
                interactions=clean_records(combinations),
                grid=run_grid(store, name, [variant.name for variant in variants]),
                problems=problems(store, name),
                table=table,
                table_reference=0 if reference and table.rows else None,
                groups=[(key, group_table(table, variants, key)) for key in keys_that_group(variants)],
                curves=curves,
                curves_left_out=budget.left_out.get(name, 0),
                items=int(store.item_counts(name)["items"].sum()),
                health=broken_rules(store, name),
                published=found,
                figures=figure_data(definition.title, edges, found.plots if found else []),
                certificate=certify(name),
                provenance=provenance(store, name),
                seconds=device_seconds(store, name),
            )
        )
    studies.sort(key=lambda study: study.stir)  # the others stay in the order of the plan
    return Page(meta["scale"], meta.get("plan digest"), day(store.stages()["ended"]), studies)


def _published(study: str, definition: StoredStudy, table: ComparisonTable, check: Check) -> Published | None:
    content = definition.published
    if content is None:
        return None
    return Published(content.source, dot_plots(table), check(study, content))


def anchors(names: Sequence[str]) -> list[str]:
    """One HTML id per name: readable, made of safe characters only, and unique."""
    taken: set[str] = set()
    result = []
    for name in names:
        base = "study-" + (re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or "x")
        anchor, count = base, 1
        while anchor in taken:
            count += 1
            anchor = f"{base}-{count}"
        taken.add(anchor)
        result.append(anchor)
    return result


def run_grid(store: Store, study: str, variants: Sequence[str]) -> RunGrid:
    """States of the runs of one study."""
    runs = store.runs(study)
    seeds = sorted({int(seed) for seed in runs["seed"]})
    cells: dict[str, dict[int, tuple[str, str] | None]] = {v: dict.fromkeys(seeds) for v in variants}
    for run in clean_records(runs):
        cells[run["variant"]][run["seed"]] = (run["state"], run["reason"] or "")
    counts = {str(state): int(count) for state, count in runs["state"].value_counts().sort_index().items()}
    return RunGrid(seeds, cells, counts)


def problems(store: Store, study: str) -> list[dict[str, Any]]:
    """What is not ok, by stage, state and reason: {stage, state, reason, runs, dirs of stages with a log}.

    What only waits for another stage of the same run is left out. Failures come first, then what was not run.
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
    """Health rules that tripped, the most severe first: {severity, rule, diagnosis, remedy, events, variants}.

    events: {runs, stage, metric, value, first_step, last_step}; a shared stage's event stands once, with all runs that
    the stage serves. variants: {name: seeds}.
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
    return sorted(rules.values(), key=lambda rule: SEVERITIES.get(str(rule["severity"]), 1))


def device_seconds(store: Store, study: str) -> float:
    """Device time of all distinct stages that the study's runs used, shared ones once."""
    frame = store.sql(
        "SELECT coalesce(sum(device_hours), 0) * 3600 AS seconds FROM stages"
        " WHERE key IN (SELECT key FROM run_stages WHERE study = ?)",
        [study],
    )
    return float(frame["seconds"][0])


MAIN_FACTS = {
    "git.commit",
    "git.dirty",
    "python",
    "packages.torch",
    "packages.transformers",
    "hardware.processor",
    "hardware.gpus",
}


def provenance(store: Store, study: str) -> list[dict[str, Any]]:
    """One entry per leaf of provenance.json: {key, main, values: [(text, number of stages)]}."""
    frame = store.sql(
        "SELECT key, data FROM provenance WHERE key IN (SELECT key FROM run_stages WHERE study = ?) ORDER BY key",
        [study],
    )
    counted: dict[str, dict[str, int]] = {}
    for text in frame["data"]:
        for key, value in _leaves(json.loads(text)):
            values = counted.setdefault(key, {})
            values[value] = values.get(value, 0) + 1
    return [
        {"key": key, "main": key in MAIN_FACTS, "values": sorted(values.items(), key=lambda item: (-item[1], item[0]))}
        for key, values in sorted(counted.items())
        if key.split(".")[0] not in ("argv", "command")
    ]


def _leaves(value: Any, path: str = "") -> list[tuple[str, str]]:
    if isinstance(value, dict):
        return [leaf for key in value for leaf in _leaves(value[key], f"{path}.{key}" if path else str(key))]
    if isinstance(value, bool) or value is None:
        return [(path, {None: "none", True: "yes", False: "no"}[value])]
    return [(path, ", ".join(map(str, value)) if isinstance(value, list) else str(value))]

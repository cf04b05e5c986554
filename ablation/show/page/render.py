"""The report page: one self-contained HTML file, drawn from the database and its certificate, that opens offline.

The same database and certificate give the same bytes: the page shows the time of its data, never the time of drawing.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pandas as pd
from jinja2 import Environment, FileSystemLoader, StrictUndefined

from ablation.audit import audit
from ablation.audit.measured import measured, published_value
from ablation.audit.table import Finding
from ablation.config.published_schema import PublishedFile
from ablation.contract.atomic import write_text
from ablation.judge.certificate.certify import digest_of, known
from ablation.judge.certificate.tally import StudyCertificate, describe
from ablation.judge.edges import WORDS, Pair, judge_all_pairs
from ablation.judge.measurements import read_measurements
from ablation.judge.verdicts import JudgedStudy, edge_table, interaction_table, judge_study
from ablation.show.page.content import Certify, Check, Compare, Judge, Page, build_page
from ablation.show.page.edges import evidence
from ablation.show.page.format import (
    duration,
    is_number,
    minute,
    number,
    p_value,
    plural,
    severity_word,
    signed,
    state_word,
    tick,
)
from ablation.show.page.inline import Live, Packed, asset, content_policy
from ablation.show.page.pairs import GLYPHS, MOST_VARIANTS
from ablation.show.page.plan_words import (
    could_help,
    plan_in_words,
    primary_in_words,
    rules_changed,
    standing_together,
)
from ablation.show.page.plots import Plane, planes
from ablation.show.page.samples import Quoted, differing, page_samples
from ablation.show.table_formats import show_cell, show_seeds
from ablation.show.text import describe_value, shown
from ablation.store.database import Store
from ablation.store.samples import study_samples

HERE = Path(__file__).parent
Quote = Callable[[], Quoted]
Examples = Mapping[str, Sequence[Mapping[str, Any]]]
STYLES = ("uPlot-1.6.32.min.css", "page.css")
LICENCES = {"uPlot": "uPlot.LICENSE", "tablesort": "tablesort.LICENSE"}  # each copy of the page must carry them
SCRIPTS = (
    "uPlot-1.6.32.iife.min.js",
    "tablesort-5.7.1.min.js",
    "page.js",
    "page_export.js",
    "page_curves.js",
    "page_pairs.js",
)


def write_report(database: Path, out: Path, examples: Examples | None = None) -> Path:
    """Draw the page of `database` into `out`, which is replaced only when the page is complete; return `out`.

    `examples`: the items that changed most, with their texts, by study.
    """
    with Store(database) as store:
        page = read_page(store)
    write_text(out, draw(page, examples))
    return out


def render(
    store: Store,
    judge: Judge | None = None,
    check: Check | None = None,
    examples: Examples | None = None,
    live: Live | None = None,
) -> str:
    """Return the page as HTML. `judge` and `check` replace the verdicts and the audit (for tests of the page alone)."""
    return draw(read_page(store, judge, check), examples, live)


def read_page(store: Store, judge: Judge | None = None, check: Check | None = None) -> Page:
    """Gather the page's content."""
    own_judge, own_check, certify, compare, quote, draw_planes = _analyst(store)
    page = build_page(store, judge or own_judge, check or own_check, certify, compare)
    studies = [replace(study, planes=draw_planes(study.name)) for study in page.studies]
    return replace(page, studies=studies, samples=quote())


def draw(page: Page, examples: Examples | None = None, live: Live | None = None) -> str:
    """Return the page as HTML; `live` makes it one that a server refreshes."""
    style = "\n".join([*(asset(name) for name in STYLES), *([live.style] if live else [])])
    scripts = [*(asset(name) for name in SCRIPTS), *([live.script] if live else [])]
    environment, packed = _environment(), Packed()
    environment.filters["fold"] = packed.fold
    data = {
        f"{study.anchor}{tail}-data": content
        for study in page.studies
        for tail, content in (("", study.curves), ("-figures", study.figures), ("-pairs", study.pairs.data))
    }
    template = environment.get_template("report_page.html.j2")
    licences = [(name, asset(file)) for name, file in LICENCES.items()]
    policy = content_policy(style, scripts, served=live is not None)
    return template.render(
        page=page,
        style=style,
        scripts=scripts,
        csp=policy,
        licences=licences,
        examples=examples or {},
        live=live,
        packed=lambda: packed.pack(data),
    )


def _environment() -> Environment:
    environment = Environment(
        loader=FileSystemLoader(HERE.parent / "templates"),
        autoescape=True,
        finalize=shown,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "signed": signed,
        "p_value": p_value,
        "minute": minute,
        "duration": duration,
        "plural": plural,
        "tick": tick,
        "severity": severity_word,
        "state": state_word,
        "value": describe_value,
        "seeds": show_seeds,
        "evidence": evidence,
        "rank": _rank,
        "mark": _mark,
        "differing": differing,
        "trials": describe,
    }
    environment.globals |= {
        "plan_in_words": plan_in_words,
        "primary_in_words": primary_in_words,
        "pair_glyphs": GLYPHS,
        "show_cell": show_cell,
        "most_variants": MOST_VARIANTS,
        "could_help": could_help,
        "rules_changed": rules_changed,
        "standing_together": standing_together,
        "is_number": is_number,
    }
    return environment


def _rank(verdict: str | None) -> int:
    """Order of verdicts in a sorted column."""
    return WORDS.index(verdict) if verdict in WORDS else len(WORDS)


def _mark(word: str) -> str:
    """Name of the mark of a verdict or a state, as the classes and ids of the page have it."""
    return word.replace(" ", "-") if word in (*WORDS, "ok", "missing", "running") else "invalid"


def _analyst(store: Store) -> tuple[Judge, Check, Certify, Compare, Quote, Callable[[str], list[Plane]]]:
    """Return functions that judge, audit, certify, compare and quote variants; a study is read once for all."""
    certificates = known(store.path.parent)

    @cache
    def judged(study: str) -> JudgedStudy:
        return judge_study(store, study)

    def judge(study: str) -> tuple[pd.DataFrame, pd.DataFrame]:
        return edge_table([judged(study)]), interaction_table([judged(study)])

    def check(study: str, published: PublishedFile) -> Sequence[Finding]:
        ours, value = judged(study).measurements, published_value(store, study, published)
        if value is not None and value != ours.analysis.named:
            ours = read_measurements(store, study, value)
        return audit(published, measured(store, ours, published))

    def certify(study: str) -> StudyCertificate | None:
        found = certificates.of(study) if certificates else None
        return found if found and found.digest == digest_of(judged(study).measurements) else None

    def compare(study: str) -> Sequence[Pair]:
        return judge_all_pairs(judged(study).measurements)

    def quote() -> Quoted:
        studies = [judged(name) for name in store.studies()]
        return page_samples(
            [
                (
                    study.measurements,
                    [(edge.parent, edge.child) for edge in study.edges],
                    study_samples(store, study.name),
                )
                for study in studies
            ]
        )

    return judge, check, certify, compare, quote, lambda study: planes(judged(study))

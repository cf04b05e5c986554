"""The report page: one self-contained HTML file, drawn from the database, that opens offline.

The same database gives the same bytes, because the page shows the time of the data and not of the drawing.
"""

from pathlib import Path, PurePosixPath

from jinja2 import Environment

from ablation.contract import numbers
from ablation.judge.judged import VERDICTS
from ablation.show import methods, text
from ablation.show.page.comparisons import evidence
from ablation.show.page.content import Page
from ablation.show.page.data import GLYPHS, MOST_VARIANTS
from ablation.show.page.inline import Live, Packed, asset, content_policy, environment
from ablation.show.page.published import finding_groups
from ablation.show.page.samples import differing
from ablation.show.table_files import show_cells, show_seeds

STYLES = ("uPlot-1.6.32.min.css", "page.css")
SEVERITIES = {"warn": "warning", "abort": "aborted"}  # words of the page for severities and states
STATES = {"missing": "not run", "blocked": "not started, because an earlier stage did not succeed"}
LICENCES = {"uPlot": "uPlot.LICENSE", "tablesort": "tablesort.LICENSE"}  # each copy of the page must carry them
SCRIPTS = ("uPlot-1.6.32.iife.min.js", "tablesort-5.7.1.min.js", "page.js", "page_curves.js", "page_pairs.js")


def draw(page: Page, live: Live | None = None, root: str | None = None) -> str:
    """Return the page as HTML; `live` holds what a server adds to keep the page up to date.

    root: path from the page's folder to the folder that the paths of stages start from; None for no links.
    """
    style = "\n".join(asset(name) for name in STYLES)
    scripts = [*(asset(name) for name in SCRIPTS), *([live.script] if live else [])]
    made, packed = _templates(), Packed()
    made.filters |= {"fold": packed.fold, "fold_many": packed.fold_many}
    data = {
        f"{study.anchor}{tail}-data": content
        for study in page.studies
        for tail, content in (("", study.curves), ("-figures", study.figures), ("-pairs", study.pairs.data))
    }
    return made.get_template("report_page.html.j2").render(
        page=page,
        style=style,
        scripts=scripts,
        csp=content_policy(style, scripts, served=live is not None),
        licences=[(name, asset(file)) for name, file in LICENCES.items()],
        live=live,
        link=lambda folder: str(PurePosixPath(root) / folder) if root else None,
        packed=lambda: packed.pack(data),
    )


def _templates() -> Environment:
    """Return the page's templates, with the functions that they use."""
    made = environment(Path(__file__).parents[1] / "templates")
    names = ("number", "signed", "interval", "p_value", "minute", "tick", "true_minus")
    made.filters |= {name: getattr(text, name) for name in names} | {
        "duration": numbers.duration,
        "plural": numbers.plural,
        "alone": numbers.alone,
        "severity": lambda severity: SEVERITIES.get(severity, severity),
        "state": lambda state: STATES.get(state, state),
        "value": text.describe_value,
        "shortened": text.shortened,
        "seeds": show_seeds,
        "evidence": evidence,
        "rank": _rank,
        "mark": _mark,
        "differing": differing,
        "by_kind": finding_groups,
    }
    made.globals |= {
        "plan_in_words": methods.plan_in_words,
        "primary_in_words": methods.primary_in_words,
        "could_help": methods.could_help,
        "rules_changed": methods.rules_changed,
        "standing_together": methods.standing_together,
        "is_number": numbers.is_number,
        "show_cells": show_cells,
        "pair_glyphs": GLYPHS,
        "most_variants": MOST_VARIANTS,
    }
    return made


def _rank(verdict: str | None) -> int:
    """Return the place of a verdict in a sorted column; verdicts that are missing or unknown come last."""
    return VERDICTS.index(verdict) if verdict in VERDICTS else len(VERDICTS)


def _mark(verdict: str) -> str:
    """Return the part of an HTML class or id that stands for a verdict or a state."""
    return verdict.replace(" ", "-") if verdict in (*VERDICTS, "ok", "missing", "running") else "invalid"

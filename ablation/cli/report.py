"""The command `report`: the report page, and beside it the findings as text, which `make demo` prints last."""

import argparse
import os
import tempfile
import time
from pathlib import Path

from ablation.cli.common import add_reports, add_results, open_store, paragraph, reports_folder, results_folder
from ablation.contract.atomic import write_text
from ablation.contract.status import TO_COME
from ablation.plan.collected import claim_reports
from ablation.serve.draw import NICENESS, database_now
from ablation.show.answer import sentences
from ablation.show.page.content import Page, read_page
from ablation.show.page.render import draw
from ablation.store.database import Store
from ablation.store.progress import stage_views, summary

PAGE, FINDINGS = "index.html", "findings.txt"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Write the report page: one HTML file that opens offline."
    add_results(parser)
    add_reports(parser)
    parser.add_argument("--output", type=Path, metavar="FILE", help="write the page to this file")
    said = "write the page from unfinished results, but only while jobs remain to run"
    parser.add_argument("--so-far", action="store_true", help=said)


def run(arguments: argparse.Namespace) -> int:
    """Write the page, and print its path."""
    results, reports = results_folder(arguments), reports_folder(arguments)
    if arguments.so_far:
        return _report_so_far(results, arguments.output or reports / PAGE, findings=not arguments.output)
    with open_store(results) as store:
        if not arguments.output:
            claim_reports(results, reports)
        page = read_page(store)
    path = arguments.output or reports / PAGE
    _write(page, draw(page, root=_root(path)), path, findings=not arguments.output)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _report_so_far(results: Path, path: Path, *, findings: bool) -> int:
    """Write the page from a separate database, unless the grid has meanwhile written it or has nothing left to run."""
    os.nice(NICENESS)
    before = _written(path)
    with (
        tempfile.TemporaryDirectory(prefix="ablation-report-") as folder,
        Store(database_now(results, Path(folder))) as store,
    ):
        page = read_page(store)
        html = draw(page, root=_root(path))
    views = stage_views(results, time.time())
    if _written(path) == before and any(view.state.state in TO_COME for view in views):
        _write(page, html, path, findings=findings)
        print(f"{path}: written while the grid runs; {summary(views, time.time())}")
    return 0


def _write(page: Page, html: str, path: Path, *, findings: bool) -> None:
    write_text(path, html)
    if findings:
        said = (f"{study.name}: {sentences(study.answers)}" for study in page.studies)
        write_text(path.with_name(FINDINGS), "\n".join(map(paragraph, said)) + "\n")


def _root(path: Path) -> str:
    """Return the path from the page's folder to the working directory, to which the paths of stages are relative."""
    return os.path.relpath(Path.cwd(), path.absolute().parent)


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0

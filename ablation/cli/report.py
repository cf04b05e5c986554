"""The command `report`: the page for readers."""

import argparse
import os
import tempfile
import time
from pathlib import Path

from ablation.cli.brief import digest_of, keep_answers
from ablation.cli.folders import reports_folder, results_folder
from ablation.contract.atomic import write_text
from ablation.contract.status import TO_COME
from ablation.plan.reports import claim_reports
from ablation.serve.draw import NICENESS, database_now
from ablation.show.page.content import read_page
from ablation.show.page.render import draw
from ablation.store.current import load_or_collect
from ablation.store.database import Store
from ablation.store.progress import look, summary


def run_report(arguments: argparse.Namespace) -> int:
    """Write the page, save its answers for `verdicts --brief`, and print its path."""
    results, reports = results_folder(arguments), reports_folder(arguments)
    if arguments.so_far:
        return _report_so_far(results, arguments.out or reports / "index.html")
    database = load_or_collect(results)
    if not arguments.out:
        claim_reports(results, reports)
    digest = digest_of(results)  # before it is read: what replaces it meanwhile is another database
    with Store(database) as store:
        page = read_page(store)
    path = arguments.out or reports / "index.html"
    write_text(path, draw(page))
    keep_answers(results, digest, {study.name: study.answer for study in page.studies})
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


def _report_so_far(results: Path, path: Path) -> int:
    """Write the page from a separate database, unless the grid wrote it meanwhile, or has nothing left to run."""
    os.nice(NICENESS)
    before = _written(path)
    with (
        tempfile.TemporaryDirectory(prefix="ablation-report-") as folder,
        Store(database_now(results, Path(folder))) as store,
    ):
        page = draw(read_page(store))
    views = look(results, time.time())
    if _written(path) == before and any(view.state.state in TO_COME for view in views):
        write_text(path, page)
        print(f"{path}: as far as the grid is; {summary(views, time.time())}")
    return 0


def _written(path: Path) -> int:
    return path.stat().st_mtime_ns if path.exists() else 0

"""The commands `report`, which writes the report page, and `serve`, which shows it while the grid runs.

Next to the page, `report` writes the findings as text, which `make demo` prints last.
"""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ablation.cli.common import add_shared, open_store, paragraph, reports_folder, results_folder
from ablation.contract.atomic import write_text
from ablation.contract.errors import ConfigError
from ablation.contract.status import TO_COME
from ablation.plan.collected import claim_reports
from ablation.serve.draw import NICENESS, database_now
from ablation.serve.server import Server
from ablation.show.answer import sentences
from ablation.show.page.content import Page, read_page
from ablation.show.page.render import draw
from ablation.store.database import Store
from ablation.store.progress import stage_views, summary

PAGE, FINDINGS = "index.html", "findings.txt"
A_DAY = 86_400  # seconds


def declare_report(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `report`."""
    parser.description = "Write the report page: one HTML file that opens offline."
    add_shared(parser, "--results", "--reports")
    text = "write only the page, to this file (default: index.html in the reports folder)"
    parser.add_argument("--output", type=Path, metavar="FILE", help=text)
    text = "write the page from unfinished results; do nothing if no jobs are left to run"
    parser.add_argument("--so-far", action="store_true", help=text)


def run_report(arguments: argparse.Namespace) -> int:
    """Write the page and, without --output, the findings; print the path and size of the page."""
    if arguments.output and arguments.reports:
        raise ConfigError("report", "--reports", None, "cannot be combined with --output", "leave one out")
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
    """Write the page from unfinished results, unless the grid has ended, or has written the page in the meantime."""
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


def declare_serve(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `serve`."""
    parser.description = (
        "Serve the report page and the running jobs to a browser on this machine. "
        "The page is updated while the grid runs."
    )
    add_shared(parser, "--results")
    text = "port of the server (default: 8642; 0 means any free port)"
    parser.add_argument("--port", type=int, default=8642, help=text)
    text = "shortest time between two updates of the page, in seconds (default: 30)"
    parser.add_argument("--every", type=float, default=30.0, metavar="SECONDS", help=text)


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve the page until Ctrl-C."""
    if not 1 <= arguments.every <= A_DAY:
        remedy = f"pass a number of seconds from 1 to {A_DAY}"
        raise ConfigError("serve", "--every", arguments.every, "is not a valid interval", remedy)
    results = results_folder(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="ablation-serve-") as folder,
        Server(arguments.port, results, Path(folder)) as server,
    ):
        for ending in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(ending) is not signal.SIG_IGN:  # as nohup asks
                signal.signal(ending, signal.default_int_handler)  # as Ctrl-C
        words = [str(results), folder, str(os.getpid()), str(arguments.every)]
        redraws = subprocess.Popen(
            [sys.executable, "-m", "ablation.serve.draw", *words],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C goes to the server, which ends it
        )
        print(f"{server.url}  shows the results in {results}; stop with Ctrl-C", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            redraws.kill()
            redraws.wait()
    return 0

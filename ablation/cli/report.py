"""The commands `report` and `serve`: the page for readers, as a file and over localhost."""

import argparse
import json
import os
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from ablation.cli.common import opened, reports_folder, results_folder
from ablation.contract.atomic import write_text
from ablation.contract.errors import ConfigError
from ablation.contract.status import TO_COME
from ablation.plan.collected import claim_reports
from ablation.serve.draw import NICENESS, database_now
from ablation.serve.server import Server
from ablation.show.page.content import read_page
from ablation.show.page.render import draw
from ablation.store.database import Store
from ablation.store.progress import look, summary

A_DAY = 86_400


def run_report(arguments: argparse.Namespace) -> int:
    """Write the page, and print its path."""
    results, reports = results_folder(arguments), reports_folder(arguments)
    if arguments.so_far:
        return _report_so_far(results, arguments.out or reports / "index.html")
    with opened(results) as store:
        if not arguments.out:
            claim_reports(results, reports)
        page = read_page(store)
    path = arguments.out or reports / "index.html"
    write_text(path, draw(page))
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0


_MARK = b'<meta name="generator" content="ablation-tracker">'
_SPACE = """---
title: {title}
sdk: static
app_file: index.html
pinned: false
---

A report page of {studies}, made by `ablation publish`.
"""


def run_publish(arguments: argparse.Namespace) -> int:
    """Write the page and the front matter of a Space; a README that is there stays. Print how to upload it.

    Raises ConfigError where the folder holds another page.
    """
    folder: Path = arguments.folder
    page_file = folder / "index.html"
    if page_file.exists() and _MARK not in page_file.read_bytes():
        raise ConfigError(page_file, "", None, "is not a page of ours", "name another folder, or move the file away")
    with opened(results_folder(arguments)) as store:
        page = read_page(store)
    write_text(page_file, draw(page))
    if not (folder / "README.md").exists():
        titles = [study.name for study in page.studies]
        title = json.dumps(titles[0] if len(titles) == 1 else f"{len(titles)} studies")  # as YAML takes it
        write_text(folder / "README.md", _SPACE.format(title=title, studies="; ".join(titles)))
    print(f"{folder}: to upload it: hf upload USER/SPACE {shlex.quote(str(folder))} . --repo-type space")
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


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if not 1 <= arguments.every <= A_DAY:
        raise ConfigError(
            "serve", "--every", arguments.every, "is not a valid interval", f"write seconds from 1 to {A_DAY}"
        )
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
        print(f"{server.url}  the results in {results}; stop with Ctrl-C", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            redraws.kill()
            redraws.wait()
    return 0

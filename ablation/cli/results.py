"""Commands that look at results: status, collect, merge, tables, figures, sql, tensorboard, export, prune.

Each imports what it needs itself: DuckDB, pandas and matplotlib take longer to import than `status` takes to run.
"""

import argparse
import csv
import fcntl
import math
import re
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

from ablation.cli.common import obeyed, opened, print_json, reports_folder, results_folder
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.process import alone, is_locked
from ablation.contract.reading import aligned, no_formula, one_line
from ablation.contract.stage_folder import DATABASE
from ablation.plan.collected import claim_reports

FOLLOW_SECONDS = 30.0  # as often as stages write their metrics
WIDEST = 60  # characters of one cell on a terminal


def run_status(arguments: argparse.Namespace) -> int:
    """Print the state of the grid, once or until it is done."""
    from ablation.store.progress import as_rows, describe, watch

    results = results_folder(arguments)
    if arguments.json:
        print_json("status", as_rows(results))
        return 0
    if not arguments.watch:
        print(describe(results), end="")
        return 0
    clear = "\x1b[2J\x1b[H" if sys.stdout.isatty() else ""
    try:
        for text in watch(results):
            obeyed(clear)
            print(text, end="", flush=True)
    except KeyboardInterrupt:
        print()
    return 0


def run_collect(arguments: argparse.Namespace) -> int:
    """Rebuild the database; print what is in it."""
    from ablation.store.collect import collect

    collected = collect(results_folder(arguments))
    rows = ", ".join(f"{count} {table}" for table, count in collected.rows.items())
    states = ", ".join(f"{count} {state}" for state, count in collected.states.items())
    for problem in collected.problems:
        print(f"note: {problem}", file=sys.stderr)
    print(f"{collected.database}: {rows}; stages: {states}")
    return 0


def run_merge(arguments: argparse.Namespace) -> int:
    """Add the stages of another results folder."""
    from ablation.store.merge import merge

    merged = merge(results_folder(arguments), arguments.other, arguments.site or str(arguments.other))
    left = f", {merged.left_out} left out: they did not end well, or are damaged" if merged.left_out else ""
    print(f"{merged.added} stages added, {merged.in_both} in both{left}")
    return 0


def run_tables(arguments: argparse.Namespace) -> int:
    """Write the tables, or those by the value of one key."""
    from ablation.show.table_files import render_groups, render_tables
    from ablation.store.current import load_or_collect

    database = load_or_collect(results_folder(arguments))
    reports = _claimed_reports(arguments)
    if arguments.by:
        if arguments.macros:
            raise ConfigError("tables", "--macros", None, "cannot be combined with --by", "leave one out")
        paths = render_groups(database, reports, arguments.by)
    else:
        paths = render_tables(database, reports, macros=arguments.macros)
    return _print_each(paths)


def run_figures(arguments: argparse.Namespace) -> int:
    """Draw the figures."""
    from ablation.show.figures import render_figures
    from ablation.store.current import load_or_collect

    database = load_or_collect(results_folder(arguments))
    return _print_each(render_figures(database, _claimed_reports(arguments), arguments.format))


def run_sql(arguments: argparse.Namespace) -> int:
    """Print the rows of one query."""
    query = sys.stdin.read() if arguments.query == "-" else arguments.query
    with opened(results_folder(arguments)) as store:
        names, rows = store.rows(query)
    if arguments.csv:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerows([[*map(no_formula, names)], *([_csv(value) for value in row] for row in rows)])
    elif arguments.json:
        print_json("sql", [dict(zip(names, row, strict=True)) for row in rows])
    else:
        print(text_table(names, rows))
    return 0


def run_export(arguments: argparse.Namespace) -> int:
    """Copy one model, or write the tables; print where it came from."""
    from ablation.store.current import load_or_collect
    from ablation.store.export import export, export_tables, find_model

    if (arguments.study, arguments.variant, arguments.source) == ("tables", None, None):
        return _print_each(export_tables(load_or_collect(results_folder(arguments)), arguments.to))
    if (arguments.source is None) == (arguments.variant is None):
        raise TrackerError("export: name a STUDY and a VARIANT, or a folder with --from")
    model = arguments.source or find_model(
        results_folder(arguments),
        arguments.study,
        arguments.variant,
        arguments.seed,
        part=arguments.part,
        stage=arguments.stage,
        step=arguments.step,
    )
    options = [("--hf-model", arguments.hf_model), ("--precision", arguments.precision)]
    status = export(model, arguments.to, *(word for name, value in options if value for word in (name, str(value))))
    if status == 0:
        print(f"{arguments.to}: the model of {model}")
    return status


def run_tensorboard(arguments: argparse.Namespace) -> int:
    """Write event files, and show them in TensorBoard until it is stopped, while they follow the stages."""
    from ablation.store.tensorboard import write_events

    results = results_folder(arguments)
    folder = arguments.to or results / "tensorboard"
    count = write_events(results, folder, arguments.study)
    program = Path(sys.executable).with_name("tensorboard")
    found = str(program) if program.exists() else shutil.which("tensorboard")
    if found is None:
        raise TrackerError(f"tensorboard is not installed: `pip install tensorboard`, or another one on {folder}")
    print(f"{count} stages; stop with Ctrl-C", flush=True)
    shown = folder / arguments.study if arguments.study else folder
    command = [found, "--logdir", str(shown), "--port", str(arguments.port), "--reload_multifile", "true"]
    board = subprocess.Popen(command)
    try:
        while True:
            try:
                return board.wait(FOLLOW_SECONDS)
            except subprocess.TimeoutExpired:
                write_events(results, folder, arguments.study)
    except KeyboardInterrupt:
        return 0
    finally:
        board.terminate()
        board.wait()


def run_prune(arguments: argparse.Namespace) -> int:
    """List the stages that nothing needs, and their size; with --yes, remove them."""
    from ablation.cli.configs import settings_of
    from ablation.plan.build import build_plan
    from ablation.plan.plan_file import read_plan
    from ablation.store.database import Store
    from ablation.store.merge import unfinished_copies

    plan = build_plan(settings_of(arguments))
    results = plan.settings.results
    needed = {stage.key for stage in (*plan.content.stages, *read_plan(plan.file).stages)}
    if (results / DATABASE).exists():
        with Store(results / DATABASE) as store:
            needed |= {key for (key,) in store.rows("SELECT key FROM stages")[1]}
    with (results / ".lock").open("a") as lock:  # Snakemake's, while it runs
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigError(results, "", None, "snakemake runs here", "wait for it, and prune then") from None
        unneeded = [folder for folder in _stage_folders(results) if folder.name not in needed and not is_locked(folder)]
        sizes: dict[str, list[int]] = defaultdict(list)
        for folder in unneeded:
            size = sum(path.lstat().st_size for path in folder.rglob("*"))
            sizes[".".join(folder.relative_to(results / "stages").parent.parts)].append(size)
            if arguments.yes:
                shutil.rmtree(folder)
        with alone(results / ".collect.lock"):
            for left in unfinished_copies(results) if arguments.yes else ():
                shutil.rmtree(left)
    for id, found in sizes.items():
        print(f"{id}: {len(found)} x, {sum(found) / 1e6:,.1f} MB")
    total = sum(map(sum, sizes.values())) / 1e6
    done = "removed" if arguments.yes else "would be removed: pass --yes" if unneeded else "nothing to remove"
    print(f"{len(unneeded)} stages, {total:,.1f} MB, that no plan and no database needs: {done}")
    return 0


def _stage_folders(results: Path) -> list[Path]:
    """Return the folders of all stages; links and other names are left out."""
    found = [*results.glob("stages/assets/*"), *results.glob("stages/*/*/*")]
    return sorted(
        path for path in found if re.fullmatch("[0-9a-f]{16}", path.name) and path.is_dir() and not path.is_symlink()
    )


def text_table(names: Sequence[str], rows: Sequence[Sequence[Any]]) -> str:
    """Aligned columns for a terminal; numbers to the right."""
    if not names:
        return "(no columns)"
    kinds = [{type(row[place]) for row in rows if row[place] is not None} for place in range(len(names))]
    numeric = [bool(kind) and kind <= {int, float, Decimal} for kind in kinds]
    cells = [[one_line(name, WIDEST) for name in names], *([_text(value) for value in row] for row in rows)]
    cells.insert(1, ["-" * max(map(len, column)) for column in zip(*cells, strict=True)])
    lines = aligned(cells, numeric)
    return "\n".join([*lines, f"({len(rows)} {'row' if len(rows) == 1 else 'rows'})"])


def _print_each(paths: Iterable[Path]) -> int:
    for path in paths:
        print(path)
    return 0


def _text(value: Any) -> str:
    if value is None:
        return ""
    return f"{value:.6g}" if isinstance(value, float) else one_line(value, WIDEST)


def _csv(value: Any) -> Any:
    return "" if value is None or (isinstance(value, float) and math.isnan(value)) else no_formula(value)


def _claimed_reports(arguments: argparse.Namespace) -> Path:
    """Return the folder of reports. Raises ConfigError where it shows other results."""
    reports = reports_folder(arguments)
    claim_reports(results_folder(arguments), reports)
    return reports

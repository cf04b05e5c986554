"""Commands that look at results: status, collect, tables, figures, gate, sql, tensorboard, export."""

import argparse
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pandas as pd

from contract.errors import ConfigError, TrackerError
from tracker.config.settings import load_settings
from tracker.plan.plan_file import PLAN_FILE, read_plan
from tracker.store.collect import collect, load_or_collect
from tracker.store.database import Store
from tracker.store.export import export, find_model
from tracker.store.gate import gate
from tracker.store.progress import describe, watch

WIDEST = 60  # characters of one cell on a terminal


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the commands to the parser of `python -m tracker`."""
    folder = argparse.ArgumentParser(add_help=False)
    folder.add_argument("--results", type=Path, help="folder of plan and stages (default: that of configs/config.yaml)")
    folder.add_argument("--reports", type=Path, help="folder of tables and figures (default: likewise)")

    def add(name: str, run: Any, text: str, epilog: str | None = None) -> argparse.ArgumentParser:
        parser = commands.add_parser(name, parents=[folder], help=text, description=text, epilog=epilog)
        parser.set_defaults(run=run)
        return parser

    status = add("status", run_status, "How far each study is, what runs, what failed, and the time left.")
    status.add_argument("--watch", action="store_true", help="again and again until all is done; stop with Ctrl-C")
    status.add_argument("--interval", type=float, default=5.0, metavar="SECONDS", help="of --watch (default: 5)")
    add(
        "collect", run_collect, "Build the DuckDB file from the stage folders; the old one is replaced when it is done."
    )
    add(
        "tables",
        run_tables,
        "Write each study's table as Markdown, CSV, LaTeX and HTML, and runs.csv, one row per run.",
    )
    add("figures", run_figures, "Draw each study's learning curves, primary metric and lineage as SVG and PNG.")
    add("gate", run_gate, "List what failed, diverged, is blocked or corrupt; exit status 1 if anything is.")
    sql = add(
        "sql",
        run_sql,
        "Query the database. It is opened read-only and can reach no other file.",
        "tables: studies, variants, runs, results, curves, items, stages, metrics, health, published; see "
        'docs/architecture.md. Example: python -m tracker sql "select variant, avg(value) from results where '
        "metric = 'edited/mean/ss_distance' group by all order by all\"",
    )
    sql.add_argument("query", metavar="QUERY", help="one SQL statement, or - to read it from stdin")
    shape = sql.add_mutually_exclusive_group()
    shape.add_argument("--csv", action="store_true", help="print CSV at full precision")
    shape.add_argument("--json", action="store_true", help="print a JSON list of rows")
    board = add("tensorboard", run_tensorboard, "Start TensorBoard over all runs, named variant/seed/stage.")
    board.add_argument("study", nargs="?", metavar="STUDY", help="only this study (default: all)")
    copy = add(
        "export",
        run_export,
        "Copy a model of a run as a Hugging Face folder, or a sharded checkpoint of verl, merged.",
        "python -m tracker export gad d-final --to DIR                        the final student\n"
        "python -m tracker export gad d-final --part critic --step 40 --to DIR\n"
        "python -m tracker export --from checkpoints/global_step_200/actor --to DIR",
    )
    copy.add_argument("study", metavar="STUDY", nargs="?")
    copy.add_argument("variant", metavar="VARIANT", nargs="?")
    copy.add_argument("--seed", type=int, help="default: the first of the plan")
    copy.add_argument("--part", metavar="NAME", help="another model than the trained one, as `critic`")
    copy.add_argument("--stage", metavar="STAGE", help="default: the last one that left it")
    copy.add_argument("--step", type=int, help="a kept step (keep_checkpoints); default: the end of the stage")
    copy.add_argument("--from", dest="source", type=Path, metavar="DIR", help="a folder instead of a run")
    copy.add_argument("--hf-model", type=Path, metavar="DIR", help="config and tokenizer, if not beside the weights")
    copy.add_argument("--precision", choices=("float32", "bfloat16", "float16"), help="default: as the weights are")
    copy.add_argument("--to", type=Path, required=True, metavar="DIR", help="a folder that is new or empty")
    board.add_argument("--port", type=int, default=6006, help="default: 6006; 0 takes a free one")


def run_status(arguments: argparse.Namespace) -> int:
    """Print the state of the grid, once or until it is done."""
    results = _results(arguments)
    if not arguments.watch:
        print(describe(results), end="")
        return 0
    clear = "\x1b[2J\x1b[H" if sys.stdout.isatty() else ""
    try:
        for text in watch(results, arguments.interval):
            print(f"{clear}{text}", end="", flush=True)
    except KeyboardInterrupt:
        print()
    return 0


def run_collect(arguments: argparse.Namespace) -> int:
    """Rebuild the database; say what is in it."""
    collected = collect(_results(arguments))
    rows = ", ".join(f"{count} {table}" for table, count in collected.rows.items())
    states = ", ".join(f"{count} {state}" for state, count in collected.states.items())
    print(f"{collected.database}: {rows}; stages: {states}")
    return 0


def run_tables(arguments: argparse.Namespace) -> int:
    """Write the tables."""
    from tracker.show.tables import render_tables

    _list(render_tables(load_or_collect(_results(arguments)), _reports(arguments)))
    return 0


def run_figures(arguments: argparse.Namespace) -> int:
    """Draw the figures."""
    from tracker.show.figures.standard import render_figures

    _list(render_figures(load_or_collect(_results(arguments)), _reports(arguments)))
    return 0


def run_gate(arguments: argparse.Namespace) -> int:
    """Print failures; 1 if there are any."""
    report, passed = gate(load_or_collect(_results(arguments)))
    print(report, end="", file=sys.stdout if passed else sys.stderr)
    return 0 if passed else 1


def run_sql(arguments: argparse.Namespace) -> int:
    """Print the rows of one query."""
    query = sys.stdin.read() if arguments.query == "-" else arguments.query
    with Store(load_or_collect(_results(arguments))) as store:
        frame = store.sql(query)
    if arguments.csv:
        print(frame.to_csv(index=False), end="")
    elif arguments.json:
        print(frame.to_json(orient="records", indent=1, double_precision=15, date_format="iso"))
    else:
        print(text_table(frame))
    return 0


def run_export(arguments: argparse.Namespace) -> int:
    """Copy one model; say where it came from."""
    if (arguments.source is None) == (arguments.variant is None):
        raise TrackerError("export: name a STUDY and a VARIANT, or a folder with --from")
    model = arguments.source or find_model(
        _results(arguments),
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
    """Show the runs in TensorBoard, under readable names, until it is stopped."""
    program = Path(sys.executable).with_name("tensorboard")
    found = str(program) if program.exists() else shutil.which("tensorboard")
    if found is None:
        raise TrackerError("tensorboard is not installed; run `pip install tensorboard`")
    with tempfile.TemporaryDirectory(prefix="tracker-tensorboard-") as folder:
        count = link_runs(_results(arguments), Path(folder), arguments.study)
        print(f"{count} runs; stop with Ctrl-C", flush=True)
        command = [found, "--logdir", folder, "--port", str(arguments.port), "--reload_multifile", "true"]
        try:
            return subprocess.run(command, check=False).returncode
        except KeyboardInterrupt:
            return 0


def link_runs(results: Path, folder: Path, study: str | None = None) -> int:
    """Fill `folder` with links `<study>/<variant>/seed <n>/<stage>` to the event folders; return how many there are.

    A stage that several runs share is linked once, under the first of them.
    """
    plan = read_plan(results / PLAN_FILE)
    places = plan.folders(results)
    names = [entry.name for entry in plan.studies]
    if study is not None and study not in names:
        raise ConfigError(results / PLAN_FILE, "studies", study, "it is not in the plan", f"one of {', '.join(names)}")
    linked: set[str] = set()
    for entry in plan.studies:
        if study not in (None, entry.name):
            continue
        for run in entry.runs:
            for stage, key in run.stages.items():
                events = places[key] / "tensorboard"
                if key in linked or not events.is_dir():
                    continue
                link = folder / entry.name / run.variant / f"seed {run.seed}" / stage
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(events.resolve(), target_is_directory=True)
                linked.add(key)
    if not linked:
        raise ConfigError(results, "tensorboard", study, "no run has written events yet", "run a stage that trains")
    return len(linked)


def text_table(frame: pd.DataFrame) -> str:
    """Aligned columns for a terminal; numbers to the right."""
    if frame.columns.empty:
        return "(no columns)"
    numeric = [pd.api.types.is_numeric_dtype(dtype) for dtype in frame.dtypes]
    rows = [[str(name) for name in frame.columns]]
    rows += [[_text(value) for value in row] for row in frame.itertuples(index=False, name=None)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [
        "  ".join(f"{c:>{w}}" if n else f"{c:<{w}}" for c, w, n in zip(row, widths, numeric, strict=True)).rstrip()
        for row in rows
    ]
    lines.insert(1, "  ".join("-" * width for width in widths))
    return "\n".join([*lines, f"({len(frame)} {'row' if len(frame) == 1 else 'rows'})"])


def _text(value: Any) -> str:
    if value is None or value is pd.NA or value is pd.NaT:
        return ""
    text = f"{value:.6g}" if isinstance(value, float) else " ".join(str(value).split())
    return text if len(text) <= WIDEST else f"{text[: WIDEST - 1]}…"


def _results(arguments: argparse.Namespace) -> Path:
    return arguments.results or load_settings().results


def _reports(arguments: argparse.Namespace) -> Path:
    return arguments.reports or load_settings().reports


def _list(paths: list[Path]) -> None:
    for path in paths:
        print(path)

"""The command `import`: import runs of other programs or, with --dry-run, show what would be imported."""

import argparse
import sys
import time
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from ablation.cli.common import add_shared, print_json, results_folder
from ablation.cli.configs import tree
from ablation.config.formats import formats_of
from ablation.config.import_file import ImportFile, checked_name, read_import_file, with_options
from ablation.config.settings import load_settings
from ablation.config.study_schema import read_direction
from ablation.contract.display import listed
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted
from ablation.plan.plan_file import PlannedVariant
from ablation.readers import table
from ablation.readers.run import ImportedRun, Problem, Reader, load_reader
from ablation.readers.run_table import read_table
from ablation.store.imports.final_step import FinalStep
from ablation.store.imports.grouping import safe_name
from ablation.store.imports.importing import Outcome, Request, import_runs
from ablation.store.imports.stored import FOLDER, MANIFEST, PlacedRun, read_study

_SHOWN = 6  # runs of a variant
_TITLES = {"table": "a table (CSV, TSV, JSON lines, Parquet) with a row for each run or logged value"}
_SILENT = 5.0  # seconds


def declare_import(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `import`."""
    formats = formats_of("import")
    parser.description = "Import runs that other programs logged."
    parser.epilog = "\n".join(
        [
            "formats:",
            *(f"  {name:<17}{_TITLES.get(name, each.title)}" for name, each in formats.items()),
            "",
            "example:",
            "  ablation import trainer_state runs/ --study lr --metric eval_loss --direction min --margin 0.01",
        ]
    )
    add = parser.add_argument
    add_shared(parser, "--results", "--json")
    add("format", metavar="FORMAT", help="format of the runs (listed below)")
    add("paths", metavar="PATH", nargs="+", type=Path, help="files or folders with runs")
    add("--study", metavar="S", help="name of the study to import into, or its study.yaml")
    text = (
        "how to read the runs: seed=, variant= (a key of the configuration, or name:REGEX), parents.VARIANT=, ignore=, "
        "leave_out=, allow=prompt, metrics.NEW=, columns.ROLE= (docs/how-to/import.md)"
    )
    add("--map", nargs="+", action="extend", default=[], metavar="KEY=VALUE", help=text)
    add("--metric", nargs="+", metavar="NAME", help="final metrics to judge, averaged if several")
    add("--items", nargs="+", metavar="P/S/N", help="items to judge, as PROTOCOL/SUBSET/NAME")
    add("--direction", metavar="D", help="max, min or target:0.5 (default: from the name of a well-known metric)")
    add("--margin", type=float, metavar="M", help="the smallest difference that matters")
    text = (
        "the step of final metrics: last, best, common (the last step that all runs logged), or a number "
        "(default: the step of the kept model, or the last step if that step is not known)"
    )
    add("--at", "--step", metavar="STEP", help=text)
    add("--dry-run", action="store_true", help="show what would be imported without writing anything")


def run_import(arguments: argparse.Namespace) -> int:
    """Import runs and update the database or, with --dry-run, show what would be imported."""
    from ablation.store.collect import collect

    if arguments.study is None:
        raise ConfigError("import", "--study", None, "is missing", "name the study, such as --study lr")
    if arguments.format != "table" and (given := [text for text in arguments.map if text.startswith("columns.")]):
        raise ConfigError("import", "--map", given[0], "works only with the format `table`", "leave it out")
    reader = load_reader(arguments.format)
    results = results_folder(arguments)
    name, written, where = _study(arguments, results)
    written = with_options(written, _rules(arguments), _analysis(arguments))
    if arguments.format == "table":
        reader, written = partial(table.read, columns=written.runs.columns), _with_tables(arguments.paths, written)
    request = Request(
        format=arguments.format,
        reader=_with_progress(reader),
        paths=arguments.paths,
        study=name,
        where=where,
        written=written,
        planned=frozenset(load_settings().studies) if Path("configs/config.yaml").exists() else frozenset(),
        write=not arguments.dry_run,
    )
    outcome = import_runs(results, request)
    if arguments.json:
        collected = collect(results) if outcome.written else None
        more = {"new": outcome.new, "changed": outcome.changed, "written": outcome.written}
        notes = [*outcome.problems, *(collected.problems if collected else ()), *filter(None, [outcome.missing])]
        print_json(
            "import", [run.model_dump() for run in outcome.runs], study=name, **more, notes=list(map(str, notes))
        )
        return 0
    print(describe(name, outcome))
    if not outcome.written:
        if outcome.missing is not None:
            print(f"note: {outcome.missing}")
        print("nothing was written; correct mistakes with --map or a study.yaml, then leave out --dry-run to import")
        return 0
    collected = collect(results)
    problems = [f"note: {problem}" for problem in collected.problems]
    print("\n".join([*problems, f"{collected.database}: {outcome.new} new, {outcome.changed} changed"]))
    print(f"next: ablation verdicts {name}")
    return 0


def _with_progress(reader: Reader) -> Reader:
    """Return a reader that prints every five seconds how many runs it has read."""

    def read(path: Path, problem: Problem) -> Iterator[ImportedRun]:
        printed = time.monotonic()
        for count, run in enumerate(reader(path, problem), 1):
            if time.monotonic() - printed > _SILENT:
                printed = time.monotonic()
                print(f"{path}: read {counted(count, 'run')} so far; the last one is {run.name}", file=sys.stderr)
            yield run

    return read


def _with_tables(paths: Sequence[Path], written: ImportFile) -> ImportFile:
    """Return the definition of the study, completed by the variants, parents and seeds in the tables."""
    rules, columns = written.runs, written.runs.columns
    judged = FinalStep.of(written).metrics
    tables = [read_table(path, columns, judged) for path in paths]
    parents = {safe_name(name): parent for table in tables for name, parent in table.parents.items()}
    parent_of = {name: safe_name(parent) for name, parent in parents.items() if parent and safe_name(parent) in parents}
    update: dict[str, Any] = {"parents": {name: parent_of.get(name) for name in parents} | rules.parents}
    if rules.variant is None:
        update |= {"variant": "variant", "ignore": [*rules.ignore, "variant"]}
    if rules.seed is None and not any("seed" in table.roles for table in tables):
        update["seed"] = "number"
    return written.model_copy(update={"runs": rules.model_copy(update=update)})


def _study(arguments: argparse.Namespace, results: Path) -> tuple[str, ImportFile, str]:
    """Return a study's name, its definition (study.yaml, an earlier import, or else empty), and how errors name it."""
    study: str = arguments.study
    if study.endswith((".yaml", ".yml")):
        name, written = read_import_file(Path(study))
        return name, written, study
    name = checked_name(study, "--study")
    manifest = results / FOLDER / name / MANIFEST
    written = read_study(manifest.parent).written if manifest.exists() else ImportFile()
    return name, written, f"study {name}"


def _rules(arguments: argparse.Namespace) -> list[str]:
    """Return the rules given by `--map` and `--at`, as KEY=VALUE texts. Raises ConfigError if `--at` is invalid."""
    at = arguments.at and arguments.at.removeprefix("checkpoint-")
    if at and at not in ("last", "best", "common") and not at.isdecimal():
        raise ConfigError("import", "--at", at, "is not a step", "write last, best, common or a number such as 1000")
    return [*arguments.map, *([f"at={at}"] if at else [])]


def _analysis(arguments: argparse.Namespace) -> dict[str, Any]:
    plan: dict[str, Any] = {}
    if arguments.metric and arguments.items:
        raise ConfigError("import", "--items", arguments.items, "cannot be combined with --metric", "leave one out")
    if arguments.metric:
        plan["metric"] = arguments.metric
    if arguments.items:
        parts = [item.split("/") for item in arguments.items]
        heads = {(each[0], each[-1]) for each in parts}
        if len(heads) != 1 or any(len(each) < 3 for each in parts):
            problem = "is not PROTOCOL/SUBSET/NAME, or differs in more than SUBSET"
            remedy = "write PROTOCOL/SUBSET/NAME, with the same PROTOCOL and NAME each time"
            raise ConfigError("import", "--items", arguments.items, problem, remedy)
        [(protocol, value)] = heads
        plan |= {"protocol": protocol, "value": value, "subsets": ["/".join(each[1:-1]) for each in parts]}
    if arguments.direction:
        way = read_direction("import", arguments.direction)
        plan["direction"] = way if isinstance(way, str) else way.model_dump()
    if arguments.margin is not None:
        plan["margin"] = arguments.margin
    return plan


def describe(study: str, outcome: Outcome) -> str:
    """Return the variant tree, with the changes and runs of each variant, and notes on problems, as text."""
    count = f"{counted(len(outcome.runs), 'run')} of {counted(len(outcome.variants), 'variant')}"

    def runs_of(variant: PlannedVariant) -> list[str]:
        return [_seeds([run for run in outcome.runs if run.variant == variant.name])]

    lines = [f"{study}: {count} ({outcome.new} new, {outcome.changed} changed)"]
    lines += [f"  {line}" for line in tree(outcome.variants, runs_of)]
    notes = list(outcome.problems)
    if unknown := [variant.name for variant in outcome.variants if variant.parent and not variant.changes]:
        notes.append(f"no changes from the parent are recorded for these variants: {listed(unknown, _SHOWN)}")
    return "\n".join([*lines, *(f"note: {note}" for note in notes)])


def _seeds(runs: Sequence[PlacedRun]) -> str:
    shown = []
    for run in sorted(runs, key=lambda run: (run.seed, run.format)):
        state = "" if run.state == "finished" else f", {run.state}"
        step = "" if run.last_step is None else f" at step {run.last_step}"
        step += "" if run.final in (None, run.last_step) else f", judged at {run.final}"
        shown.append(f"seed {run.seed}: {run.name} ({run.format}{step}{state})")
    if len(shown) > _SHOWN:
        shown[_SHOWN - 1 :] = [f"{len(shown) - _SHOWN + 1} more"]
    return "; ".join(shown)

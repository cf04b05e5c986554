"""The command `import`: runs of other programs, shown first and, with --yes, imported."""

import argparse
from pathlib import Path
from typing import Any

from ablation.cli.common import direction
from ablation.cli.folders import results_folder
from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError
from ablation.readers.formats import load_reader
from ablation.store.imports.describe import describe
from ablation.store.imports.importing import Request, import_runs
from ablation.store.imports.stored import FOLDER, MANIFEST, read_study
from ablation.store.imports.study_file import ImportFile, checked_name, read_import_file, with_options


def run_import(arguments: argparse.Namespace) -> int:
    """Show what would be imported, or import it and collect."""
    reader = load_reader(arguments.format)
    results = results_folder(arguments)
    name, written, where = _study(arguments, results)
    request = Request(
        format=arguments.format,
        reader=reader,
        paths=arguments.paths,
        study=name,
        where=where,
        written=with_options(written, arguments.map, _analysis(arguments)),
        planned=_planned(),
        write=arguments.yes,
    )
    outcome = import_runs(results, request)
    print(describe(name, outcome))
    if not outcome.written:
        if outcome.missing is not None:
            print(f"note: {outcome.missing}")
        print("nothing has been written: say --yes to import this, or correct it with --map or a study.yaml")
        return 0
    from ablation.store.collect import collect

    collected = collect(results)
    problems = [f"note: {problem}" for problem in collected.problems]
    print("\n".join([*problems, f"{collected.database}: {outcome.new} new, {outcome.changed} changed"]))
    return 0


def _study(arguments: argparse.Namespace, results: Path) -> tuple[str, ImportFile, str]:
    """Return name, definition so far, and where it stands: study.yaml, or what an earlier import left."""
    study: str = arguments.study
    if study.endswith((".yaml", ".yml")):
        name, written = read_import_file(Path(study))
        return name, written, study
    name = checked_name(study, "--study")
    manifest = results / FOLDER / name / MANIFEST
    written = read_study(manifest.parent).written if manifest.exists() else ImportFile()
    return name, written, f"study {name}"


def _analysis(arguments: argparse.Namespace) -> dict[str, Any]:
    """Return the parts of the analysis plan that the command line names."""
    plan: dict[str, Any] = {}
    if arguments.metric and arguments.items:
        raise ConfigError("import", "--items", arguments.items, "is given beside --metric", "name one of the two")
    if arguments.metric:
        plan["metric"] = arguments.metric
    if arguments.items:
        parts = [item.split("/") for item in arguments.items]
        heads = {(each[0], each[-1]) for each in parts}
        if len(heads) != 1 or any(len(each) < 3 for each in parts):
            remedy = "write PROTOCOL/SUBSET/NAME; several differ in their subset alone"
            raise ConfigError("import", "--items", arguments.items, "is not one value of items", remedy)
        [(protocol, value)] = heads
        plan |= {"protocol": protocol, "value": value, "subsets": ["/".join(each[1:-1]) for each in parts]}
    if arguments.direction:
        way = direction("import", arguments.direction)
        plan["direction"] = way if isinstance(way, str) else way.model_dump()
    if arguments.margin is not None:
        plan["margin"] = arguments.margin
    return plan


def _planned() -> frozenset[str]:
    """Return the studies of the project that the command stands in."""
    return frozenset(load_settings().studies) if Path("configs/config.yaml").exists() else frozenset()

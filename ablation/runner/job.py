"""Read the input of a stage's process, and check that the code has not changed since the stage was planned."""

import argparse
import errno
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from itertools import islice
from pathlib import Path
from typing import Any

from ablation.contract.code import Code, changed
from ablation.contract.display import listed
from ablation.contract.errors import ConfigError
from ablation.contract.parts import PACKAGES, load
from ablation.contract.reading import read_json

_PROJECT = Path(__file__).resolve().parents[2]


@dataclass
class Job:
    """A stage to run, as its command line and the plan's `config.json` describe it."""

    plan: dict[str, Any]
    code: Code
    inputs: dict[str, Path]
    out: Path
    gpus: int
    threads: int
    label: str
    arguments: Sequence[str] = ()
    lock: int = -1

    @property
    def is_command(self) -> bool:
        """Return whether the stage is a command instead of a trainer's module."""
        return "command" in self.plan


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the parsed command line of `ablation.runner.run`. Raises SystemExit if the command line is not valid."""
    parser = argparse.ArgumentParser(prog="python -m ablation.runner.run", description="Run one stage of one variant.")
    parser.add_argument("--config", type=Path, required=True, help="config.json that the plan wrote for the stage")
    folder = "name and folder of an input stage"
    parser.add_argument("--input", action="append", default=[], type=_input, metavar="NAME=DIR", help=folder)
    parser.add_argument("--out", type=Path, required=True, help="the stage's folder")
    parser.add_argument("--gpus", type=int, default=0, help="devices to lease (none if the machine has none)")
    parser.add_argument("--threads", type=int, default=1, help="number of CPU threads")
    parser.add_argument("--label", default="", help="variant and seed to show on the terminal")
    parser.add_argument("--wait", type=float, default=0, help="minutes to wait while another process runs the stage")
    parser.add_argument("--since", type=Path, help="use an existing result if it is newer than this file")
    parser.add_argument("--parent", type=int, help="process id of the caller; this process ends when the caller ends")
    return parser.parse_args(argv)


def _input(text: str) -> tuple[str, Path]:
    name, equals, folder = text.partition("=")
    if not equals:
        raise argparse.ArgumentTypeError("must be NAME=DIR")
    return name, Path(folder)


def read_job(argv: Sequence[str]) -> Job:
    """Return the job that a command line describes.

    Raises OSError, ValueError, KeyError or TypeError for a bad config.json.
    """
    arguments = parse(argv)
    plan = read_json(arguments.config)
    arguments.out.mkdir(parents=True, exist_ok=True)
    return Job(
        plan=plan,
        code=Code(**plan["code"]),
        inputs=dict(arguments.input),
        out=arguments.out,
        gpus=arguments.gpus,
        threads=arguments.threads,
        label=arguments.label or plan["key"],
        arguments=argv,
    )


def changed_code(code: Code) -> str:
    """Return an error message that names the code that has changed since the stage was planned; empty if none has."""
    try:
        edited = changed(code, _PROJECT if code.entry else Path())  # a command's files are in the working folder
    except ConfigError as error:  # a file was deleted, or is being edited
        edited = [str(error.value or error.file)]
    names = listed(edited)
    files = "" if code.entry else "; if the program itself writes one of these files, remove it from `code`"
    problem = f"its code has changed since the stage was planned ({names}), so its key is no longer valid"
    return names and f"{problem}; start snakemake again{files}"


def import_code(job: Job) -> dict[str, Any]:
    """Import the trainers' modules that the stage's key covers; return the variant's parts, {slot: function or class}.

    All modules are imported now, because a stage might otherwise import an edited module hours later. Raises OSError
    (ECANCELED) if a module was edited before it was imported.
    """
    for file in job.code.files:
        if file.startswith(f"{PACKAGES[0]}/"):
            import_module(_module(file))
    parts = load(job.code.parts)
    if problem := changed_code(job.code):
        raise OSError(errno.ECANCELED, problem)
    return parts


def _module(file: str) -> str:
    return file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")


def known_modules(job: Job) -> int:
    """Import the config models and the study's `parts` function; return how many modules are then loaded."""
    for file in job.code.exclude:
        import_module(_module(file))
    return len(sys.modules)


def check_modules(job: Job, loaded_before: int) -> None:
    """Raise RuntimeError if the stage has imported trainers' code outside its key since `known_modules` ran."""
    counted = {_module(file) for file in (*job.code.files, *job.code.exclude)}
    # Only the new modules, which are the last, are examined: a fork that reads all names would copy their pages.
    new = islice(reversed(sys.modules), max(0, len(sys.modules) - loaded_before))
    if others := sorted(name for name in new if name.startswith(f"{PACKAGES[0]}.") and name not in counted):
        raise RuntimeError(
            f"the stage loaded {', '.join(others)}, which its key does not cover, so an edit there would not rerun the "
            "stage; import the module in the trainer with an import statement, or name it in the study's `parts`"
        )

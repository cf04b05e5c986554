"""The input of a stage's process: its command line, and the plan's `config.json`."""

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.contract.code_files import FileCode
from ablation.contract.fingerprint import Code
from ablation.contract.reading import read_json


@dataclass
class Job:
    """The command line and the plan's `config.json`."""

    id: str
    plan: dict[str, Any]
    code: Code | FileCode
    inputs: dict[str, Path]
    out: Path
    gpus: int
    threads: int
    label: str
    arguments: Sequence[str] = ()
    nodes: int = 1
    lock: int = -1
    first: Sequence[Path] = ()  # of the first run: stages whose files must have been readable

    @property
    def is_command(self) -> bool:
        """Tell whether the stage is a command, and no module of ours."""
        return isinstance(self.code, FileCode)

    @property
    def gpus_here(self) -> int:
        """Return how many of its devices are on this machine: the same number as on each of the others."""
        return self.gpus // self.nodes


def parse(argv: Sequence[str]) -> argparse.Namespace:
    """Return the command line of `ablation.runner.run`. Raises SystemExit for another."""
    parser = argparse.ArgumentParser(prog="python -m ablation.runner.run", description="Run one stage of one variant.")
    parser.add_argument("--config", type=Path, required=True, help="the plan's config.json")
    parser.add_argument("--input", action="append", default=[], metavar="NAME=DIR", help="folder of an earlier stage")
    parser.add_argument("--first", action="append", default=[], type=Path, help="a stage whose files must be readable")
    parser.add_argument("--out", type=Path, required=True, help="the stage's own folder")
    parser.add_argument("--gpus", type=int, default=0, help="devices to lease; none on a machine without any")
    parser.add_argument("--nodes", type=int, default=1, help="machines of a Slurm job that have the devices")
    parser.add_argument("--threads", type=int, default=1, help="CPU threads, exactly")
    parser.add_argument("--label", default="", help="variant and seed, for the terminal")
    parser.add_argument("--wait", type=float, default=0, help="minutes to wait for another process that runs the stage")
    parser.add_argument("--since", type=Path, help="take over a result that is younger than this file")
    parser.add_argument("--parent", type=int, help="process id of the caller, with which this process ends")
    return parser.parse_args(argv)


def read_job(argv: Sequence[str]) -> Job:
    """Return what the command line and the plan say. Raises OSError, ValueError, KeyError or TypeError."""
    arguments = parse(argv)
    plan = read_json(arguments.config)
    inputs = {}
    for item in arguments.input:
        name, separator, folder = item.partition("=")
        if not separator:
            raise SystemExit(f"--input {item}: must be NAME=DIR")
        inputs[name] = Path(folder)
    arguments.out.mkdir(parents=True, exist_ok=True)
    label = arguments.label or plan["key"]
    return Job(
        id=plan["stage"],
        plan=plan,
        code=FileCode(**plan["code"]) if "command" in plan else Code(**plan["code"]),
        inputs=inputs,
        first=arguments.first,
        out=arguments.out,
        gpus=arguments.gpus,
        threads=arguments.threads,
        label=label,
        arguments=argv,
        nodes=arguments.nodes,
    )

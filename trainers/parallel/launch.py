"""Starts the ranks of a stage and waits for them.

    stage's process (lock, leases, status)  ->  launcher (torchrun's)  ->  one worker per device

Each ends with the one before it, however that ends. The first rank that fails says why in `ranks.json`, and the
launcher ends the others. Where one runs out of memory, all start again, from the checkpoint, with half the micro-batch:
a rank that fails alone cannot be waited for.
"""

import errno
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from logging import Logger
from pathlib import Path
from typing import TextIO

from contract.atomic import write_json
from contract.reading import read_json

OUTCOME = "ranks.json"
LESS_MEMORY = "out of memory"
_MOST_HALVINGS = 30


def run_ranks(arguments: Sequence[str], out: Path, *, count: int, log: Logger, terminal: TextIO) -> tuple[str, str]:
    """Run a stage on `count` devices; return its state and the reason.

    arguments: of `trainers.run`. terminal: for the first rank's lines of progress.

    Raises OSError (ECANCELED) where the ranks were ended from outside, or by a fault of the machine: another attempt
    goes on from the checkpoint.
    """
    for halvings in range(_MOST_HALVINGS):
        (out / OUTCOME).unlink(missing_ok=True)
        log.info("%d processes, one for each device", count)
        command = [sys.executable, "-m", "trainers.parallel.launcher", str(os.getpid()), str(count), *arguments]
        # Its standard input is how the ranks find the terminal: the launcher hands down no other descriptor.
        with tempfile.TemporaryDirectory() as scratch:
            environment = {"ABLATION_HALVINGS": str(halvings), "ABLATION_SCRATCH": scratch}
            process = subprocess.run(command, stdin=terminal.fileno(), env={**os.environ, **environment}, check=False)
        try:
            found = read_json(out / OUTCOME)
        except (OSError, ValueError) as error:
            reason = f"the ranks ended with exit status {process.returncode} and left no {OUTCOME}"
            raise OSError(errno.ECANCELED, reason) from error
        (out / OUTCOME).unlink()
        if found["state"] == LESS_MEMORY:
            log.warning("%s: all ranks start again with half of the micro-batches", found["reason"])
            continue
        if found["machine"]:
            raise OSError(errno.ECANCELED, found["reason"])
        return found["state"], found["reason"]
    return "failed", f"out of memory after {_MOST_HALVINGS} halvings of the micro-batches"


def write_outcome(out: Path, state: str, reason: str, *, machine: bool = False) -> None:
    """Say how the ranks ended, unless another rank has: the errors of the others follow from its own."""
    own = out / f".{OUTCOME}.tmp.{os.getpid()}"  # `remove_leftovers` knows it
    write_json(own, {"state": state, "reason": reason, "machine": machine})
    try:
        os.link(own, out / OUTCOME)
    except FileExistsError:
        pass
    finally:
        own.unlink()

"""Start the ranks of a stage and wait for them. Run as a module, this file is the launcher (torchrun's).

    stage's process (lock, leases, status)  ->  launcher  ->  one worker per device

Each process ends when the process before it ends in any way. The first rank that fails writes the reason to
`ranks.json`, and the launcher ends the others. If a rank runs out of memory, all start again from the checkpoint with
half the micro-batch, because one rank alone cannot repeat a step.
"""

import errno
import os
import socket
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from logging import Logger
from pathlib import Path
from signal import SIGKILL
from typing import TextIO

from ablation.contract.atomic import write_json
from ablation.contract.process import end_with_parent
from ablation.contract.reading import read_json
from ablation.runner.job import Job, parse

OUTCOME = "ranks.json"
LESS_MEMORY = "out of memory"
STACK = "stack of rank"  # prefix of the file with the stack of a rank that was ended
_MOST_HALVINGS = 30


def run_ranks(job: Job, *, log: Logger, terminal: TextIO, count: int) -> tuple[str, str]:
    """Run a stage on `count` devices; return the stage's state and the reason for that state.

    terminal: receives the first rank's progress. Raises OSError (ECANCELED) if the ranks were ended from outside or by
    a fault of the machine; another attempt then resumes from the checkpoint.
    """
    for halvings in range(_MOST_HALVINGS):
        (job.out / OUTCOME).unlink(missing_ok=True)
        log.info("starting %d processes, one for each device", count)
        environment = {**os.environ, "ABLATION_HALVINGS": str(halvings)}
        status = _launcher(job, environment, terminal, count)
        try:
            outcome = read_json(job.out / OUTCOME)
        except (OSError, ValueError) as error:
            reason = f"the ranks ended with exit status {status} without writing {OUTCOME}; read log.txt for the cause"
            raise OSError(errno.ECANCELED, reason) from error
        (job.out / OUTCOME).unlink()
        if outcome["state"] == LESS_MEMORY:
            log.warning("%s; all ranks start again with micro-batches of half the size", outcome["reason"])
            continue
        if outcome["machine"]:
            raise OSError(errno.ECANCELED, outcome["reason"])
        return outcome["state"], outcome["reason"]
    problem = f"out of memory after {_MOST_HALVINGS} halvings of the micro-batches"
    return "failed", f"{problem}; use a smaller model, shorter sequences or more devices"


def _launcher(job: Job, environment: dict[str, str], terminal: TextIO, count: int) -> int:
    command = [sys.executable, "-m", "trainers.parallel.launch", str(os.getpid()), str(count), *job.arguments]
    # The ranks inherit the terminal as standard input, the only descriptor that the launcher passes on.
    with tempfile.TemporaryDirectory() as scratch:
        environment["ABLATION_SCRATCH"] = scratch
        return subprocess.run(command, stdin=terminal.fileno(), env=environment, check=False).returncode


def write_outcome(out: Path, state: str, reason: str, *, machine: bool = False, over: bool = False) -> None:
    """Write how the ranks ended to `ranks.json`, unless another rank has already done so.

    over: replace what another rank has written; after a kill, the other ranks report only that one rank is gone.
    """
    temporary = out / f".{OUTCOME}.tmp.{socket.gethostname()}.{os.getpid()}"  # `remove_leftovers` knows it
    write_json(temporary, {"state": state, "reason": reason, "machine": machine})
    if over:
        temporary.replace(out / OUTCOME)
        return
    try:
        os.link(temporary, out / OUTCOME)
    except FileExistsError:
        pass
    finally:
        temporary.unlink()


def launch(count: int, arguments: Sequence[str]) -> int:
    """Run `count` workers with the stage's arguments, and end all of them if one fails; return the exit status."""
    from torch.distributed.elastic.multiprocessing.api import DefaultLogsSpecs
    from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
    from torch.distributed.launcher.api import LaunchConfig, elastic_launch

    config = LaunchConfig(
        min_nodes=1,
        max_nodes=1,
        nproc_per_node=count,
        logs_specs=DefaultLogsSpecs(log_dir=os.environ["ABLATION_SCRATCH"]),
        max_restarts=0,
        shutdown_timeout=5,  # seconds from SIGTERM to SIGKILL
        run_id=str(os.getpid()),
        # Any free port, at a numeric address because a machine's own name may not resolve.
        rdzv_backend="c10d",
        rdzv_endpoint="localhost:0",
        local_addr="127.0.0.1",
    )
    try:
        elastic_launch(config, sys.executable)("-m", "trainers.parallel.worker", *arguments)
    except ChildFailedError as error:
        killed = [rank for rank, failure in error.failures.items() if failure.exitcode == -SIGKILL]
        rank = killed[0] if killed else error.get_first_failure()[0]
        reason = f"rank {rank} ended with exit status {error.failures[rank].exitcode}; read log.txt for the cause"
        write_outcome(parse(arguments).out, "failed", reason, machine=True, over=bool(killed))
        return 1
    finally:
        for path in sorted(Path(os.environ["ABLATION_SCRATCH"]).glob(f"{STACK}*")):
            if stack := path.read_text():
                print(f"{path.name}:\n{stack}", file=sys.stderr, flush=True)
    return 0


if __name__ == "__main__":
    end_with_parent(int(sys.argv[1]))
    sys.exit(launch(int(sys.argv[2]), sys.argv[3:]))

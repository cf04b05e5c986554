"""Starts a launcher on each machine of the stage's Slurm job, by `srun`, and waits for them: the stage's side.

The launchers meet at a store (torch's TCPStore) that the stage's process holds, on the first machine of the job, where
the batch script runs. There they also say how they ended; one that does not was killed, or its machine died, and then
nothing is believed of what the ranks say of each other.
"""

import errno
import os
import shutil
import subprocess
import sys
import uuid
from datetime import timedelta
from signal import SIGTERM
from typing import TextIO

from ablation.contract.atomic import write_text
from ablation.contract.process import end_with_parent
from ablation.runner.job import Job

MEETING = "ranks.meeting"  # in the stage's folder: whether a machine sees it
_WAIT = 30  # seconds of srun for the launchers of the other machines, once one has ended well


def run_on_nodes(job: Job, environment: dict[str, str], terminal: TextIO, count: int) -> int:
    """Run a launcher with `count` ranks on each machine; return the exit status of `srun`.

    Raises ValueError outside of a job of Slurm, and OSError (ECANCELED) where a machine cannot do its part, or a
    launcher or its machine died, or Slurm ends the job.
    """
    from torch.distributed import TCPStore

    if "SLURM_JOB_ID" not in environment or shutil.which("srun") is None:
        raise ValueError(f"nodes: {job.nodes} needs a job of Slurm and its srun; see docs/clusters.md")
    store = TCPStore("localhost", 0, is_master=True, wait_for_workers=False, timeout=timedelta(seconds=30))
    token = uuid.uuid4().hex
    write_text(job.out / MEETING, token)
    # srun gives each machine its own devices; ours, in its environment, mean nothing there.
    environment = {name: value for name, value in environment.items() if name != "CUDA_VISIBLE_DEVICES"}
    command = [sys.executable, "-m", "trainers.parallel.nodes", str(os.getpid()), *step(job)]
    command += [sys.executable, "-m", "trainers.parallel.node", str(count), str(store.port), token, *job.arguments]
    try:
        # Of the launchers standard output becomes the terminal, and standard error our log.
        done = subprocess.run(command, env=environment, stdin=subprocess.DEVNULL, stdout=terminal.fileno(), check=False)
        status = done.returncode
    finally:
        (job.out / MEETING).unlink(missing_ok=True)
    for node in range(job.nodes):
        if store.check([f"problem {node}"]):
            raise OSError(errno.ECANCELED, store.get(f"problem {node}").decode())
    missing = [node for node in range(job.nodes) if not store.check([f"ended {node}"])]
    if missing:
        reason = f"machine {missing[0] + 1} of {job.nodes}: its launcher was killed or never started (srun ended with"
        raise OSError(errno.ECANCELED, f"{reason} {status}; see log.txt)")
    if status and _is_ended(environment["SLURM_JOB_ID"]):
        raise OSError(errno.ECANCELED, f"Slurm ends job {environment['SLURM_JOB_ID']}")
    return status


def step(job: Job) -> list[str]:
    """Return the command of the step of the job: a process on each machine, which may use all that the job has there.

    One that ends badly ends the others.
    """
    asked = [f"--nodes={job.nodes}", f"--ntasks={job.nodes}", "--ntasks-per-node=1", f"--cpus-per-task={job.threads}"]
    return ["srun", *asked, "--kill-on-bad-exit=1", f"--wait={_WAIT}", "--mpi=none", "--input=none"]


def _is_ended(job: str) -> bool:
    """Tell whether Slurm ends the job (a cancel, its time limit): then ranks fail without fault."""
    try:
        asked = ["squeue", "--noheader", f"--jobs={job}", "--format=%T"]
        state = subprocess.run(asked, capture_output=True, text=True, timeout=30, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError):
        return False
    return state not in ("", "RUNNING")


if __name__ == "__main__":  # PARENT COMMAND...: an srun that ends with the stage's process, however that ends
    end_with_parent(int(sys.argv[1]), SIGTERM)  # at which srun ends its step; what the kernel was told survives exec
    os.execvp(sys.argv[2], sys.argv[2:])

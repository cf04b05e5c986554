"""Process of one rank of a stage; it runs the same code as a stage on one device, with the same arguments.

The first rank writes the stage's files and the progress on the terminal; files of other ranks are discarded.
"""

import errno
import faulthandler
import os
import signal
import sys
from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from logging import Logger
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from ablation.contract.process import end_with_parent
from ablation.runner.job import Job, changed_code, check_modules, import_code, known_modules, read_job
from ablation.runner.lifetime import end_on_signals, keep_freed_memory, prepare_process
from ablation.runner.run import build_stage, outcome_of
from trainers.parallel.launch import LESS_MEMORY, STACK, write_outcome

if TYPE_CHECKING:
    from ablation.runner.stage import Stage


def main(argv: Sequence[str]) -> int:
    """Run one rank; return the exit status. The first rank that fails writes the reason to `ranks.json`."""
    end_with_parent()
    end_on_signals()
    job, rank, scratch = read_job(argv), int(os.environ["RANK"]), Path(os.environ["ABLATION_SCRATCH"])
    stack = (scratch / f"{STACK} {rank}").open("w")
    faulthandler.enable(stack)  # NCCL's watchdog aborts
    faulthandler.register(signal.SIGTERM, stack, chain=True)  # the launcher ends ranks with SIGTERM
    job.threads = max(1, job.threads // int(os.environ["LOCAL_WORLD_SIZE"]))
    prepare_process(job.threads)
    keep_freed_memory()
    from ablation.runner.runlog import open_log

    log = open_log(job.out / "log.txt", job.plan["stage"] + (f" rank {rank}" if rank else ""))
    rank_job = job
    if rank:
        rank_job = replace(job, out=scratch / str(rank))
        rank_job.out.mkdir()
    return _run(rank_job, job.out, log, rank)


def _run(job: Job, out: Path, log: Logger, rank: int) -> int:
    from trainers.running.micro_batch import OneRankOutOfMemory

    prefix = f"rank {rank}: " if rank else ""
    short, late = list[str](), list[str]()
    begun: list[Stage] = []

    def work() -> tuple[str, str]:
        try:
            _train(job, log, rank, begun)
        except RuntimeError as error:
            if isinstance(error, OneRankOutOfMemory):
                short.append(prefix + str(error))
            elif "Timed out waiting" in str(error):  # gloo's message; NCCL aborts the process
                late.append(f"rank {rank} waited too long for another rank; read the ranks' stack traces in log.txt")
            raise
        return "ok", ""

    try:
        state, reason = outcome_of(work, log, job.plan["config"])
        for stage in begun:
            stage.metrics.close()
    except OSError as error:
        write_outcome(out, "failed", prefix + str(error), machine=True)
        return 1
    if short:
        write_outcome(out, LESS_MEMORY, short[0])
    elif late:
        write_outcome(out, "failed", late[0], machine=True, over=True)
    elif rank == 0 or state == "failed":
        write_outcome(out, state, prefix + reason if reason else "")
    return int(state == "failed")


def _train(job: Job, log: Logger, rank: int, begun: list["Stage"]) -> None:
    """Run the stage as `ablation.runner.run` does, together with the other ranks."""
    if problem := changed_code(job.code):
        raise OSError(errno.ECANCELED, problem)
    modules = known_modules(job)
    from trainers.harness import Stage, fix_randomness

    entry = import_module(job.plan["entry"])
    fix_randomness(job.plan["seed"] or 0, job.threads)
    parts = import_code(job)

    import torch

    local, size = int(os.environ["LOCAL_RANK"]), int(os.environ["LOCAL_WORLD_SIZE"])
    device = f"cuda:{local}" if torch.cuda.device_count() >= size else "cpu"
    halvings = int(os.environ["ABLATION_HALVINGS"])
    group = entry.RANKS(torch.device(device), halvings)
    # The first rank's standard input is the terminal: see trainers.parallel.launch.
    terminal = open(os.devnull if rank else 0, "w", encoding="utf-8", errors="replace")  # noqa: SIM115
    stage = build_stage(job, [device], log, terminal, kind=Stage, parts=parts, ranks=group)
    begun.append(stage)
    entry.run(stage)
    check_modules(job, modules)
    if halvings:
        last = stage.metrics.rows[-1][0] if stage.metrics.rows else 0
        stage.log_metrics(last, {"memory/halvings": halvings})
    group.leave()


def _leave(status: int) -> NoReturn:
    """End the process at once, because a rank that failed does not wait for the others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _leave(main(sys.argv[1:]))

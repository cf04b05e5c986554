"""Run one stage in its folder: lock the folder, call the trainer or command, and write status.json.

    python -m ablation.runner.run --config F/config.json --input prepare=DIR --out F --gpus 1 --label "v8 seed 0"

A stage is refused if its code differs from the code that the plan hashed, because its key is then not valid. The code
is compared at the start, when devices are leased (perhaps hours later), and after all modules are imported; a command's
code is compared at its end instead. Comments may be edited at any time. A trainer's stage fails if it imports project
code that its key does not cover.

The stage ends with `F/status.json` (ok, failed, diverged or blocked) and exit status 0. The grid's last rule reports
failures, so that one failed stage does not stop the tables. A fault of the machine (folder in use, missing devices, a
full or broken disk, a kill) leaves no status and another exit status, and the stage runs again.

Under a scheduler a job continues if its Snakemake is killed, and the next Snakemake submits the stage again. The second
process then waits for the first (`--wait`) and takes over its result. If Snakemake has deleted the `status.json` of a
result that is newer than Snakemake's start (`--since`), the process restores it from a copy.
"""

import contextlib
import errno
import logging
import os
import resource
import shutil
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from importlib import import_module
from logging import Logger
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any, NoReturn, TextIO

from ablation.contract.atomic import remove_leftovers, write_json, write_text
from ablation.contract.code import HARNESS
from ablation.contract.command import leaves
from ablation.contract.display import one_line
from ablation.contract.numbers import counted, duration
from ablation.contract.process import end_with_parent
from ablation.contract.reading import read_text
from ablation.contract.stage_folder import read_attempt
from ablation.contract.status import ENDED, KEPT_STATUS, STATUS, altered, left_files, read_state
from ablation.runner import lifetime
from ablation.runner.devices import Lease, lease
from ablation.runner.job import Job, changed_code, check_modules, import_code, known_modules, parse, read_job
from ablation.runner.ranks import ALONE, Ranks

if TYPE_CHECKING:
    from ablation.runner.stage import Stage

EXIT_IN_USE, EXIT_MACHINE, EXIT_CHANGED = 75, 74, 78  # EX_TEMPFAIL, EX_IOERR and EX_CONFIG of sysexits.h
REASON_LENGTH = 500
_SIZES = ("micro_batch", "batch_size", "max_new_tokens")  # last parts of keys, in order of their effect on results
_TRAINERS = HARNESS[-1].partition(".")[0]  # package with `harness`, which makes stages, and `parallel`, for ranks
_MACHINE_FAULTS = (
    *(errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.ESTALE),  # disk faults
    errno.ECANCELED,  # a command that was ended from outside
)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the stage that the command line describes; return the exit status."""
    argv = sys.argv[1:] if argv is None else argv
    arguments = parse(argv)
    end_with_parent(arguments.parent)
    lifetime.end_on_signals()
    try:
        job = read_job(argv)
        job.lock = lifetime.lock_folder(
            job.out, arguments.wait * 60, lambda holder: _say(job, f"waiting for {holder} to finish the stage")
        )
    except lifetime.FolderInUse as error:
        print(f"error: {error}", file=sys.stderr)
        return EXIT_IN_USE
    except (OSError, ValueError, KeyError, TypeError) as error:
        print(f"error: {arguments.out}: cannot be used ({_one_line(error)}); start snakemake again", file=sys.stderr)
        return EXIT_MACHINE
    try:
        return _run_alone(job, arguments.since)
    except OSError as error:
        print(f"error: {job.out}: {error}", file=sys.stderr)
        return EXIT_MACHINE
    finally:
        os.close(job.lock)


def _run_alone(job: Job, since: Path | None) -> int:
    """Run the stage in its locked folder, unless another process has just finished it; return the exit status."""
    if _take_over(job, since):
        _say(job, "already finished by another process")
        return 0
    if problem := changed_code(job.code):
        print(f"error: {_title(job)}: {problem}", file=sys.stderr)
        return EXIT_CHANGED

    # The status of an earlier attempt is removed first, so that it cannot be taken for this attempt's.
    remove_leftovers(job.out)
    for name in (STATUS, KEPT_STATUS):
        (job.out / name).unlink(missing_ok=True)
    attempt = read_attempt(job.out, unknown=0) + 1
    write_json(job.out / "attempt.json", {"attempt": attempt})
    start = _Start(job, attempt, lifetime.keep_terminal(job.out / "log.txt"))
    try:
        if reason := _blocked(job.inputs):
            return start.finish("blocked", reason)

        # The wait for devices may take hours, so the code is compared again after it.
        devices = lease(
            job.gpus,
            on_wait=lambda pool: start.say(
                f"waiting for {counted(job.gpus, 'free device')} (visible: {', '.join(pool)})"
            ),
        )
        start.has_devices()
        if problem := changed_code(job.code):
            start.say(f"error: {problem}")
            return EXIT_CHANGED

        # Torch reads devices and threads when it is imported, so they are set before any module of the trainer.
        devices.export()
        lifetime.prepare_process(job.threads)
        lifetime.keep_freed_memory()
        return _train(job, start, devices)
    except (ValueError, OSError) as error:  # faults of the machine; the stage's own errors end in a status
        start.say(f"error: {job.out}: {_one_line(error)}")
        return EXIT_MACHINE


def _take_over(job: Job, since: Path | None) -> bool:
    """Return whether a valid result exists, after restoring the files that Snakemake deleted before this job.

    The copy of the status is used only if it is newer than the file `since`; otherwise the stage runs again.
    """
    if _is_whole(job, STATUS):
        return True
    kept = job.out / KEPT_STATUS
    try:
        if since is None or kept.stat().st_mtime <= since.stat().st_mtime:
            return False
    except FileNotFoundError:
        return False
    if not _is_whole(job, KEPT_STATUS):
        return False
    lifetime.restore_log(job.out / "log.txt")
    write_text(job.out / STATUS, read_text(kept))
    return True


def _is_whole(job: Job, name: str) -> bool:
    state = read_state(job.out, job.plan["key"], name)
    same = not job.is_command or state.reading == job.plan["command"]["reading"]
    return state.state == "ok" and same and not altered(job.out, state)


def _train(job: Job, start: "_Start", devices: Lease) -> int:
    """Import and run the trainer or command and write its status. Raises ValueError or OSError for machine faults."""
    # Imported late, because Arrow and numpy read the number of threads when they are loaded.
    from ablation.runner.provenance import write_provenance
    from ablation.runner.runlog import open_log

    log = open_log(job.out / "log.txt", job.plan["stage"])
    log.info("attempt %d: %s", start.attempt, " ".join(sys.argv))
    ranks, earlier = 1, 0.0
    begun: list[Stage] = []

    def work() -> tuple[str, str]:
        nonlocal ranks, earlier
        # Provenance is written even if the import fails, because the environment is the usual cause.
        try:
            entry, kind, parts, loaded_before = _import_entry(job)
        finally:
            write_provenance(job.out, job.inputs, sys.argv, *([Path()] if job.is_command else []))
        start.say("started" if start.attempt == 1 else f"started, attempt {start.attempt}")
        if devices.tokens and not job.is_command and _usable(devices) == ["cpu"]:
            log.warning(
                "the stage runs on the CPU, because this build of torch cannot use the leased devices %s",
                devices.tokens,
            )

        # With several devices each has its own process, which builds its own stage.
        if len(devices.tokens) > 1 and hasattr(entry, "RANKS"):
            ranks, launch = len(devices.tokens), import_module(f"{_TRAINERS}.parallel.launch")
            return launch.run_ranks(job, log=log, terminal=start.terminal, count=ranks)

        # The code is checked last: a command may read its files at any time, and a trainer may import late.
        stage = build_stage(job, _usable(devices), log, start.terminal, kind=kind, parts=parts)
        begun.append(stage)
        if job.is_command:
            locks = [job.lock, *devices.descriptors]
            command = entry.CommandPlan(**job.plan["command"])
            earlier = entry.run(stage, job.plan["config"], command, locks=locks, devices=len(devices.tokens))
            if problem := changed_code(job.code):
                raise OSError(errno.ECANCELED, problem)
        else:
            entry.run(stage)
            check_modules(job, loaded_before)
        return "ok", ""

    # Metrics are written before the status, which declares them complete.
    state, reason = outcome_of(work, log, job.plan["config"])
    for stage in begun:
        stage.metrics.close()
    if state != "failed":  # a failed stage resumes from its checkpoint when it is retried
        shutil.rmtree(job.out / "checkpoint", ignore_errors=True)

    # The status names the device that was used, perhaps not the leased one, because results depend on it.
    if job.is_command:
        device, count = devices.name, max(1, len(devices.tokens))
    else:
        usable = _usable(devices)
        count = max(ranks, len(usable))
        device = "cpu" if usable == ["cpu"] else f"{count} x {sys.modules['torch'].cuda.get_device_name(0)}"
    return start.finish(state, reason, device=device, devices=count, earlier=earlier)


def outcome_of(
    work: Callable[[], tuple[str, str]], log: Logger, config: Mapping[str, object] | None = None
) -> tuple[str, str]:
    """Return (state, reason) from `work`, or from the error that `work` raises.

    config: the stage's configuration; if a device runs out of memory, the reason names the setting to halve.
    Raises OSError for a fault of the machine, after which another attempt may succeed.
    """
    from ablation.runner.stage import Diverged

    try:
        return work()
    except Diverged as error:
        log.error("diverged: %s", reason := _one_line(error))
        return "diverged", reason
    except (Exception, SystemExit) as error:
        reason = f"{type(error).__name__}: {_one_line(error)}"
        if type(error).__name__ in ("OutOfMemoryError", "OutOfMemory"):  # torch's, and micro_batch.OutOfMemory
            sizes = _SIZES if type(error).__name__ == "OutOfMemoryError" else _SIZES[-1:]
            reason = _one_line(f"{less_memory(config or {}, sizes)}. {reason}")
        log.error("failed: %s\n%s", reason, traceback.format_exc())
        if _is_of_the_machine(error):
            raise OSError(_one_line(error)) from error
        return "failed", reason


def less_memory(config: Mapping[str, object], sizes: Sequence[str] = _SIZES) -> str:
    """Return the message for a device out of memory; its remedy is to halve the first of `sizes` that has a value."""
    for size in sizes:
        found = [f"{key} ({value})" for key, value in leaves(config) if key.rpartition(".")[2] == size and value]
        if found:
            return f"out of memory; halve {' or '.join(found)}"
    return "out of memory; use a smaller model, shorter sequences or more devices"


def _import_entry(job: Job) -> "tuple[ModuleType, type[Stage], dict[str, Any], int]":
    """Seed random numbers; return the entry module, its class of stages, the variant's parts, and `known_modules(job)`.

    A command's stage does not import torch.
    """
    from ablation.runner.stage import Stage

    loaded_before = known_modules(job)
    entry = import_module(job.plan["entry"])
    if job.is_command:
        return entry, Stage, {}, loaded_before
    harness = import_module(f"{_TRAINERS}.harness")
    harness.fix_randomness(job.plan["seed"] or 0, job.threads)
    return entry, harness.Stage, import_code(job), loaded_before


def _is_of_the_machine(error: BaseException | None) -> bool:
    """Return whether an error or one of its causes is a fault of the machine, such as a full or broken disk."""
    while error is not None:
        # safetensors and Arrow repeat the system's message without its number.
        if getattr(error, "errno", None) in _MACHINE_FAULTS or os.strerror(errno.ENOSPC) in str(error):
            return True
        error = error.__cause__ or error.__context__
    return False


class _Start:
    """One attempt of a stage: its number and times, and the status that `finish` writes."""

    def __init__(self, job: Job, attempt: int, terminal: TextIO) -> None:
        self.job, self.attempt, self.terminal = job, attempt, terminal
        self.started, self._clock, self._waited = time.time(), time.monotonic(), 0.0

    def has_devices(self) -> None:
        """Start the clock of `wall_s` when the devices are leased, because device-hours do not include the wait."""
        now = time.monotonic()
        self._clock, self._waited = now, now - self._clock

    def say(self, text: str) -> None:
        _say(self.job, text, self.terminal)

    def finish(
        self, state: str, reason: str, *, device: str | None = None, devices: int | None = None, earlier: float = 0.0
    ) -> int:
        """Write `status.json`, the last file of a stage, print the result on the terminal, and return exit status 0.

        earlier: seconds that the command took in an earlier attempt, if this attempt only reads its files.
        """
        took, plan = time.monotonic() - self._clock, self.job.plan
        status = {"state": state, "reason": reason, "stage": plan["stage"], "key": plan["key"], "seed": plan["seed"]}
        status |= {"started": _iso(self.started), "ended": _iso(self.started + self._waited + took)}
        status |= {"wait_s": round(self._waited, 3), "wall_s": round(took + earlier, 3)}
        status |= {"attempt": self.attempt, "device": device, "devices": devices}
        status |= {**left_files(self.job.out), **_used()}
        if self.job.is_command and (self.job.out / ENDED).exists():
            status["reading"] = plan["command"]["reading"]
        (self.job.out / "progress.json").unlink(missing_ok=True)
        write_json(self.job.out / KEPT_STATUS, status)  # written first, so that every status has a copy
        write_json(self.job.out / STATUS, status)
        self.say(f"{state} after {duration(took)}{': ' if reason else ''}{reason}")
        return 0


_ENDED_AS = {"failed": "failed", "diverged": "diverged", "blocked": "was blocked", "corrupt": "is corrupt"}


def _blocked(inputs: dict[str, Path]) -> str:
    """Return a message that names an unusable input and the reason; empty if all inputs can be used."""
    for name, folder in inputs.items():
        earlier = read_state(folder)
        if earlier.state in ("missing", "running"):
            return f"input {name} has not ended ({folder / STATUS} is missing); start snakemake again"
        if earlier.state != "ok":
            return _one_line(f"input {name} {_ENDED_AS.get(earlier.state, earlier.state)}: {earlier.reason}")
        if problem := altered(folder, earlier):
            return _one_line(f"input {name} {_ENDED_AS['corrupt']}: {problem}")
    return ""


def build_stage(
    job: Job,
    devices: list[str],
    log: Logger,
    terminal: TextIO,
    *,
    kind: "type[Stage]",
    parts: Mapping[str, Any],
    ranks: Ranks = ALONE,
) -> "Stage":
    """Return the stage object, of class `kind`, that is passed to the trainer or command of a job."""
    from ablation.contract.health import Monitor, parse_rules
    from ablation.runner.runlog import Metrics, Progress, start_wandb
    from ablation.runner.stage import load_config

    plan, key = job.plan, job.plan["key"]
    mode = None if ranks.rank else os.environ.get("ABLATION_WANDB")  # the settings' `wandb`
    study = plan["stage"].partition(".")[0]
    second = {"id": key, "name": f"{job.label} {plan['stage']}", "group": study, "config": plan["config"]}
    return kind(
        id=plan["stage"],
        key=key,
        seed=plan["seed"],
        label=job.label,
        parts=parts,
        config=load_config(plan["model"], plan["config"], plan["reads"]) if plan["model"] else None,
        inputs=job.inputs,
        out=job.out,
        devices=devices,
        threads=job.threads,
        log=log,
        metrics=Metrics(job.out / "metrics.parquet", start_wandb(mode, job.out, second) if mode else None),
        monitor=Monitor(parse_rules(plan["abort_rules"])),
        meter=Progress(job.out / "progress.json", _title(job), terminal),
        ranks=ranks,
    )


def _usable(devices: Lease) -> list[str]:
    """Return the leased devices, or the CPU if torch cannot use them, as in a CPU build, or was not imported."""
    torch = sys.modules.get("torch")
    if torch is None:  # commands do not import it
        return ["cpu"]
    return devices.devices if torch.cuda.device_count() >= len(devices.tokens) > 0 else ["cpu"]


def _say(job: Job, text: str, terminal: TextIO | None = None) -> None:
    """Print one line to the terminal (or stderr); a closed terminal is not an error."""
    with contextlib.suppress(OSError):
        print(f"    {_title(job)}   {text}", file=terminal or sys.stderr, flush=True)


def _title(job: Job) -> str:
    return f"{job.plan['stage']}  {job.label}"


def _one_line(error: object) -> str:
    return one_line(error, REASON_LENGTH)


def _used() -> dict[str, float]:
    """Return CPU seconds of this process and its children, and the peak memory (MiB) of the largest of them.

    device_memory_mb: most memory (MiB) that torch allocated on one device; absent if this process used no device.
    """
    process, children = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    cpu = process.ru_utime + process.ru_stime + children.ru_utime + children.ru_stime
    unit = 1 << 20 if sys.platform == "darwin" else 1 << 10  # macOS counts bytes, other systems kilobytes
    used = {"cpu_s": round(cpu, 3), "memory_mb": round(max(process.ru_maxrss, children.ru_maxrss) / unit, 1)}
    torch = sys.modules.get("torch")  # without torch the stage used no device
    if torch is None or not torch.cuda.is_initialized():
        return used
    most = max(torch.cuda.max_memory_allocated(number) for number in range(torch.cuda.device_count()))
    return used | ({"device_memory_mb": round(most / (1 << 20), 1)} if most else {})  # 0 if only ranks used devices


def _iso(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="milliseconds")


def _leave(status: int) -> NoReturn:
    """End the process at once, because everything is written and unloading torch and transformers takes 1.5 s."""
    logging.shutdown()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(status)


if __name__ == "__main__":
    _leave(main())

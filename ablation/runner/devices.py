"""Leases of accelerator devices: file locks that die with the process.

Snakemake's `gpu` resource only counts; it hands out no indices, and two invocations do not see each other. So each
job locks the device files it takes in a folder of this user on this host. The kernel drops the locks when the last
process that holds the descriptor ends, however it ends.

Where a scheduler's job finds CUDA_VISIBLE_DEVICES set, those devices are ours, and their numbers mean nothing outside
the job (with constrained cgroups every job sees 0). The locks then bear the job's name, which keeps apart the stages
that share one allocation and never hinders another job. Slurm's steps of one job may share devices or not: its own
list of the devices' numbers on the host, where it gives one, tells. A scheduler's job without CUDA_VISIBLE_DEVICES was
given no devices (a shell on a login node, say): it shares the host's pool with everybody else.

A request waits until it gets all devices at once; a request for many devices can wait long behind a stream of small
ones from another invocation (within one invocation Snakemake's count prevents that).
"""

import ctypes
import fcntl
import os
import random
import re
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

# Grid Engine's job id is JOB_ID, a name that others use too; its spool folder is as unique.
_SCHEDULER_JOBS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "SGE_JOB_SPOOL_DIR", "_CONDOR_JOB_AD")


@dataclass
class Lease:
    """Devices leased until `release` or the end of the process. If there are no tokens, the stage runs on the CPU."""

    tokens: list[str]
    descriptors: list[int] = field(default_factory=list)

    @property
    def devices(self) -> list[str]:
        """Torch device strings, as they are numbered once `export` has been called."""
        return [f"cuda:{index}" for index in range(len(self.tokens))] or ["cpu"]

    def export(self) -> None:
        """Show this process the leased devices only; call it before torch is imported."""
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self.tokens)

    @property
    def name(self) -> str:
        """Return the number of devices and the driver's name of the first, `2 x NVIDIA H100`; `cpu` without devices."""
        names = _ask_driver("nvmlDeviceGetName")
        device_names = [
            names[int(index)] for index in map(_index, self.tokens) if index.isdigit() and int(index) < len(names)
        ]
        return f"{len(self.tokens)} x {device_names[0]}" if device_names else "cpu"

    def release(self) -> None:
        """Give the devices back before the process ends."""
        while self.descriptors:
            os.close(self.descriptors.pop())


def lease(count: int, *, on_wait: Callable[[list[str]], None] = lambda pool: None, poll: float = 0.2) -> Lease:
    """Wait for `count` devices of the pool, all at once, and lease them. Without devices the lease is empty.

    `on_wait` is called once with the pool if they are not free at once. Raises ValueError if the pool is too small.
    """
    pool = visible_devices()
    if count <= 0 or not pool:
        return Lease([])
    if count > len(pool):
        raise ValueError(
            f"the stage needs {count} devices, but only {len(pool)} are visible ({', '.join(pool)}); "
            "lower the variant's `gpu`"
        )
    folder, locks, waited = lease_folder(), _lock_names(pool, os.environ), False
    while True:
        taken = _try_lease(folder, locks, count)
        if taken is not None:
            return taken
        if not waited:
            on_wait(pool)
            waited = True
        time.sleep(poll * random.uniform(0.5, 1.5))  # jitter: two that took one of two devices each do not meet again


def visible_devices() -> list[str]:
    """Return a token for each device that this process may use: its index, or its UUID if the environment names that.

    CUDA_VISIBLE_DEVICES is read as CUDA does (torch.cuda._parse_visible_devices): all entries are of the first one's
    kind, the first invalid one (`NoDevFiles`, -1, an unknown index or UUID) ends the list, and one that is named twice
    empties it.
    """
    fake = os.environ.get("ABLATION_FAKE_GPUS")
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = int(fake) if fake else len(_uuids())
    if named is None:
        return [str(index) for index in range(count)]
    kind = next((prefix for prefix in ("GPU-", "MIG-") if named.strip().startswith(prefix)), "")
    tokens: list[str] = []
    places: list[str] = []  # what the tokens stand for: a UUID may be shortened
    for part in named.split(","):
        token = part.strip() if kind else "".join(re.findall(r"^\s*\+?(\d+)", part))
        place = _index(token)
        exists = token.startswith(kind) and ((place.isdigit() and int(place) < count) or (kind == "MIG-" and count > 0))
        if not exists:
            break
        if place in places:
            return []
        tokens.append(token)
        places.append(place)
    return tokens


def lease_folder() -> Path:
    """Return the folder of the locks; ABLATION_LEASES overrides it.

    Not XDG_RUNTIME_DIR or TMPDIR: they differ between a login shell, cron and a scheduler, which would then not see
    each other's locks, and the former is deleted at logout while jobs run. Raises PermissionError if it is someone
    else's.
    """
    folder = Path(os.environ.get("ABLATION_LEASES") or f"/tmp/ablation-tracker-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(
            f"{folder} is not a folder of this user; remove it, or set ABLATION_LEASES to another folder"
        )
    return folder


def _lock_names(pool: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return each token's lock: one of the scheduler's job if the job was given the devices, else one of the host."""
    job = next((name for name in _SCHEDULER_JOBS if environment.get(name)), None)
    if job is None or "CUDA_VISIBLE_DEVICES" not in environment:
        prefix, numbers = "", [_index(token) for token in pool]
    else:
        prefix = f"{job}-{environment[job]}-"
        numbers = (environment.get("SLURM_STEP_GPUS") or environment.get("SLURM_JOB_GPUS") or "").split(",")
        if len(numbers) != len(pool) or not all(numbers):
            numbers = pool
    return {token: f"{prefix}gpu-{number}.lock".replace("/", "_") for token, number in zip(pool, numbers, strict=True)}


def _try_lease(folder: Path, locks: Mapping[str, str], count: int) -> Lease | None:
    taken = Lease([])
    for token, lock in locks.items():
        descriptor = _try_lock(folder / lock)
        if descriptor is None:
            continue
        taken.tokens.append(token)
        taken.descriptors.append(descriptor)
        if len(taken.tokens) == count:
            return taken
    taken.release()
    return None


def _try_lock(path: Path) -> int | None:
    """Return a descriptor that holds the lock, or None. The descriptor is not inherited by programs that we start."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path).st_ino == os.fstat(descriptor).st_ino:  # not a file that a cleaner of /tmp removed meanwhile
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _index(token: str) -> str:
    """Return the index of a device named by its UUID or a prefix of it, so that both names share one lock."""
    if not token.startswith("GPU-"):
        return token
    matching = [str(index) for index, uuid in enumerate(_uuids()) if uuid.startswith(token)]
    return matching[0] if len(matching) == 1 else token


def _uuids() -> list[str]:
    return _ask_driver("nvmlDeviceGetUUID")


def _ask_driver(question: str) -> list[str]:
    """Return the driver's answer for each NVIDIA device, without importing torch (which would fix the visible ones)."""
    try:
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return []
    if nvml.nvmlInit_v2() != 0:
        return []
    try:
        count, answers = ctypes.c_uint(0), []
        if nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)) != 0:
            return []
        for index in range(count.value):
            handle, text = ctypes.c_void_p(), ctypes.create_string_buffer(96)
            nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle))
            nvml[question](handle, text, ctypes.c_uint(len(text)))
            answers.append(text.value.decode())
        return answers
    finally:
        nvml.nvmlShutdown()

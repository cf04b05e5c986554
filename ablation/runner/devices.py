"""Leases of accelerator devices by file locks, which are released when the process ends.

Snakemake's `gpu` resource only counts: it assigns no devices, and separate invocations do not share it. So each job
locks a file for each of its devices, in a folder of this user on this host. The kernel releases a lock when the last
process that holds its descriptor ends in any way.

If a scheduler sets CUDA_VISIBLE_DEVICES, the job owns these devices, and their numbers have no meaning outside the job
(with cgroups every job sees device 0). The names of the locks then contain the job's id, so that the stages of one
allocation share the locks and other jobs do not. Whether the steps of a Slurm job share devices is known only from
Slurm's list of the host's device numbers, which is used if it exists. A scheduler's job without CUDA_VISIBLE_DEVICES,
such as a shell on a login node, has no devices of its own and shares the host's.

A request waits until all its devices are free at once, so a large request may wait long behind the small ones of
another invocation; within one invocation, Snakemake's count prevents this.
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

# Grid Engine's JOB_ID is a name that other programs use too, so its unique spool folder serves instead.
_SCHEDULER_JOBS = ("SLURM_JOB_ID", "LSB_JOBID", "PBS_JOBID", "SGE_JOB_SPOOL_DIR", "_CONDOR_JOB_AD")


@dataclass
class Lease:
    """Devices that are leased until `release` or the end of the process.

    If there are no tokens, the stage runs on the CPU.
    """

    tokens: list[str]
    descriptors: list[int] = field(default_factory=list)

    @property
    def devices(self) -> list[str]:
        """Return the torch devices, numbered as they are after `export`, or the CPU if no device is leased."""
        return [f"cuda:{index}" for index in range(len(self.tokens))] or ["cpu"]

    def export(self) -> None:
        """Make only the leased devices visible to this process. Call this before torch is imported."""
        os.environ.setdefault("CUDA_DEVICE_ORDER", "PCI_BUS_ID")
        os.environ["CUDA_VISIBLE_DEVICES"] = ",".join(self.tokens)

    @property
    def name(self) -> str:
        """Return the number and the name of the devices, such as `2 x NVIDIA H100`, or `cpu` if none is leased."""
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
    """Lease `count` visible devices, waiting until as many are free at the same time; lease none if none is visible.

    on_wait: called once with all visible devices if the call has to wait. Raises ValueError if there are too few.
    """
    pool = visible_devices()
    if count <= 0 or not pool:
        return Lease([])
    if count > len(pool):
        raise ValueError(
            f"the stage needs {count} devices, but the only visible ones are {', '.join(pool)}; make more visible, or "
            "lower `gpu`"
        )
    folder, locks, waited = lease_folder(), _lock_names(pool, os.environ), False
    while True:
        taken = _try_lease(folder, locks, count)
        if taken is not None:
            return taken
        if not waited:
            on_wait(pool)
            waited = True
        time.sleep(poll * random.uniform(0.5, 1.5))  # random, so that two processes do not block each other again


def visible_devices() -> list[str]:
    """Return a token for each device that this process may use: its index, or its UUID if the environment lists UUIDs.

    CUDA_VISIBLE_DEVICES is parsed as CUDA does (torch.cuda._parse_visible_devices): all entries have the kind of the
    first one, the first invalid entry (`NoDevFiles`, -1, an unknown index or UUID) ends the list, and a repeated entry
    makes the list empty.
    """
    fake = os.environ.get("ABLATION_FAKE_GPUS")
    named = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = int(fake) if fake else len(_uuids())
    if named is None:
        return [str(index) for index in range(count)]
    kind = next((prefix for prefix in ("GPU-", "MIG-") if named.strip().startswith(prefix)), "")
    tokens: list[str] = []
    places: list[str] = []  # indices of the tokens, as UUIDs may be shortened
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
    """Return the folder of the locks, which ABLATION_LEASES overrides.

    The default is not in XDG_RUNTIME_DIR or TMPDIR, which differ between login shells, cron and schedulers; and
    XDG_RUNTIME_DIR is deleted at logout while jobs run. Raises PermissionError if the folder is another user's.
    """
    folder = Path(os.environ.get("ABLATION_LEASES") or f"/tmp/ablation-tracker-{os.getuid()}")
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    status = folder.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid():
        raise PermissionError(
            f"{folder} is not a folder owned by this user; remove it, or set ABLATION_LEASES to another folder"
        )
    return folder


def _lock_names(pool: list[str], environment: Mapping[str, str]) -> dict[str, str]:
    """Return {token: file name of its lock}, with the scheduler's job in the name if the job owns the devices."""
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
    """Return a descriptor that holds the lock and that no other program inherits, or None if the lock is taken."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.stat(path).st_ino == os.fstat(descriptor).st_ino:  # a cleaner of /tmp may have removed the file
            os.truncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)
            return descriptor
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(descriptor)
    return None


def _index(token: str) -> str:
    """Return the index of a device by its UUID or the start of it, so that all its names share one lock.

    Any other token is returned unchanged.
    """
    if not token.startswith("GPU-"):
        return token
    matching = [str(index) for index, uuid in enumerate(_uuids()) if uuid.startswith(token)]
    return matching[0] if len(matching) == 1 else token


def _uuids() -> list[str]:
    return _ask_driver("nvmlDeviceGetUUID")


def _ask_driver(question: str) -> list[str]:
    """Return the answer of NVML's function `question` for each device; empty if there is no driver.

    The driver is not asked through torch, because importing torch would fix the visible devices.
    """
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

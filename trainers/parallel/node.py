"""The launcher of one machine of several; srun starts python -m trainers.parallel.node COUNT PORT TOKEN ARGUMENTS.

It leases the machine's devices, meets the other launchers at the store of the stage's process, and runs a worker for
each device. It ends with the stage's process, whose store it asks once a second: Slurm may see only later that it died.
"""

import fcntl
import os
import socket
import struct
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from signal import SIGKILL
from threading import Thread
from typing import TYPE_CHECKING, Any

from ablation.runner.devices import Lease, lease
from ablation.runner.job import parse
from trainers.parallel.launch import launch
from trainers.parallel.nodes import MEETING

if TYPE_CHECKING:
    from torch.distributed import TCPStore

_LATENCY = 60.0  # seconds until a file that another machine wrote is seen here
_TOGETHER = 600  # seconds in which all launchers must come
_SIOCGIFADDR = 0x8915


def main(count: int, port: int, token: str, arguments: Sequence[str]) -> int:
    """Run this machine's ranks; return the exit status. A problem of the machine is reported to the stage's process."""
    from torch.distributed import TCPStore

    os.dup2(1, 0)  # the ranks find the terminal at their standard input, as those on one machine do
    os.dup2(2, 1)  # the rest is for the log
    number, host = int(os.environ["SLURM_NODEID"]), os.environ["SLURM_LAUNCH_NODE_IPADDR"]
    name = os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    job = parse(arguments)
    store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=_TOGETHER))
    _end_with(host, port)
    try:
        _see(job.out, token)
        devices = _lease(count)
    except (OSError, ValueError) as error:
        store.set(f"problem {number}", f"{name}: {error}")
        return 1
    devices.export()
    if interface := _interface(host, port):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", interface)  # gloo would take what the machine's name resolves to
    held, meeting = _meeting(store, host, number, token)
    with tempfile.TemporaryDirectory() as scratch:
        os.environ["ABLATION_SCRATCH"] = scratch
        try:
            return launch(count, arguments, nodes=job.nodes, meeting=meeting)
        finally:  # a SIGTERM included, which torch makes an exception
            store.set(f"ended {number}", "")
            del held


def _see(out: Path, token: str) -> None:
    """Raise FileNotFoundError where this machine does not see the stage's folder."""
    deadline = time.monotonic() + _LATENCY
    while True:
        with suppress(OSError):
            if (out / MEETING).read_text() == token:
                return
        if time.monotonic() > deadline:
            problem = "is not the folder of the first machine: results must lie where all machines of a job see them"
            raise FileNotFoundError(f"{out.absolute()} {problem} (docs/clusters.md, Storage)")
        time.sleep(0.5)


def _lease(count: int) -> Lease:
    """Wait for so many devices of this machine. Raises ValueError where it has fewer."""
    devices = lease(count)
    if len(devices.tokens) < count:
        raise ValueError(f"{count} devices wanted, and there is none: the same number must be on every machine")
    return devices


def _meeting(store: "TCPStore", host: str, number: int, token: str) -> tuple[Any, dict[str, Any]]:
    """Return where the ranks meet: at a store of the first machine's launcher, which says its port at the other one.

    The first rank is on the first machine, so that the stage's process sees at once what it writes.
    """
    from torch.distributed import TCPStore

    held = None
    if number == 0:
        # torch's own, in this process, is then the same: no other program can take the port in between.
        held = TCPStore(host, 0, is_master=True, wait_for_workers=False, multi_tenant=True)
        store.set("port", str(held.port))
    configs = {"rank": number, "timeout": _TOGETHER}
    endpoint = f"{host}:{store.get('port').decode()}"
    meeting = {"rdzv_backend": "static", "rdzv_endpoint": endpoint, "rdzv_configs": configs, "run_id": token}
    return held, meeting


def _end_with(host: str, port: int) -> None:
    """End this process, and the ranks with it, when the process that holds the store has ended."""
    from torch.distributed import TCPStore

    def watch() -> None:
        with suppress(Exception):
            store = TCPStore(host, port, is_master=False, timeout=timedelta(seconds=30))
            while True:
                store.check(["alive"])
                time.sleep(1)
        os.kill(os.getpid(), SIGKILL)

    Thread(target=watch, daemon=True).start()


def _interface(host: str, port: int) -> str | None:
    """Return the network interface from which this machine reaches another, as far as IPv4 tells."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as asking:
        asking.connect((host, port))
        own = socket.inet_aton(asking.getsockname()[0])
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                found = fcntl.ioctl(asking, _SIOCGIFADDR, struct.pack("256s", name.encode()[:15]))
                if found[20:24] == own:
                    return name
    return None


if __name__ == "__main__":
    sys.exit(main(int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4:]))

"""Runs a module of these tests as one process or as several ranks."""

import os
import socket
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from tests import warm
from tests.repository import ROOT


def launch(module: str, *arguments: object, count: int, python: str | Path = sys.executable) -> None:
    """Run tests.trainers.parallel.<module> to its end.

    The ranks are forks of a process that has torch imported; those of another interpreter, or on CUDA, are torchrun's.
    """
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1"}
    module, words = f"tests.trainers.parallel.{module}", [str(word) for word in arguments]
    if str(python) != sys.executable or os.environ.get("ABLATION_TEST_DEVICE") == "cuda":
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={count}"] if count > 1 else []
        command = [str(python), *launcher, "-m", module, *words]
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=900, check=False
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    meeting = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    sizes = {"WORLD_SIZE": str(count), "LOCAL_WORLD_SIZE": str(count)}

    def run(rank: int) -> subprocess.CompletedProcess[str]:
        own = {**meeting, **sizes, "RANK": str(rank), "LOCAL_RANK": str(rank)} if count > 1 else {}
        return warm.run(module, words, cwd=ROOT, env=environment | own)

    with ThreadPoolExecutor(count) as pool:
        for done in pool.map(run, range(count)):
            assert done.returncode == 0, done.stdout[-3000:]

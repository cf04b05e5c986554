"""Processes of tests as forks of one that has Snakemake, torch and what the tracker uses imported.

Starting Snakemake, four commands of the tracker and a fork server again imports for ten CPU seconds before a toy grid
has done one second of work, and the tests run some two hundred of them. `run` gives the same to its end: what is
forked has imported installed packages only, and loads the project's own modules again, from the folder it works in.

    run("snakemake", ["--cores", "2"], cwd=folder, env=environment)   as `python -m snakemake --cores 2` there

A Snakemake that runs so starts its commands of the tracker, its fork server and the stages that are commands through
`tests/warm_python.py`, and other stages as ever. ABLATION_COLD=1 has everything start as it does for a user, and so do
the tests that kill processes (`Project.start`), the smoke grid of `make test` and the wheel.
"""

import errno
import gc
import importlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from ablation.runner import fork_client, fork_server

ROOT = Path(__file__).resolve().parents[1]
INTERPRETER = str(Path(__file__).with_name("warm_python.sh"))
# Beside what the fork server imports. What is not installed, or has another name in another version, is left out.
TRACKERS = (
    *("yaml", "duckdb", "scipy.stats", "scipy.optimize", "matplotlib.figure"),
    *("matplotlib.backends.backend_svg", "matplotlib.textpath", "fontTools.subset", "charset_normalizer"),
)
SNAKEMAKES = ("snakemake.cli", "snakemake.executors.local", "snakemake.report", "snakemake.logging", "pulp")


# --- for tests ----------------------------------------------------------------------------------------------------


def run(
    module: str,
    arguments: list[str],
    *,
    cwd: Path | str,
    env: dict[str, str],
    timeout: float = 1800,
    separate: bool = False,
    cold: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m module arguments` to its end; its output is in stdout, that of stderr too unless `separate`.

    cold: as a process of its own.
    """
    words = [sys.executable, "-m", module, *arguments]
    if cold or os.environ.get("ABLATION_COLD") or sys.platform != "linux":
        errors = subprocess.PIPE if separate else subprocess.STDOUT
        return subprocess.run(
            words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=timeout, check=False
        )
    variables = (f"{name}={value}" for name, value in env.items())
    os.umask(umask := os.umask(0))
    request = [str(cwd), str(umask), str(len(arguments) + 1), module, *arguments, *variables]
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
        files = [nothing.fileno(), out.fileno(), (err if separate else out).fileno()]
        with _connected() as connection:
            connection.settimeout(timeout)
            socket.send_fds(connection, [os.fsencode("\0".join(request))], files)
            try:
                answer = connection.recv(1 << 16)
            except TimeoutError as late:  # closing the connection kills it
                raise subprocess.TimeoutExpired(words, timeout, _text(out)) from late
        assert answer, "the process that the tests are forked from has gone"
        return subprocess.CompletedProcess(words, int(answer), _text(out), _text(err))


def _text(file: Any) -> str:
    file.seek(0)
    return file.read().decode()


def _owner() -> int:
    """The pytest of all workers, with which the server ends."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def _connected() -> socket.socket:
    """Return a connection to the server, which the first worker starts."""
    address = fork_client.address_of(_owner(), "tests")
    while True:
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(address)
        except ConnectionRefusedError:
            connection.close()
            _start(address)
        else:
            return connection


def _start(address: str) -> None:
    with (
        socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener,
        open(Path(tempfile.gettempdir(), f"ablation-tests-{os.getuid()}.log"), "w") as log,
    ):
        try:
            listener.bind(address)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(0.01)  # another worker starts it
            return
        listener.listen(256)
        subprocess.Popen(
            [sys.executable, "-m", "tests.warm", str(_owner()), address[1:], " " * fork_server.ROOM],
            cwd=ROOT,
            env={**os.environ, **fork_server.SETTINGS},  # no library may start threads
            stdin=listener,
            stdout=log,
            stderr=log,
        )


# --- the server ---------------------------------------------------------------------------------------------------


def main() -> None:
    """Import everything, serve until the tests have ended, and be in each fork what `python -m` would be."""
    owner, address, python = int(sys.argv[1]), sys.argv[2], sys.executable
    signal.signal(signal.SIGALRM, lambda *_: os.path.exists(f"/proc/{owner}") or os._exit(0))
    signal.setitimer(signal.ITIMER_REAL, 1, 1)  # not for forks
    fork_server.import_packages()
    for name in (*TRACKERS, *SNAKEMAKES):
        try:
            importlib.import_module(name)
        except ImportError:
            traceback.print_exc()
    gc.collect()
    gc.freeze()
    fork_server.must_be_able_to_fork()
    request = fork_server.serve(socket.socket(fileno=0), lambda request: os.stat(request.folder))
    module, *arguments = request.arguments
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    os.chdir(request.folder)
    own = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
    sys.path[:] = [request.folder, *own, *sys.path[1:]]
    if module == "snakemake":
        os.environ |= {"TESTS_FORKED_FROM": address, "TESTS_PYTHON": python}
        sys.executable = INTERPRETER  # by which the rules start what they start
    end_as(lambda: fork_server.run(module, arguments))


def end_as(work: Callable[[], object]) -> NoReturn:
    """End as the work would end this process, but at once: taking torch down takes 1.5 s."""
    code: Any = 1
    try:
        work()
        code = 0
    except SystemExit as error:
        code = error.code or 0
        if isinstance(code, str):
            print(code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code if isinstance(code, int) else 1)


if __name__ == "__main__":
    main()

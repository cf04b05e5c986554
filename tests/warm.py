"""Processes of tests as forks of one that has Snakemake, torch and what the tracker uses imported.

Starting Snakemake, four commands of the tracker and a fork server again imports for ten CPU seconds before a toy grid
has done one second of work, and the tests run some two hundred of them. `run` gives the same to its end: what is
forked has imported installed packages only, and loads the project's own modules again, from the folder it works in.

    run("snakemake", ["--cores", "2"], cwd=folder, env=environment)   as `python -m snakemake --cores 2` there

A Snakemake that runs so starts its commands of the tracker through `tests/warm_python.py`, and its stages through the
project's own client and fork server; only that the server need not import anything. ABLATION_COLD=1 has everything
start as it does for a user, and so do the tests that kill processes (`Project.start`), the smoke grid and the wheel.
"""

import fcntl
import gc
import importlib.util
import json
import os
import runpy
import shlex
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
INTERPRETER = """#!/bin/sh
exec {python} -I -S {program} {python} "$@"
"""
# Beside what the fork server imports. What is not installed, or has another name in another version, is left out.
TRACKERS = (
    *("yaml", "duckdb", "scipy.stats", "scipy.optimize", "matplotlib.figure"),
    *("matplotlib.backends.backend_svg", "matplotlib.textpath", "fontTools.subset", "charset_normalizer"),
)
SNAKEMAKES = ("snakemake.cli", "snakemake.executors.local", "snakemake.report", "snakemake.logging", "pulp")
NOTHING: dict[str, Any] = {"environment": {}, "places": [], "installed": set()}  # that a fork could differ from


# --- for tests ----------------------------------------------------------------------------------------------------


def run(
    module: str,
    arguments: list[str],
    *,
    cwd: Path | str,
    env: dict[str, str],
    timeout: float = 1800,
    separate: bool = False,
) -> subprocess.CompletedProcess[str]:
    """Run `python -m module arguments` to its end; its output is in stdout, that of stderr too unless `separate`."""
    words = [sys.executable, "-m", module, *arguments]
    if os.environ.get("ABLATION_COLD") or sys.platform != "linux":
        errors = subprocess.PIPE if separate else subprocess.STDOUT
        return subprocess.run(
            words, cwd=cwd, env=env, stdout=subprocess.PIPE, stderr=errors, text=True, timeout=timeout, check=False
        )
    request = {"module": module, "arguments": arguments, "environment": env, "folder": str(cwd), "umask": _umask()}
    with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, open(os.devnull) as nothing:
        files = [nothing.fileno(), out.fileno(), (err if separate else out).fileno()]
        with socket.socket(socket.AF_UNIX) as connection:
            connection.settimeout(timeout)
            connection.connect(_server())
            content = json.dumps(request).encode()
            socket.send_fds(connection, [len(content).to_bytes(8, "big")], files)
            connection.sendall(content)
            try:
                answer = b"".join(iter(lambda: connection.recv(4096), b""))
            except TimeoutError as late:  # closing the connection kills it
                raise subprocess.TimeoutExpired(words, timeout, _text(out)) from late
        assert answer, "the process that the tests are forked from has gone"
        return subprocess.CompletedProcess(words, json.loads(answer)["code"], _text(out), _text(err))


def _text(file: Any) -> str:
    file.seek(0)
    return file.read().decode()


def _umask() -> int:
    umask = os.umask(0)
    os.umask(umask)
    return umask


_started: list[str] = []


def _server() -> str:
    """Return the socket of the server, started at the first call of any worker; it ends with the pytest of them all."""
    if not _started:
        owner = os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()
        path = f"{fork_client.socket_of(owner)}-tests"  # removed by a later fork server, as all of its kind
        with open(f"{path}.lock", "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            if not os.path.exists(path):
                _start(path, owner)
        _started.append(path)
    return _started[0]


def _start(path: str, owner: int) -> None:
    interpreter = Path(f"{path}.python")
    program = Path(__file__).with_name("warm_python.py")
    interpreter.write_text(INTERPRETER.format(python=shlex.quote(sys.executable), program=shlex.quote(str(program))))
    interpreter.chmod(0o700)
    with socket.socket(socket.AF_UNIX) as listener, open(f"{path}.log", "w") as log:
        listener.bind(path)
        listener.listen(64)
        words = [sys.executable, __file__, path, str(listener.fileno()), str(owner), " " * fork_client.ROOM]
        subprocess.Popen(
            words,
            cwd=ROOT,
            env={**os.environ, **fork_server.SETTINGS, **fork_server.ARROW},  # no library may start threads
            pass_fds=[listener.fileno()],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )


def _module(name: str) -> Any:
    """Load a module of the project by its path, under a name that no fork looks for."""
    spec = importlib.util.spec_from_file_location(f"_warm_{name}", ROOT / "ablation" / "runner" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # where dataclasses look for it
    spec.loader.exec_module(module)
    return module


fork_client, fork_server = _module("fork_client"), _module("fork_server")
Server: Any = fork_server._Server


# --- the server ---------------------------------------------------------------------------------------------------


class Prepared(Server):
    """The fork server of one Snakemake, with everything imported already; it has no environment of its own."""

    def must_be_ours(self, request: dict[str, Any]) -> None:
        pass


class Warm(Server):
    """Serves the tests, and the Snakemakes that they run: whatever module, environment and folder."""

    def must_be_ours(self, request: dict[str, Any]) -> None:
        os.stat(request["folder"])

    def become(self, request: dict[str, Any], files: list[int]) -> NoReturn:
        """Be what `python -m module arguments` would be."""
        self.take_over(request, files)
        os.chdir(request["folder"])
        own = [path for path in os.environ.get("PYTHONPATH", "").split(":") if path]
        sys.path[:] = [request["folder"], *own, *sys.path[1:]]
        module, arguments = request.get("module", "ablation"), request["arguments"]  # tests/warm_python.py names none
        if module == "snakemake":
            self.prepare_stages()
            sys.executable = f"{self.path}.python"  # by which the rules start what they start
            os.environ["TESTS_FORKED_FROM"] = self.path
        if "--parent" in arguments:
            arguments[arguments.index("--parent") + 1] = str(os.getppid())
        fork_server._show([sys.executable, "-m", module, *arguments])
        self.start(module, arguments)

    def prepare_stages(self) -> None:
        """Put a fork server where the jobs of this process look for theirs: as they would start it, but for imports."""
        snakemake = os.getpid()
        path = fork_client.socket_of(snakemake)
        listener = socket.socket(socket.AF_UNIX)
        listener.bind(path)
        listener.listen(256)
        if (first := os.fork()) != 0:
            os.waitpid(first, 0)
            listener.close()
            return
        if os.fork() != 0:
            os._exit(0)
        try:
            os.setpgid(0, 0)
            with open(f"{path}.log", "ab") as log, open(os.devnull) as nothing:
                for target, file in enumerate((nothing, log, log)):
                    os.dup2(file.fileno(), target)
            fork_server._show([REAL, fork_server.__file__, path, str(snakemake)])
            Prepared(listener, os.pidfd_open(snakemake), path, **NOTHING).serve()
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(70)

    def start(self, module: str, arguments: list[str]) -> NoReturn:
        """Run the module as the fork server runs a stage, whose module is always the same, and end."""
        run_module = runpy.run_module

        def run_this(*_: Any, **words: Any) -> None:
            runpy.run_module = run_module
            sys.argv = [f"{module}/__main__.py", *arguments]
            run_module(module, **words)

        runpy.run_module = run_this
        fork_server._run(arguments)


REAL = sys.executable


def main() -> None:
    """Import everything, and serve until the tests have ended."""
    path, descriptor, parent = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    watched = os.pidfd_open(parent)
    fork_server._import_everything()
    for name in (*TRACKERS, *SNAKEMAKES):
        try:
            importlib.import_module(name)
        except ImportError:
            traceback.print_exc()
    gc.collect()
    gc.freeze()
    fork_server._must_be_able_to_fork()
    Warm(socket.socket(fileno=descriptor), watched, path, **NOTHING).serve()


if __name__ == "__main__":
    main()

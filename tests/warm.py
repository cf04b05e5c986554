"""Processes of tests as forks of one that has Snakemake, torch and what the tracker uses imported.

Starting Snakemake, four commands of the tracker and a fork server again imports for ten CPU seconds before a toy grid
has done one second of work, and the tests run some two hundred of them. `run` gives the same to its end: what is
forked has imported installed packages only, and loads the project's own modules again, from the folder it works in.

    run("snakemake", ["--cores", "2"], cwd=folder, env=environment)   as `python -m snakemake --cores 2` there

A Snakemake that runs so starts its commands of the tracker through `tests/warm_python.py`, and its stages through the
project's own client and fork server; only that the server need not import anything. ABLATION_COLD=1 has everything
start as it does for a user, and so do the tests that kill processes (`Project.start`), the smoke grid and the wheel.
"""

import gc
import importlib.util
import json
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any, NoReturn

ROOT = Path(__file__).resolve().parents[1]
INTERPRETER = str(Path(__file__).with_name("warm_python.sh"))
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
        with fork_client.connect(_address(), _start) as connection:
            connection.settimeout(timeout)
            socket.send_fds(connection, [json.dumps(request).encode()], files)
            try:
                answer = connection.recv(1 << 16)
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


def _owner() -> int:
    """The pytest of all workers, with which the server ends."""
    return os.getppid() if "PYTEST_XDIST_WORKER" in os.environ else os.getpid()


def _address() -> str:
    return f"{fork_client.address_of(_owner())}-tests"


def _start(listener: int) -> None:
    with open(Path(tempfile.gettempdir(), f"ablation-tests-{os.getuid()}.log"), "w") as log:
        subprocess.Popen(
            [sys.executable, __file__, str(listener), str(_owner()), _address()[1:], " " * fork_client.ROOM],
            cwd=ROOT,
            env={**os.environ, **fork_server.SETTINGS, **fork_server.ARROW},  # no library may start threads
            pass_fds=[listener],
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
Server: Any = fork_server.Server


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
            os.environ |= {"TESTS_FORKED_FROM": sys.argv[3], "TESTS_PYTHON": sys.executable}
            sys.executable = INTERPRETER  # by which the rules start what they start
        if "--parent" in arguments:
            arguments[arguments.index("--parent") + 1] = str(os.getppid())
        fork_server._show([sys.executable, "-m", module, *arguments])
        self.start(module, arguments)

    def prepare_stages(self) -> None:
        """Put a fork server where the jobs of this process look for theirs: as they would start it, but for imports."""
        snakemake = os.getpid()
        listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        listener.bind(fork_client.address_of(snakemake))
        listener.listen(256)
        if os.fork() != 0:
            listener.close()
            return
        try:
            os.setpgid(0, 0)
            with open(os.devnull, "r+") as nothing:
                for target in range(3):
                    os.dup2(nothing.fileno(), target)
            fork_server._show([REAL, fork_server.__file__, str(listener.fileno()), str(snakemake)])
            Prepared(listener, os.pidfd_open(snakemake), **NOTHING).serve()
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
    descriptor, watched = int(sys.argv[1]), os.pidfd_open(int(sys.argv[2]))
    fork_server._import_everything()
    for name in (*TRACKERS, *SNAKEMAKES):
        try:
            importlib.import_module(name)
        except ImportError:
            traceback.print_exc()
    gc.collect()
    gc.freeze()
    fork_server._must_be_able_to_fork()
    Warm(socket.socket(fileno=descriptor), watched, **NOTHING).serve()


if __name__ == "__main__":
    main()

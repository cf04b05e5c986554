"""The fork server of one grid: imports torch and transformers once, and forks for each stage.

    python -m ablation.runner.fork_server --parent PID trainers      serves the socket that is its file 0

Stages that are commands have a second one (`commands`), which imports what reads their files, and no torch.

Snakemake starts it before the first stage, and it ends with Snakemake. It has one thread, no accelerator and no code of
the project: a fork imports `ablation.runner.run` itself and so sees the code as it is then. It inherits installed
packages only. A stage is killed when its client (ablation/runner/fork_client.py, which says what is handed over) or
this process ends, and so when Snakemake ends, in whatever way.

A job whose environment, folder or libraries differ from what this process has is refused, and its client runs it alone.
"""

import contextlib
import ctypes
import gc
import importlib
import os
import runpy
import selectors
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from glob import escape, glob
from typing import NamedTuple

from ablation.contract.process import end_with_parent
from ablation.runner.fork_client import COMMANDS, KILLED, TRAINERS, address_of, peer_of

MODELS = ("llama", "qwen2", "lfm2", "gpt2")
# Imported here, so that no stage has to. Whatever is not installed, or renamed in another version, is left out.
READING = (
    *("argparse", "email.parser", "importlib.metadata", "numpy", "pandas", "psutil", "pydantic", "pyarrow"),
    *("pyarrow.compute", "pyarrow.parquet", "pyarrow.dataset", "statistics", "yaml"),
)
PACKAGES = (
    *(*READING, "asyncio", "jinja2", "PIL.Image", "sacrebleu.metrics"),
    *("torch", "torch.fx.experimental.symbolic_shapes", "transformers", "safetensors.torch", "tokenizers"),
    *("transformers.modeling_utils", "transformers.models.auto.modeling_auto", "transformers.generation"),
    *("transformers.models.auto.tokenization_auto", "transformers.tokenization_utils_fast"),
    *("transformers.pytorch_utils", *(f"transformers.models.{name}.modeling_{name}" for name in MODELS)),
)
THREADS = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "MKL", "OPENBLAS", "GOTO", "NUMEXPR"))
# What Snakemake and the shell set again for each job. All else has been read by some library already.
OF_THE_JOB = {"_", "SHLVL", "OLDPWD", "PWD", "TMPDIR", "TMP", "TEMPDIR", "TEMP", "VECLIB_MAXIMUM_THREADS", *THREADS}
# As ablation.runner.lifetime sets them for a stage of one thread before it imports torch. Arrow's allocator must not
# have a thread of its own, for no thread outlives a fork.
SETTINGS = dict.fromkeys(THREADS, "1")
SETTINGS |= {"TOKENIZERS_PARALLELISM": "false", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
ROOM = 4000  # bytes among the server's arguments into which each fork writes its own command


class Request(NamedTuple):
    """The request of a client."""

    folder: str
    umask: int
    arguments: list[str]
    environment: dict[str, str]


class Fork(NamedTuple):
    """A stage's process, a handle that is readable once it has ended, and its client."""

    process: int
    handle: int
    client: socket.socket


class Refused(Exception):
    """A fork of this process would differ from a new process."""


def start(kind: str = TRAINERS) -> subprocess.Popen[bytes]:
    """Start the server for the jobs of this process, of a kind. Raises OSError if its address is taken."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address_of(os.getpid(), kind))
        listener.listen(256)
        words = [sys.executable, "-m", "ablation.runner.fork_server", "--parent", str(os.getpid()), kind, " " * ROOM]
        null, environment = subprocess.DEVNULL, os.environ  # without what readline, say, has put beside it
        return subprocess.Popen(words, env=environment, stdin=listener.fileno(), stdout=null, stderr=null)


def main() -> None:
    """Serve until the process behind `--parent` ends."""
    end_with_parent(int(sys.argv[2]))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    places = sys.path[1:]  # before a package adds to them
    environment, installed, problem = _comparable(os.environ), _installed(places), ""
    os.environ.update(SETTINGS)
    try:
        import_packages(READING if sys.argv[3] == COMMANDS else PACKAGES)
        must_be_able_to_fork()
    except BaseException as error:  # whatever it is: all are refused
        problem = f"the server cannot fork: {type(error).__name__}: {error}"

    def check(request: Request) -> None:
        if problem:
            raise Refused(problem)
        if request.folder != os.getcwd():
            raise Refused(f"the working folder is not {os.getcwd()}")
        if others := {name for name, _ in _comparable(request.environment) ^ environment}:
            raise Refused(f"the environment differs: {', '.join(sorted(others))}")
        if _installed(places) != installed:  # the provenance would name versions that a fork does not run
            raise Refused("packages were installed or removed")

    run("ablation.runner.run", serve(socket.socket(fileno=0), check).arguments)


def _comparable(environment: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return the environment variables that libraries may have read when they were imported."""
    return {(name, value) for name, value in environment.items() if name not in OF_THE_JOB}


def _installed(places: Sequence[str]) -> set[tuple[str, int]]:
    """Return the package versions in these folders, and the time at which each was installed."""
    return {(path, os.stat(path).st_mtime_ns) for at in places for path in glob(f"{escape(at)}/*.dist-info")}


def import_packages(names: Sequence[str] = PACKAGES) -> None:
    """Import the libraries that stages use."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):  # it loads most of its parts, and its plugins, at the first model
        importlib.import_module("pydantic").create_model("First", number=(int, 0))
    if names is PACKAGES:
        with contextlib.suppress(ImportError, AttributeError):  # a table that is built when it is first looked at
            importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("gpt2")
    gc.collect()
    gc.freeze()  # forks share what their collectors never touch


def must_be_able_to_fork() -> None:
    """Raise Refused if a fork would not work, because a thread or an accelerator's driver has started."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise Refused("a library has started threads")
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        if "libcuda.so" in maps.read():
            raise Refused("a library has loaded the accelerator's driver")


def serve(listener: socket.socket, check: Callable[[Request], object]) -> Request:
    """Fork for each client, kill the fork when its client ends, and tell the client how the fork ended.

    Returns only in a fork, which has its client's files, environment and umask then: what the client asked for.
    check: raises Refused or OSError for a request that a fork cannot serve.
    """
    # Each fork imports them again. Found here: a fork that looks at the names of all modules copies their pages.
    tracker_modules = [name for name in sys.modules if name.partition(".")[0] == "ablation"]
    watched, server = selectors.PollSelector(), os.getpid()
    watched.register(listener, selectors.EVENT_READ)
    while True:
        (key, _), *_ = watched.select()  # one at a time: it may change what is watched
        fork: Fork | None = key.data
        if fork is None:
            client, _ = listener.accept()
            files: list[int] = []
            try:
                request = _receive(client, files)
                check(request)
                process = os.fork()
            except (Refused, OSError, ValueError) as error:
                _close(files)
                _answer(client, f" {error}")
                continue
            if process == 0:
                end_with_parent(server)
                for target, file in enumerate(files):
                    os.dup2(file, target)
                _close(files)
                listener.detach()  # as file 0 it is the client's now
                client.close()
                for other in {key.data for key in watched.get_map().values()} - {None}:
                    os.close(other.handle)
                    other.client.close()
                for name in tracker_modules:
                    del sys.modules[name]
                os.umask(request.umask)
                os.environ.clear()
                os.environ.update(request.environment)
                return request
            _close(files)
            fork = Fork(process, os.pidfd_open(process), client)
            watched.register(fork.handle, selectors.EVENT_READ, fork)
            watched.register(client, selectors.EVENT_READ, fork)
        elif key.fd == fork.handle:
            _, status = os.waitpid(fork.process, 0)
            code = os.waitstatus_to_exitcode(status)
            watched.unregister(fork.handle)
            os.close(fork.handle)
            with contextlib.suppress(KeyError):
                watched.unregister(fork.client)
            _answer(fork.client, str(code if code >= 0 else KILLED - code))
        else:  # a client says nothing more: it has ended
            os.kill(fork.process, signal.SIGKILL)
            watched.unregister(fork.client)


def _receive(client: socket.socket, files: list[int]) -> Request:
    """Return a client's request, and append its files 0, 1 and 2 to `files`."""
    if peer_of(client)[1] != os.getuid():
        raise Refused("another user")
    client.settimeout(10)  # all others wait for it
    content, received, _, _ = socket.recv_fds(client, 1 << 20, 3)
    files += received
    folder, umask, count, *words = os.fsdecode(content).split("\0")
    arguments, variables = words[: int(count)], words[int(count) :]
    return Request(folder, int(umask), arguments, dict(variable.split("=", 1) for variable in variables))


def _close(files: Iterable[int]) -> None:
    for file in files:
        with contextlib.suppress(OSError):  # of a file system that reports an earlier error now
            os.close(file)


def _answer(client: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError), client:  # the client may have gone
        client.sendall(text.encode())


def run(module: str, arguments: list[str]) -> None:
    """Run a module in a fork as `python -m` does."""
    if "--parent" in arguments:
        arguments[arguments.index("--parent") + 1] = str(os.getppid())
    _show([sys.executable, "-m", module, *arguments])
    sys.argv[1:] = arguments
    tempfile.tempdir = None  # a library may have asked for it
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _show(words: list[str]) -> None:
    """Let `ps` and /proc show the stage's command: it overwrites the server's arguments, one of which is padding."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = b"\0".join(os.fsencode(word) for word in words)[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main()

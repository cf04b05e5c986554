"""The fork server of a grid, which imports torch and transformers once and then forks itself for each stage.

    python -m ablation.runner.fork_server --parent PID trainers      serves the socket that is its standard input

Stages that run a command use a second server (`commands`), which imports only what their result readers need.

Snakemake starts a server before the first stage, and it ends with Snakemake. It has one thread, uses no accelerator and
imports only installed packages: a fork imports `ablation.runner.run` itself, so it runs the current code. A stage
is killed when its client (ablation/runner/fork_client.py), this process or Snakemake ends in any way.

A job is refused if its environment, working folder or packages differ from this process's; its client then starts a
new process.
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
# Modules imported for all stages. Those that are not installed, or have another name in another version, are skipped.
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
# Variables that Snakemake and the shell set for each job. Libraries may already have read the others.
OF_THE_JOB = {"_", "SHLVL", "OLDPWD", "PWD", "TMPDIR", "TMP", "TEMPDIR", "TEMP", "VECLIB_MAXIMUM_THREADS", *THREADS}
# ablation.runner.lifetime sets the same for a stage of one thread before it imports torch. Arrow's allocator must not
# have a thread, because threads do not survive a fork.
SETTINGS = dict.fromkeys(THREADS, "1")
SETTINGS |= {"TOKENIZERS_PARALLELISM": "false", "JE_ARROW_MALLOC_CONF": "background_thread:false"}
ROOM = 4000  # bytes of padding among the server's arguments, for the command that a fork shows to `ps`


class Request(NamedTuple):
    """A client's request: the working folder, umask, arguments and environment of a stage."""

    folder: str
    umask: int
    arguments: list[str]
    environment: dict[str, str]


class Fork(NamedTuple):
    """A stage's process, a handle that becomes readable when the process ends, and the connection to the client."""

    process: int
    handle: int
    client: socket.socket


class Refused(Exception):
    """Raised if a fork of this process would differ from a new process."""


def start(kind: str = TRAINERS) -> subprocess.Popen[bytes]:
    """Start the fork server for this process's jobs of one kind. Raises OSError if the address is taken."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
        listener.bind(address_of(os.getpid(), kind))
        listener.listen(256)
        words = [sys.executable, "-m", "ablation.runner.fork_server", "--parent", str(os.getpid()), kind, " " * ROOM]
        null, environment = subprocess.DEVNULL, os.environ  # without variables that C libraries such as readline set
        return subprocess.Popen(words, env=environment, stdin=listener.fileno(), stdout=null, stderr=null)


def main() -> None:
    """Serve until the process that `--parent` names ends."""
    end_with_parent(int(sys.argv[2]))
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    places = sys.path[1:]  # before packages extend it
    environment, installed, problem = _comparable(os.environ), _installed(places), ""
    os.environ.update(SETTINGS)
    try:
        import_packages(READING if sys.argv[3] == COMMANDS else PACKAGES)
        must_be_able_to_fork()
    except BaseException as error:  # after any error all requests are refused
        problem = f"the server cannot fork ({type(error).__name__}: {error})"

    def check(request: Request) -> None:
        if problem:
            raise Refused(problem)
        if request.folder != os.getcwd():
            raise Refused(f"the stage runs in another folder than this server ({os.getcwd()})")
        if others := {name for name, _ in _comparable(request.environment) ^ environment}:
            raise Refused(
                f"these environment variables of the stage differ from the server's: {', '.join(sorted(others))}"
            )
        if _installed(places) != installed:  # the provenance would name versions that a fork does not use
            raise Refused("packages have been installed or removed since the grid started")

    run("ablation.runner.run", serve(socket.socket(fileno=0), check).arguments)


def _comparable(environment: Mapping[str, str]) -> set[tuple[str, str]]:
    """Return names and values of the environment variables that libraries may read at import."""
    return {(name, value) for name, value in environment.items() if name not in OF_THE_JOB}


def _installed(places: Sequence[str]) -> set[tuple[str, int]]:
    """Return the metadata folder and the installation time of each package in the given folders."""
    return {(path, os.stat(path).st_mtime_ns) for place in places for path in glob(f"{escape(place)}/*.dist-info")}


def import_packages(names: Sequence[str] = PACKAGES) -> None:
    """Import the named libraries, as far as they are installed, and what they load only at first use."""
    for name in names:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError):  # the first model loads most of pydantic's modules and plugins
        importlib.import_module("pydantic").create_model("First", number=(int, 0))
    if names is PACKAGES:
        with contextlib.suppress(ImportError, AttributeError):  # the first access builds a table
            importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("gpt2")
    gc.collect()
    gc.freeze()  # the collectors of forks then do not copy these objects' pages


def must_be_able_to_fork() -> None:
    """Raise Refused if a fork would not work, because a library has started threads or loaded a device's driver."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise Refused("a library has started threads")
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        if "libcuda.so" in maps.read():
            raise Refused("a library has loaded the accelerator's driver")


def serve(listener: socket.socket, check: Callable[[Request], object]) -> Request:
    """Fork for each client, kill the fork when its client ends, and send the client the fork's exit status.

    Returns only in a fork, with the client's request, after taking over the client's files, environment and umask.
    check: function that raises Refused or OSError for a request that a fork cannot serve.
    """
    # Forks import these modules again. They are listed here, as a fork that reads all names would copy their pages.
    tracker_modules = [name for name in sys.modules if name.partition(".")[0] == "ablation"]
    watched, server = selectors.PollSelector(), os.getpid()
    watched.register(listener, selectors.EVENT_READ)
    while True:
        (key, _), *_ = watched.select()  # only the first event, because handling it may change `watched`
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
                listener.detach()  # its number, 0, is now the client's file
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
        else:  # clients send nothing after the request, so this one has ended
            os.kill(fork.process, signal.SIGKILL)
            watched.unregister(fork.client)


def _receive(client: socket.socket, files: list[int]) -> Request:
    """Return a client's request, and append the client's file descriptors 0, 1 and 2 to `files`."""
    if peer_of(client)[1] != os.getuid():
        raise Refused("the request comes from another user")
    client.settimeout(10)  # all other clients wait meanwhile
    content, received, _, _ = socket.recv_fds(client, 1 << 20, 3)
    files += received
    folder, umask, count, *words = os.fsdecode(content).split("\0")
    arguments, variables = words[: int(count)], words[int(count) :]
    return Request(folder, int(umask), arguments, dict(variable.split("=", 1) for variable in variables))


def _close(files: Iterable[int]) -> None:
    for file in files:
        with contextlib.suppress(OSError):  # some file systems report earlier errors only now
            os.close(file)


def _answer(client: socket.socket, text: str) -> None:
    with contextlib.suppress(OSError), client:  # the client may have gone
        client.sendall(text.encode())


def run(module: str, arguments: list[str]) -> None:
    """Run a module in a fork as `python -m` would."""
    if "--parent" in arguments:
        arguments[arguments.index("--parent") + 1] = str(os.getppid())
    _show([sys.executable, "-m", module, *arguments])
    sys.argv[1:] = arguments
    tempfile.tempdir = None  # a library may have cached it
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _show(words: list[str]) -> None:
    """Overwrite the server's arguments, which include padding, so that `ps` and /proc show the stage's command."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = b"\0".join(os.fsencode(word) for word in words)[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


if __name__ == "__main__":
    main()

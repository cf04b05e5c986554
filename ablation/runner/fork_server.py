"""The fork server of one grid: imports torch and transformers once, and forks for each stage.

The first job starts it (ablation/runner/fork_client.py, which says what is handed over), one per Snakemake process, and
it ends with that process. It has one thread, no accelerator and no code of the project: a fork imports
`ablation.runner.run` itself and so sees the code as it is then. It inherits installed packages only.

Each client is attended by a fork, which forks the stage: the stage is killed when its client ends, when this process
ends, and so when Snakemake ends, in whatever way.

A job whose environment, folder or libraries differ from what this process has is refused, and its client runs it alone.
"""

import contextlib
import ctypes
import gc
import importlib
import io
import json
import os
import runpy
import select
import signal
import socket
import struct
import sys
import traceback
from dataclasses import dataclass
from typing import Any, NoReturn

MODELS = ("llama", "qwen2", "lfm2", "gpt2")
# Imported here, so that no stage has to. Whatever is not installed, or renamed in another version, is left out.
PACKAGES = (
    *("argparse", "asyncio", "email.parser", "importlib.metadata", "numpy", "pandas", "pydantic", "pyarrow"),
    *("pyarrow.parquet", "pyarrow.dataset", "jinja2", "PIL.Image", "sacrebleu.metrics", "statistics", "subprocess"),
    *("torch", "torch.fx.experimental.symbolic_shapes", "transformers", "safetensors.torch", "tokenizers"),
    *("transformers.modeling_utils", "transformers.models.auto.modeling_auto", "transformers.generation"),
    *("transformers.models.auto.tokenization_auto", "transformers.tokenization_utils_fast"),
    *("transformers.pytorch_utils", *(f"transformers.models.{name}.modeling_{name}" for name in MODELS)),
)
# What Snakemake and the shell set again for each job. All else has been read by some library already.
OF_THE_JOB = ("_", "SHLVL", "OLDPWD", "PWD")
THREADS = tuple(f"{name}_NUM_THREADS" for name in ("OMP", "MKL", "OPENBLAS", "GOTO", "NUMEXPR"))
# As ablation.runner.lifetime sets them for a stage of one thread before it imports torch. Arrow's allocator must not
# have a thread of its own, for no thread outlives a fork.
SETTINGS = dict.fromkeys(THREADS, "1") | {"TOKENIZERS_PARALLELISM": "false"}
ARROW = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
_PR_SET_PDEATHSIG = 1


class Refused(Exception):
    """A fork of this process would differ from a new process."""


def main() -> NoReturn:
    """Serve until the process `parent` ends."""
    listener, watched = socket.socket(fileno=int(sys.argv[1])), os.pidfd_open(int(sys.argv[2]))
    original, places = dict(os.environ), list(sys.path)
    installed, problem = _installed(places), ""
    try:
        _import_everything()
        _must_be_able_to_fork()
    except BaseException as error:  # whatever it is: all are refused, so that no other server is started
        problem = f"the server cannot fork: {type(error).__name__}: {error}"
    Server(listener, watched, _comparable(original), places, installed, problem).serve()


@dataclass
class Server:
    """Forks for each client, until the process that is watched (by its handle) ends; all that is below ends with it."""

    listener: socket.socket
    watched: int
    environment: dict[str, str]
    places: list[str]
    installed: set[tuple[str, int]]
    problem: str = ""

    def serve(self) -> NoReturn:
        """Fork once for each client."""
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for these forks
        poll, server = select.poll(), os.getpid()
        for descriptor in (self.listener.fileno(), self.watched):
            poll.register(descriptor, select.POLLIN)
        while self.watched not in {descriptor for descriptor, _ in poll.poll()}:
            client, _ = self.listener.accept()
            with client:
                try:
                    fork = os.fork()
                except OSError:  # the client sees the connection close
                    continue
                if fork == 0:
                    try:
                        self.attend(client, server)
                    except BaseException:
                        traceback.print_exc()
                    finally:  # never back into the server's loop
                        os._exit(70)
        os._exit(0)

    def attend(self, client: socket.socket, server: int) -> NoReturn:
        """Fork again, for the stage of one client; kill it when the client ends, and tell the client how it ended."""
        _end_with(server)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self.listener.close()
        os.close(self.watched)
        _show([sys.executable, "fork_server.py", "waits for a stage"])
        own = os.getpid()
        try:
            content, files, _, _ = socket.recv_fds(client, 1 << 20, 3)
            if user_of(client) != os.getuid():
                raise Refused("another user")
            request = json.loads(content)
            self.must_be_ours(request)
            stage = os.fork()
        except (Refused, OSError, ValueError, KeyError, TypeError) as error:
            _answer(client, {"refused": str(error)})
            os._exit(0)
        if stage == 0:
            client.close()
            _end_with(own)
            self.become(request, files)
        for file in files:
            os.close(file)
        handle, poll = os.pidfd_open(stage), select.poll()
        for descriptor in (handle, client.fileno()):
            poll.register(descriptor, select.POLLIN)
        if handle not in {descriptor for descriptor, _ in poll.poll()}:  # a client says nothing: it has ended
            os.kill(stage, signal.SIGKILL)
        _, status = os.waitpid(stage, 0)
        _answer(client, {"code": os.waitstatus_to_exitcode(status)})
        os._exit(0)

    def must_be_ours(self, request: dict[str, Any]) -> None:
        """Raise Refused if a new process would find an environment other than this one's."""
        if self.problem:
            raise Refused(self.problem)
        if request["folder"] != os.getcwd():
            raise Refused(f"another folder than {os.getcwd()}")
        asked = _comparable(request["environment"])
        if other := sorted(
            name for name in {*asked, *self.environment} if asked.get(name) != self.environment.get(name)
        ):
            raise Refused(f"another environment: {', '.join(other)}")
        if _installed(self.places) != self.installed:  # the provenance would name versions that a fork does not run
            raise Refused("packages were installed or removed")

    def take_over(self, request: dict[str, Any], files: list[int]) -> None:
        """Take over the client's files, umask and environment."""
        for target, file in enumerate(files):
            os.dup2(file, target)
            os.close(file)
        os.umask(request["umask"])
        os.environ.clear()
        os.environ.update(request["environment"])

    def become(self, request: dict[str, Any], files: list[int]) -> NoReturn:
        """Become the stage, as a new process of `python -m ablation.runner.run` would."""
        with contextlib.suppress(OSError):  # where the client is of another session
            os.setpgid(0, request["group"])
        self.take_over(request, files)
        arguments = request["arguments"]
        _show([sys.executable, "-m", "ablation.runner.run", *arguments])
        arguments[arguments.index("--parent") + 1] = str(os.getppid())
        _run(arguments)


def _end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:  # it has already
        os._exit(70)


def _import_everything() -> None:
    changed = {**SETTINGS, **ARROW}
    before = {name: os.environ.get(name) for name in changed}
    os.environ.update(changed)
    sys.path[0] = os.getcwd()  # as `python -m` has it; not the folder of this file
    for name in PACKAGES:
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    with contextlib.suppress(ImportError, AttributeError):  # a table that is built when it is first looked at
        importlib.import_module("transformers.conversion_mapping").get_checkpoint_conversion_mapping("gpt2")
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value
    gc.collect()
    gc.freeze()  # forks share what their collectors never touch


def _must_be_able_to_fork() -> None:
    """Raise Refused if something has started that no fork survives: a thread, an accelerator's driver."""
    if len(os.listdir("/proc/self/task")) != 1:
        raise Refused("a library has started threads")
    with open("/proc/self/maps", encoding="utf-8", errors="replace") as maps:
        if "libcuda.so" in maps.read():
            raise Refused("a library has loaded the accelerator's driver")
    if project := [name for name in sys.modules if name.partition(".")[0] in ("ablation", "trainers")]:
        raise Refused(f"code of the project was imported: {project}")


def _run(arguments: list[str]) -> NoReturn:
    """Run `ablation.runner.run` as `python -m` does, and end."""
    code = 1
    try:
        sys.argv = [os.path.join(os.getcwd(), "ablation", "runner", "run.py"), *arguments]
        sys.stdin = open(0, encoding=sys.stdin.encoding, closefd=False)  # noqa: SIM115 (open as long as the process)
        sys.stdout = _text(1, sys.stdout, os.isatty(1))
        sys.stderr = _text(2, sys.stderr, True)
        importlib.invalidate_caches()
        runpy.run_module("ablation.runner.run", run_name="__main__", alter_sys=True)
        code = 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 0 if error.code is None else 1
        if isinstance(error.code, str):
            print(error.code, file=sys.stderr)
    except BaseException:
        traceback.print_exc()
    finally:
        with contextlib.suppress(OSError, ValueError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _text(file: int, like: Any, by_line: bool) -> io.TextIOWrapper:
    return open(file, "w", encoding=like.encoding, errors=like.errors, closefd=False, buffering=1 if by_line else -1)


def _show(words: list[str]) -> None:
    """Let `ps` and /proc show the stage's command: it overwrites the server's arguments, one of which is padding."""
    with open("/proc/self/stat", encoding="utf-8", errors="replace") as file:
        fields = file.read().rpartition(")")[2].split()
    start, end = int(fields[45]), int(fields[46])
    text = b"\0".join(os.fsencode(word) for word in words)[: end - start - 1]
    ctypes.memmove(start, text.ljust(end - start, b"\0"), end - start)


def _installed(places: list[str]) -> set[tuple[str, int]]:
    """Return which versions of packages these folders hold, and when each was installed."""
    dated = set()
    for place in places:
        with contextlib.suppress(OSError), os.scandir(place) as entries:
            dated |= {(entry.path, entry.stat().st_mtime_ns) for entry in entries if entry.name.endswith(".dist-info")}
    return dated


def _comparable(environment: dict[str, str]) -> dict[str, str]:
    """Return the environment variables that libraries may have read when they were imported."""
    return {name: value for name, value in environment.items() if name not in (*OF_THE_JOB, *THREADS)}


def user_of(connection: socket.socket) -> int:
    """Return the user of the process at the other end."""
    return struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))[1]


def _answer(connection: socket.socket, words: dict[str, Any]) -> None:
    with contextlib.suppress(OSError), connection:  # the client may have gone
        connection.sendall(json.dumps(words).encode())


if __name__ == "__main__":
    main()

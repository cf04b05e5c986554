"""Starts a stage in a process that has already imported torch and transformers, or else in a new one.

    python -I -S ablation/runner/fork_client.py --config F/config.json --out F ... --parent PID

Takes the arguments of `ablation.runner.run` and ends as it does. The process that the caller waits for is this one; the
stage runs in a fork of the grid's fork server (ablation/runner/fork_server.py), which gets this process's arguments,
environment and open files 0, 1 and 2. This process only waits: when it ends, however that happens, the server kills the
stage, and when the stage ends it ends in the same way. If the server cannot serve for any reason, the stage runs as if
there were no server.

Nothing but a few modules of the standard library is imported: this starts in 0.03 s.
"""

import ctypes
import errno
import json
import os
import signal
import socket
import struct
import sys
import time
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable

SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fork_server.py")
ROOM = 4000  # bytes among the server's arguments into which each fork writes its own command
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> NoReturn:
    """Run a stage; end as it ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        parent = int(arguments[arguments.index("--parent") + 1])
        threads = arguments[arguments.index("--threads") + 1]
        if threads != "1":  # libraries count their threads when they are loaded
            run_alone(arguments)
        connection = connect(address_of(parent), lambda listener: _start_server(listener, parent))
    except (OSError, ValueError, IndexError):
        run_alone(arguments)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = ask(connection, arguments)
    if "code" not in answer:
        if "refused" in answer:
            print(f"not a fork of the fork server: {answer['refused']}", file=sys.stderr, flush=True)
        run_alone(arguments)
    code = int(answer["code"])
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def run_alone(arguments: list[str]) -> NoReturn:
    """Become an ordinary process of `ablation.runner.run`."""
    os.execv(sys.executable, [sys.executable, "-m", "ablation.runner.run", *arguments])


def address_of(parent: int) -> str:
    """Return the address of the fork server for the jobs of process `parent`: an abstract one, gone with the server."""
    with open(f"/proc/{parent}/stat", encoding="utf-8", errors="replace") as file:
        started = file.read().rpartition(")")[2].split()[19]  # process ids are used again, with another time
    return f"\0ablation-tracker-{os.getuid()}-{parent}-{started}"


def connect(address: str, start: "Callable[[int], object]") -> socket.socket:
    """Return a connection to the server at this address; if there is none, `start` one that serves a descriptor."""
    for _ in range(1000):
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        try:
            connection.connect(address)  # what is sent waits until the server has imported what it needs
        except ConnectionRefusedError:
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as listener:
                try:
                    listener.bind(address)
                except OSError as error:
                    if error.errno != errno.EADDRINUSE:
                        raise
                    time.sleep(0.01)  # several jobs start at once, and another one starts the server
                    continue
                listener.listen(256)
                start(listener.fileno())
            continue
        _, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        if user != os.getuid():  # any user may take the name, and would get our environment
            raise PermissionError(address)
        return connection
    raise TimeoutError(address)


def _start_server(listener: int, parent: int) -> None:
    """Start the server, in the terminal's session, so that stages can join the jobs' group; not in its foreground."""
    import subprocess

    words = [sys.executable, SERVER, str(listener), str(parent), " " * ROOM]
    null = subprocess.DEVNULL
    subprocess.Popen(words, pass_fds=[listener], process_group=0, stdin=null, stdout=null, stderr=null)


def ask(connection: socket.socket, arguments: list[str]) -> dict[str, Any]:
    """Hand the job over and wait for its end; an answer without `code` if it was refused, or the server ended first."""
    umask = os.umask(0)
    os.umask(umask)
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in os.environb.items()}
    words = {"arguments": arguments, "environment": environment, "folder": os.getcwd(), "umask": umask}
    try:
        socket.send_fds(connection, [json.dumps({**words, "group": os.getpgrp()}).encode()], [0, 1, 2])
        return dict(json.loads(connection.recv(1 << 16)))
    except (OSError, ValueError):
        return {}


if __name__ == "__main__":
    main(sys.argv[1:])

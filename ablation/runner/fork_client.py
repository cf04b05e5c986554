"""Starts a stage as a fork of the grid's fork server, or else as a new process.

    python -I -S ablation/runner/fork_client.py --config F/config.json --out F ... --parent PID

Takes the arguments of `ablation.runner.run` and ends as it does. The process that the caller waits for is this one; the
stage runs in a fork of a process that has torch imported (ablation/runner/fork_server.py), which gets this process's
arguments, environment and open files 0, 1 and 2. This process only waits: when it ends, however that happens, the
server kills the stage, and when the stage ends it ends in the same way. If there is no server, or it cannot serve for
any reason, the stage runs as if there were none.

Nothing but a few modules of the standard library is imported: this starts in 0.03 s.
"""

import ctypes
import json
import os
import signal
import socket
import struct
import sys
from typing import Any, NoReturn

_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> NoReturn:
    """Run a stage; end as it ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    parent = int(arguments[arguments.index("--parent") + 1])
    end_with(parent)
    if arguments[arguments.index("--threads") + 1] == "1":  # libraries count their threads when they are loaded
        answer = ask(address_of(parent), arguments, listener=parent)
        if "refused" in answer:
            print(f"not a fork of the fork server: {answer['refused']}", file=sys.stderr, flush=True)
        if "code" in answer:
            end_as(answer["code"])
    os.execv(sys.executable, [sys.executable, "-m", "ablation.runner.run", *arguments])


def address_of(parent: int) -> str:
    """Return the address of the fork server for the jobs of process `parent`: an abstract one, gone with the server."""
    return f"\0ablation-tracker-{os.getuid()}-{parent}"


def end_with(parent: int) -> None:
    """Let the kernel kill this process when its parent ends, or now if it has already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)


def ask(address: str, arguments: list[str], *, listener: int | None = None, **more: Any) -> dict[str, Any]:
    """Hand the job over and wait for its end; an answer without `code` if it was refused, or the server ended first.

    listener: the process that must have taken the address; containers that share a network share addresses.
    """
    umask = os.umask(0)
    os.umask(umask)
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in os.environb.items()}
    request = {"arguments": arguments, "environment": environment, "folder": os.getcwd(), "umask": umask, **more}
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as connection:
            connection.connect(address)  # what is sent waits until the server has imported what it needs
            process, user = peer_of(connection)
            if user != os.getuid() or listener not in (None, process):  # it would get our environment
                return {}
            socket.send_fds(connection, [json.dumps(request).encode()], [0, 1, 2])
            return dict(json.loads(connection.recv(1 << 16)))
    except (OSError, ValueError):
        return {}


def peer_of(connection: socket.socket) -> tuple[int, int]:
    """Return the process at the other end, of a server the one that began to listen, and its user."""
    process, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
    return process, user


def end_as(code: int) -> NoReturn:
    """End with an exit status or, where it is negative, by that signal."""
    if code < 0:
        if -code != signal.SIGKILL:
            signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(sys.argv[1:])

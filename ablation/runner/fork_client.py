"""Starts a stage as a fork of the grid's fork server, or else as a new process.

    python -I -S ablation/runner/fork_client.py trainers --config F/config.json --out F ... --parent PID

Takes the kind of the stage, `trainers` or `commands`, and the arguments of `ablation.runner.run`, and ends as it does;
a signal that ended the stage becomes the exit status that a shell makes of it. The process that the caller waits for is
this one; the stage runs in a fork of a process that has imported the libraries of its kind
(ablation/runner/fork_server.py), which gets this process's arguments, environment and open files 0, 1 and 2. This
process only waits: when it ends, however that happens, the server kills the stage. If there is no server, or it cannot
serve for any reason, the stage runs as if there were none.

Only what starts in 0.01 s is imported: `socket`, `signal`, `json` and `ctypes` would take 0.02 s more for every stage.
"""

import _signal
import _socket
import os
import sys

KILLED = 128  # an exit status above it names a signal
TRAINERS, COMMANDS = "trainers", "commands"


def main(kind: str, arguments: list[str]) -> None:
    """Run a stage of this kind, and exit as the stage exits."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # which a job in the background of a shell ignores
    parent = int(arguments[arguments.index("--parent") + 1])
    # A trainer's libraries count their threads when they are loaded; a command loads its own.
    if kind == COMMANDS or arguments[arguments.index("--threads") + 1] == "1":
        code, refused = ask(address_of(parent, kind), arguments, listener=parent)
        if refused:
            print(f"the stage runs without the fork server: {refused}", file=sys.stderr, flush=True)
        if code is not None:
            os._exit(code)
    os.execv(sys.executable, [sys.executable, "-m", "ablation.runner.run", *arguments])


def address_of(parent: int, kind: str) -> str:
    """Return the address of the fork server for the jobs of process `parent`; it disappears with the server."""
    return f"\0ablation-tracker-{os.getuid()}-{parent}-{kind}"


def ask(address: str, arguments: list[str], *, listener: int | None = None) -> tuple[int | None, str]:
    """Hand the job over and wait for its end; return its exit status, or None and why it was refused.

    Nothing is said if there is no server, or it ended first. listener: the process that must have taken the address;
    containers that share a network share addresses.
    """
    umask = os.umask(0)
    os.umask(umask)
    environment = (f"{os.fsdecode(name)}={os.fsdecode(value)}" for name, value in os.environb.items())
    words = [os.getcwd(), str(umask), str(len(arguments)), *arguments, *environment]
    files = b"".join(file.to_bytes(4, sys.byteorder) for file in (0, 1, 2))
    try:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        connection.connect(address)  # what is sent waits until the server has imported what it needs
        process, user = peer_of(connection)
        if user != os.getuid() or listener not in (None, process):  # it would get our environment
            return None, ""
        content = os.fsencode("\0".join(words))
        connection.sendmsg([content], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
        code, _, refused = connection.recv(1 << 16).decode().partition(" ")
        return int(code) if code else None, refused
    except (OSError, ValueError):
        return None, ""


def peer_of(connection: _socket.socket) -> tuple[int, int]:
    """Return the process at the other end, of a server the one that began to listen, and its user."""
    found = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    process, user = (int.from_bytes(found[at : at + 4], sys.byteorder) for at in (0, 4))
    return process, user


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

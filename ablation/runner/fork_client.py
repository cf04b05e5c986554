"""Start a stage as a fork of the grid's fork server, or else as a new process.

    python -I -S ablation/runner/fork_client.py trainers --config F/config.json --out F ... --parent PID

The arguments are the kind of the stage, `trainers` or `commands`, and those of `ablation.runner.run`. The exit status
is the stage's; a signal that ended the stage becomes 128 plus its number, as in a shell. The stage runs in a fork of a
process that has already imported the libraries for its kind (ablation/runner/fork_server.py), with this process's
arguments, environment and open files 0, 1 and 2. This process only waits, and when it ends in any way, the server kills
the stage. If there is no server, or it refuses the stage, the stage runs in a new process.

Only fast modules are imported: `socket`, `signal`, `json` and `ctypes` would take 0.02 s more for every stage.
"""

import _signal
import _socket
import os
import sys

KILLED = 128  # an exit status above it names a signal
TRAINERS, COMMANDS = "trainers", "commands"


def main(kind: str, arguments: list[str]) -> None:
    """Run a stage of kind `kind`, and exit with the exit status of the stage."""
    _signal.signal(_signal.SIGINT, _signal.SIG_DFL)  # background jobs of a shell ignore it
    parent = int(arguments[arguments.index("--parent") + 1])
    # The server's libraries were loaded with one thread, which matters to trainers but not to commands.
    if kind == COMMANDS or arguments[arguments.index("--threads") + 1] == "1":
        code, refused = ask(address_of(parent, kind), arguments, listener=parent)
        if refused:
            print(f"the stage runs without the fork server, because {refused}", file=sys.stderr, flush=True)
        if code is not None:
            os._exit(code)
    os.execv(sys.executable, [sys.executable, "-m", "ablation.runner.run", *arguments])


def address_of(parent: int, kind: str) -> str:
    """Return the address of the fork server for jobs of the process `parent`; it exists only while the server runs."""
    return f"\0ablation-tracker-{os.getuid()}-{parent}-{kind}"


def ask(address: str, arguments: list[str], *, listener: int | None = None) -> tuple[int | None, str]:
    """Send the job to the server, wait until it ends, and return (exit status, "") or (None, reason of the refusal).

    The reason is empty if there is no server, or if the server ends first. listener: the id of the process that must
    own the address, because containers that share a network share addresses.
    """
    umask = os.umask(0)
    os.umask(umask)
    environment = (f"{os.fsdecode(name)}={os.fsdecode(value)}" for name, value in os.environb.items())
    words = [os.getcwd(), str(umask), str(len(arguments)), *arguments, *environment]
    files = b"".join(file.to_bytes(4, sys.byteorder) for file in (0, 1, 2))
    try:
        connection = _socket.socket(_socket.AF_UNIX, _socket.SOCK_SEQPACKET)
        connection.connect(address)  # the request waits until the server has imported its libraries
        process, user = peer_of(connection)
        if user != os.getuid() or listener not in (None, process):  # another process must not get the environment
            return None, ""
        content = os.fsencode("\0".join(words))
        connection.sendmsg([content], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, files)])
        code, _, refused = connection.recv(1 << 16).decode().partition(" ")
        return int(code) if code else None, refused
    except (OSError, ValueError):
        return None, ""


def peer_of(connection: _socket.socket) -> tuple[int, int]:
    """Return the ids of the process and the user at the other end; for a server, those of the process that listens."""
    credentials = connection.getsockopt(_socket.SOL_SOCKET, _socket.SO_PEERCRED, 12)
    return int.from_bytes(credentials[:4], sys.byteorder), int.from_bytes(credentials[4:8], sys.byteorder)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])

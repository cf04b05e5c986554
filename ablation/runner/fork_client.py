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
import fcntl
import json
import os
import signal
import socket
import stat
import sys
from typing import Any, NoReturn

SERVER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "fork_server.py")
ROOM = 4000  # bytes among the server's arguments into which each fork writes its own command
_PR_SET_PDEATHSIG = 1


def main(arguments: list[str]) -> NoReturn:
    """Run a stage; end as it ends."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    try:
        parent = int(arguments[arguments.index("--parent") + 1])
        threads = arguments[arguments.index("--threads") + 1]
        connection = _connect(parent) if threads == "1" else None  # libraries count their threads when they are loaded
    except (OSError, ValueError, IndexError):
        connection, parent = None, 0
    if connection is None:
        run_alone(arguments)
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os.kill(os.getpid(), signal.SIGKILL)
    answer = _ask(connection, arguments)
    if answer is None or "refused" in answer:  # it was killed, or cannot serve this one
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


def socket_of(parent: int) -> str:
    """Return the path of the socket of the fork server that serves the jobs of process `parent`, in this folder.

    In a folder of this user only, at a short path: a socket's has 107 bytes at most. Raises PermissionError if the
    folder is someone else's.
    """
    folder = f"/tmp/ablation-tracker-{os.getuid()}"
    os.makedirs(folder, mode=0o700, exist_ok=True)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
        raise PermissionError(folder)
    with open(f"/proc/{parent}/stat", encoding="utf-8", errors="replace") as file:
        started = file.read().rpartition(")")[2].split()[19]  # process ids are used again, with another time
    return f"{folder}/fork-{parent}-{started}"


def _connect(parent: int) -> socket.socket | None:
    """Return a connection to the fork server, which is started if there is none; None where it cannot serve."""
    path = socket_of(parent)
    if os.path.exists(f"{path}.off"):
        return None
    connection = socket.socket(socket.AF_UNIX)
    try:
        connection.connect(path)
        return connection
    except (FileNotFoundError, ConnectionRefusedError):
        pass
    with open(f"{path}.lock", "w") as lock:  # several jobs start at once
        fcntl.flock(lock, fcntl.LOCK_EX)
        try:
            connection.connect(path)
        except (FileNotFoundError, ConnectionRefusedError):
            if os.path.exists(path):
                os.unlink(path)  # of one that was killed
            listener = socket.socket(socket.AF_UNIX)
            listener.bind(path)
            os.chmod(path, 0o600)  # whatever the umask: who connects runs what he likes as this user
            listener.listen(256)
            _start_server(listener, path, parent)
            listener.close()
            connection.connect(path)  # waits there until the server has imported what it needs
    return connection


def _start_server(listener: socket.socket, path: str, parent: int) -> None:
    """Start the server detached: it must not be a child of this job, since Snakemake counts a job's children."""
    if (first := os.fork()) != 0:
        os.waitpid(first, 0)
        return
    if os.fork() != 0:
        os._exit(0)
    os.setpgid(0, 0)  # in the terminal's session, so that stages can join the jobs' group; not in its foreground
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(os.open(f"{path}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600), 1)
    os.dup2(1, 2)
    os.dup2(listener.fileno(), 3)
    os.set_inheritable(3, True)  # dup2 leaves it as it is if it is 3 already
    os.closerange(4, 1024)
    os.execv(sys.executable, [sys.executable, SERVER, path, str(parent), " " * ROOM])


def _ask(connection: socket.socket, arguments: list[str]) -> dict[str, Any] | None:
    """Hand the job over and wait for its end; None if the server ended first."""
    umask = os.umask(0)
    os.umask(umask)
    environment = {os.fsdecode(name): os.fsdecode(value) for name, value in os.environb.items()}
    words = {"arguments": arguments, "environment": environment, "folder": os.getcwd(), "umask": umask}
    request = json.dumps({**words, "group": os.getpgrp()}).encode()
    try:
        socket.send_fds(connection, [len(request).to_bytes(8, "big")], [0, 1, 2])
        connection.sendall(request)
        received = b""
        while part := connection.recv(4096):
            received += part
        answer = json.loads(received)
    except (OSError, ValueError):
        return None
    return answer if isinstance(answer, dict) else None


if __name__ == "__main__":
    main(sys.argv[1:])

"""Stands for the interpreter in a Snakemake that tests/warm.py runs: `-m ablation` is forked, all else is executed.

Its arguments are the real interpreter, then those that a shell of Snakemake gives it.
"""

import ctypes
import importlib.util
import os
import signal
import socket
import sys


def main() -> None:
    """Have `-m ablation --parent PID ...` run as a fork, and end as it ends; become the real interpreter otherwise."""
    python, arguments = sys.argv[1], sys.argv[2:]
    answer = ask(arguments[2:]) if arguments[:2] == ["-m", "ablation"] else {}
    if "code" not in answer:
        os.execv(python, [python, *arguments])
    code = int(answer["code"])
    if code < 0:
        signal.signal(-code, signal.SIG_DFL)
        os.kill(os.getpid(), -code)
    os._exit(code)


def ask(arguments: list[str]) -> dict:
    """As ablation/runner/fork_client.py asks: when this process ends, so does the fork."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    if "--parent" in arguments and os.getppid() != int(arguments[arguments.index("--parent") + 1]):
        os.kill(os.getpid(), signal.SIGKILL)
    place = os.path.join(os.path.dirname(__file__), "..", "ablation", "runner", "fork_client.py")
    spec = importlib.util.spec_from_file_location("fork_client", place)
    client = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(client)
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        connection.connect("\0" + os.environ["TESTS_FORKED_FROM"])
    except OSError:
        return {}
    return client.ask(connection, arguments)


if __name__ == "__main__":
    main()

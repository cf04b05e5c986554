"""Stands for the interpreter in a Snakemake that tests/warm.py runs: modules of FORKED are forked, all else executed.

Its arguments are the real interpreter, then those that a shell of Snakemake gives it.
"""

import ctypes
import importlib.util
import os
import signal
import sys

PR_SET_PDEATHSIG = 1
FORKED = ("ablation", "ablation.runner.fork_server", "ablation.runner.run")  # the last for a command's stage


def main() -> None:
    """Have `-m ablation --parent PID ...` run as a fork, and end as it ends; become the real interpreter otherwise."""
    python, arguments = sys.argv[1], sys.argv[2:]
    if arguments[0] == "-m" and arguments[1] in FORKED:
        place = os.path.join(os.path.dirname(__file__), "..", "ablation", "runner", "fork_client.py")
        spec = importlib.util.spec_from_file_location("fork_client", place)
        client = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(client)
        if "--parent" in arguments:  # the server outlives it
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
            if os.getppid() != int(arguments[arguments.index("--parent") + 1]):
                os._exit(1)
        code, _ = client.ask("\0" + os.environ["TESTS_FORKED_FROM"], arguments[1:])
        if code is not None:
            os._exit(code)
    os.execv(python, [python, *arguments])


if __name__ == "__main__":
    main()

"""The command `serve`: the report page over localhost, redrawn while the grid runs."""

import argparse
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

from ablation.cli.common import add_results, results_folder
from ablation.contract.errors import ConfigError
from ablation.serve.server import Server

A_DAY = 86_400


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = (
        "Show the report page and the running jobs in a browser on this machine. "
        "The page is updated while the grid runs."
    )
    add_results(parser)
    parser.add_argument("--port", type=int, default=8642, help="port of the server (default: 8642; 0: any free port)")
    said = "shortest time between two updates (default: 30)"
    parser.add_argument("--every", type=float, default=30.0, metavar="SECONDS", help=said)


def run(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if not 1 <= arguments.every <= A_DAY:
        raise ConfigError(
            "serve",
            "--every",
            arguments.every,
            "is not a valid interval",
            f"pass a number of seconds from 1 to {A_DAY}",
        )
    results = results_folder(arguments)
    with (
        tempfile.TemporaryDirectory(prefix="ablation-serve-") as folder,
        Server(arguments.port, results, Path(folder)) as server,
    ):
        for ending in (signal.SIGTERM, signal.SIGHUP):
            if signal.getsignal(ending) is not signal.SIG_IGN:  # as nohup asks
                signal.signal(ending, signal.default_int_handler)  # as Ctrl-C
        words = [str(results), folder, str(os.getpid()), str(arguments.every)]
        redraws = subprocess.Popen(
            [sys.executable, "-m", "ablation.serve.draw", *words],
            env={**os.environ, "OMP_NUM_THREADS": "1"},
            stdin=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C goes to the server, which ends it
        )
        print(f"{server.url}  shows the results in {results}; stop with Ctrl-C", flush=True)
        try:
            server.serve_forever()
        except KeyboardInterrupt:
            print()
        finally:
            redraws.kill()
            redraws.wait()
    return 0

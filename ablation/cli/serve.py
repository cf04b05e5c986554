"""The command `serve`: the page over localhost, while the grid runs and after."""

import argparse
import signal
from types import FrameType

from ablation.cli.folders import results_folder
from ablation.contract.errors import ConfigError
from ablation.serve.now import Watcher
from ablation.serve.painter import Painter
from ablation.serve.server import Server

A_DAY = 86_400


def run_serve(arguments: argparse.Namespace) -> int:
    """Serve until Ctrl-C."""
    if not 1 <= arguments.every <= A_DAY:
        raise ConfigError(
            "serve", "--every", arguments.every, "is not a valid interval", f"write seconds from 1 to {A_DAY}"
        )
    results = results_folder(arguments)
    watcher = Watcher(results)
    painter = Painter(results, watcher, arguments.every)
    try:
        with Server(arguments.port, watcher, painter) as server:
            for ending in (signal.SIGTERM, signal.SIGHUP):
                if signal.getsignal(ending) is not signal.SIG_IGN:  # as nohup asks
                    signal.signal(ending, _stop)
            painter.start()
            print(f"{server.url}  the results in {results}; stop with Ctrl-C", flush=True)
            if problem := watcher.now().problem:
                print(f"note: {problem}; the page follows when something is", flush=True)
            server.serve_forever()
    except KeyboardInterrupt:
        print()
    finally:
        painter.end()
    return 0


def _stop(number: int, frame: FrameType | None) -> None:
    raise KeyboardInterrupt

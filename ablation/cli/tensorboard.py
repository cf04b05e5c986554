"""The command `tensorboard`: the metrics as event files, shown by TensorBoard."""

import argparse
import shutil
import subprocess
import sys
from pathlib import Path

from ablation.cli.common import results_folder
from ablation.cli.options import add_results, add_study
from ablation.contract.errors import TrackerError

FOLLOW_SECONDS = 30.0  # as often as stages write their metrics


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    parser.description = "Write the metrics as event files, and start TensorBoard on them. They follow the grid."
    add_results(parser)
    add_study(parser)
    said = "where the event files go (default: RESULTS/tensorboard)"
    parser.add_argument("--output", type=Path, metavar="DIR", help=said)
    parser.add_argument("--port", type=int, default=6006, help="default: 6006; 0 takes a free one")


def run(arguments: argparse.Namespace) -> int:
    """Write event files, and show them in TensorBoard until it is stopped, while they follow the stages."""
    from ablation.store.tensorboard import write_events

    results = results_folder(arguments)
    folder = arguments.output or results / "tensorboard"
    count = write_events(results, folder, arguments.study)
    program = Path(sys.executable).with_name("tensorboard")
    found = str(program) if program.exists() else shutil.which("tensorboard")
    if found is None:
        raise TrackerError(f"tensorboard is not installed: `pip install tensorboard`, or another one on {folder}")
    print(f"{count} stages; stop with Ctrl-C", flush=True)
    shown = folder / arguments.study if arguments.study else folder
    command = [found, "--logdir", str(shown), "--port", str(arguments.port), "--reload_multifile", "true"]
    board = subprocess.Popen(command)
    try:
        while True:
            try:
                return board.wait(FOLLOW_SECONDS)
            except subprocess.TimeoutExpired:
                write_events(results, folder, arguments.study)
    except KeyboardInterrupt:
        return 0
    finally:
        board.terminate()
        board.wait()

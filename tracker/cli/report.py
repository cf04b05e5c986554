"""The command `report`: the page for readers."""

import argparse
from pathlib import Path

from tracker.config.settings import load_settings
from tracker.show.page.render import write_report
from tracker.store.collect import load_or_collect


def register(commands: "argparse._SubParsersAction[argparse.ArgumentParser]") -> None:
    """Add the command to the parser of `python -m tracker`."""
    text = "Write the report page: one HTML file that opens offline."
    parser = commands.add_parser("report", help=text, description=text)
    parser.add_argument("--results", type=Path, help="folder of plan and stages (default: that of configs/config.yaml)")
    parser.add_argument("--reports", type=Path, help="folder that index.html goes into (default: likewise)")
    parser.add_argument("--out", type=Path, metavar="FILE", help="another name for the page")
    parser.set_defaults(run=run_report)


def run_report(arguments: argparse.Namespace) -> int:
    """Write the page and print where it is."""
    settings = load_settings({})
    out = arguments.out or (arguments.reports or settings.reports) / "index.html"
    path = write_report(load_or_collect(arguments.results or settings.results), out)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0

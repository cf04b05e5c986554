"""The command `report`: the page for readers."""

import argparse

from tracker.config.settings import load_settings
from tracker.show.page.render import write_report
from tracker.store.current import load_or_collect


def run_report(arguments: argparse.Namespace) -> int:
    """Write the page and print where it is."""
    settings = load_settings({})
    out = arguments.out or (arguments.reports or settings.reports) / "index.html"
    path = write_report(load_or_collect(arguments.results or settings.results), out)
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0

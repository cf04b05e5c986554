"""The command `report`: the page for readers."""

import argparse

from tracker.cli.folders import reports_folder, results_folder
from tracker.plan.reports import claim_reports
from tracker.show.page.render import write_report
from tracker.store.current import load_or_collect


def run_report(arguments: argparse.Namespace) -> int:
    """Write the page and print where it is."""
    results, reports = results_folder(arguments), reports_folder(arguments)
    database = load_or_collect(results)
    if not arguments.out:
        claim_reports(results, reports)
    path = write_report(database, arguments.out or reports / "index.html")
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0

"""The command trace: the runs, keys and code behind one number of a table."""

import argparse
from pathlib import Path

from ablation.cli.common import check_study
from ablation.cli.folders import results_folder
from ablation.cli.terminal import print_json
from ablation.show.trace import trace
from ablation.store.current import load_or_collect
from ablation.store.database import Store


def run_trace(arguments: argparse.Namespace) -> int:
    """Print where a cell comes from; TABLE may be a file of the reports."""
    table = Path(arguments.table)
    study = table.parent.name if table.suffix in (".md", ".csv", ".tex", ".html") else arguments.table
    with Store(load_or_collect(results_folder(arguments))) as store:
        check_study(store, "trace", study)
        found = trace(store, study, arguments.row, arguments.column)
    if arguments.json:
        print_json("trace", found.rows(), metric=found.metric, shown=found.shown, rerun=found.rerun)
    else:
        print("\n".join(found.lines()))
    return 0

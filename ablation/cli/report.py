"""The command `report`: the page for readers."""

import argparse

from ablation.cli.folders import reports_folder, results_folder
from ablation.contract.atomic import write_text
from ablation.plan.reports import claim_reports
from ablation.show.kept_answers import digest_of, keep_answers
from ablation.show.page.render import draw, read_page
from ablation.store.current import load_or_collect
from ablation.store.database import Store


def run_report(arguments: argparse.Namespace) -> int:
    """Write the page, save its answers for `verdicts --brief`, and print its path."""
    results, reports = results_folder(arguments), reports_folder(arguments)
    database = load_or_collect(results)
    if not arguments.out:
        claim_reports(results, reports)
    digest = digest_of(results)  # before it is read: what replaces it meanwhile is another database
    with Store(database) as store:
        page = read_page(store)
    path = arguments.out or reports / "index.html"
    write_text(path, draw(page))
    keep_answers(results, digest, {study.name: study.answer for study in page.studies})
    print(f"{path}: {path.stat().st_size / 1e6:.1f} MB")
    return 0

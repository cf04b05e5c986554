"""`verdicts --brief`: a sentence for each study. Where the last report holds them nothing is judged, nor imported."""

import argparse
from pathlib import Path

from ablation.cli.folders import results_folder
from ablation.cli.terminal import paragraph
from ablation.plan.collected import is_current, states_now
from ablation.show.kept_answers import kept_answers


def run_brief(arguments: argparse.Namespace) -> int:
    """Print the sentences of the last report, if it was made of what is here now; else judge."""
    results = results_folder(arguments)
    if arguments.since is not None and not _started_since(results, arguments.since):
        return 1
    answers = kept_answers(results) if is_current(results, states_now(results)) else None
    if answers is None or (arguments.study is not None and arguments.study not in answers):
        answers = _judged(results, arguments.study)
    for study, answer in answers.items():
        if arguments.study in (None, study):
            print(paragraph(f"{study}: {answer}"))
    return 0


def _started_since(results: Path, file: Path) -> bool:
    """Tell whether a grid has started since the file was written: one that was refused has not, and changed nothing."""
    lock = results / ".lock"  # as old as the last start (ablation/plan/start.py)
    return lock.exists() and lock.stat().st_mtime_ns >= file.stat().st_mtime_ns


def _judged(results: Path, study: str | None) -> dict[str, str]:
    from ablation.cli.common import check_study
    from ablation.judge.verdicts import edge_table, judge_studies
    from ablation.show.answer import answer
    from ablation.store.current import load_or_collect
    from ablation.store.database import Store

    with Store(load_or_collect(results)) as store:
        check_study(store, "verdicts", study)
        studies = judge_studies(store, study)
    return {judged.name: answer(edge_table([judged]), judged.measurements.analysis.margin) for judged in studies}

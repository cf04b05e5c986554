"""`verdicts --brief`: a sentence for each study. Light: what the last report said is not judged again.

The report saves its sentences in `results/answers.json`. They hold for one database and one state of the code.
"""

import argparse
import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

from ablation.cli.common import paragraph, results_folder
from ablation.contract.atomic import write_json
from ablation.contract.reading import read_json
from ablation.contract.stage_folder import DATABASE
from ablation.plan.collected import is_current, states_now

ANSWERS = "answers.json"
_PACKAGE = Path(__file__).parents[1]


def digest_of(results: Path) -> str:
    """Return a digest of what the sentences depend on: the database and the code. Raises OSError for no database."""
    known = hashlib.sha256()
    for path in sorted(_PACKAGE.rglob("*.py")):
        known.update(path.relative_to(_PACKAGE).as_posix().encode() + hashlib.sha256(path.read_bytes()).digest())
    with (results / DATABASE).open("rb") as file:
        known.update(hashlib.file_digest(file, "sha256").digest())
    return known.hexdigest()


def keep_answers(results: Path, digest: str, answers: Mapping[str, str]) -> None:
    """Keep the sentence of each study; `digest` was taken before anything was judged.

    A results folder that cannot be written, such as a colleague's, must not make the report fail.
    """
    with contextlib.suppress(OSError):
        write_json(results / ANSWERS, {"digest": digest, "answers": dict(answers)})


def kept_answers(results: Path) -> dict[str, str] | None:
    """Return the sentence of each study, in the page's order; None where the report was made of something else."""
    try:
        kept = read_json(results / ANSWERS)
        answers = {str(study): str(answer) for study, answer in kept["answers"].items()}
        return answers if kept["digest"] == digest_of(results) else None
    except (OSError, ValueError, TypeError, KeyError, AttributeError):
        return None


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

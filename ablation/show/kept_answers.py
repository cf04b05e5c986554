"""The sentences of the last report, `results/answers.json`: who asks for them again need not judge again.

They hold for one database and one state of the code that judges. Anything else is judged again.
"""

import contextlib
import hashlib
from collections.abc import Mapping
from pathlib import Path

from ablation.contract.atomic import write_json
from ablation.contract.reading import read_json
from ablation.contract.stage_folder import DATABASE

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

    Results that cannot be written, as those of a colleague, are not a reason for a report to fail.
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

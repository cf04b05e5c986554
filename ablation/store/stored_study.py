"""A study as the database holds it, in `studies.definition`."""

from typing import Any

from ablation.plan.plan_file import StudyRecord


class StoredStudy(StudyRecord):
    """A study with its analysis plans since results existed, {digest, analysis, since}, the current one last.

    `imported`: a note for readers on a study whose runs other programs made; empty for a study of the plan.
    """

    analysis_history: list[dict[str, Any]]
    imported: str = ""

"""A study as the database holds it, in `studies.definition`."""

from typing import Any

from ablation.plan.plan_file import StudyRecord


class StoredStudy(StudyRecord):
    """A study with its analysis plans since there were results, {digest, analysis, since}, the present one last.

    `imported`: what a reader must know of a study whose runs other programs made; empty for a study of the plan.
    """

    analysis_history: list[dict[str, Any]]
    imported: str = ""

"""A study as the database holds it, in `studies.definition`."""

from typing import Any

from tracker.plan.plan_file import StudyRecord


class StoredStudy(StudyRecord):
    """A study with its analysis plans since there were results, {digest, analysis, since}, the present one last."""

    analysis_history: list[dict[str, Any]]

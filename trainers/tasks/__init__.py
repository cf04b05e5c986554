"""Tasks with verifiable answers: one module per task, with its settings in `trainers.tasks.settings`."""

from typing import Any


def task_of(settings: Any) -> str:
    """Return the dotted name of the function `create(settings, source)` of the task `settings.name`."""
    return f"{__name__}.{settings.name}.create"

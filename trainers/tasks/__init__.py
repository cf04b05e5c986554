"""Tasks with verifiable answers: one module per task, its settings in `trainers.tasks.settings`."""

from typing import Any

from ablation.contract.parts import part


def task_of(settings: Any) -> Any:
    """Return the function `create(settings, source)` of the module that the settings name."""
    return part(f"trainers.tasks.{settings.name}", "create")

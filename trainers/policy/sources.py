"""Where a stage's task and policy come from."""

import json
from importlib import import_module
from pathlib import Path
from typing import Any

from trainers.policy.models import POLICY
from trainers.tasks.config import TASKS
from trainers.tasks.interface import Task

UNTRAINED = "untrained.json"  # a warm start of 0 steps: the policy is the model asset itself


def load_task(settings: Any, source: Path | None) -> Task:
    """Return the task that the settings name; only its module is imported."""
    return import_module(f"{TASKS}.{settings.name}").create(settings, source)


def policy_folder(stage: Path, model: Path | None) -> Path:
    """Return the folder of the policy that a stage left: its own, or that of the model asset if it did not train."""
    if (stage / UNTRAINED).exists():
        if model is None:
            raise ValueError(f"{stage}: the warm start has 0 steps and there is no `model` to start from")
        return model
    return stage / POLICY


def mark_untrained(stage: Path) -> None:
    """Note that the policy is the model asset as it is."""
    (stage / UNTRAINED).write_text(json.dumps({"policy": "the input `model`"}) + "\n", encoding="utf-8")

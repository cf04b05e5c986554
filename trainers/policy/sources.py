"""Where a stage's task and policy come from."""

import json
from pathlib import Path

from trainers.assets import files
from trainers.policy.models import POLICY
from trainers.stage import Stage
from trainers.tasks.interface import Task

REWARD_MODEL = "reward_model"  # subfolder of the stage `judge`
UNTRAINED = "untrained.json"  # a warm start of 0 steps: the policy is the model asset itself


def load_task(stage: Stage) -> Task:
    """Return the task that the stage's configuration names, of the asset `data_source` where there is one."""
    task: Task = stage.parts["task"](stage.config.task, asset_files(stage, "data_source"))
    return task


def asset_files(stage: Stage, name: str) -> Path | None:
    """Return the folder with the files of an asset; None where the configuration has none."""
    return files(stage.inputs[name]) if name in stage.inputs else None


def policy_folder(stage: Stage, name: str) -> Path:
    """Return the folder of the policy that the input `name` left, or of the model asset where it did not train."""
    earlier = stage.inputs[name]
    if not (earlier / UNTRAINED).exists():
        return earlier / POLICY
    model = asset_files(stage, "model")
    if model is None:
        raise ValueError("warm_start.steps = 0: there is no `model` to start from")
    return model


def reward_model_folder(stage: Stage) -> Path:
    """Return the folder of the reward model: the asset `reward_model`, or what the stage `judge` trained."""
    asset = asset_files(stage, "reward_model")
    if asset is not None:
        return asset
    trained = stage.inputs["judge"] / REWARD_MODEL if "judge" in stage.inputs else None
    if trained is None or not trained.is_dir():
        raise ValueError("reward.model > 0: there is neither an asset `reward_model` nor a trained one")
    return trained


def mark_untrained(stage: Path) -> None:
    """Note that the policy is the model asset as it is."""
    (stage / UNTRAINED).write_text(json.dumps({"policy": "the input `model`"}) + "\n", encoding="utf-8")

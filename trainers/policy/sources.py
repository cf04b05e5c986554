"""Sources of a stage's task, policy and reward model, and the folders of a training run's last policies."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from ablation.contract.numbers import counted
from trainers.assets import files
from trainers.policy.models import POLICY
from trainers.running.stage import Stage
from trainers.tasks.interface import Task

REWARD_MODEL = "reward_model"  # subfolder of the stage `reward_model`
UNTRAINED = "untrained.json"  # a warm start of 0 steps: the policy is the model asset itself


def load_task(stage: Stage) -> Task:
    """Return the task that the stage's configuration names, with the files of the asset `data_source` if it is set."""
    task: Task = stage.parts["task"](stage.config.task, asset_files(stage, "data_source"))
    return task


def asset_files(stage: Stage, name: str) -> Path | None:
    """Return the folder with the files of the asset `name`; None if the configuration does not set this asset."""
    return files(stage.inputs[name]) if name in stage.inputs else None


def policy_folder(stage: Stage, name: str) -> Path:
    """Return the folder of the input stage `name`'s policy: what the stage trained, or else the asset `model`."""
    earlier = stage.inputs[name]
    if not (earlier / UNTRAINED).exists():
        return earlier / POLICY
    model = asset_files(stage, "model")
    if model is None:
        raise ValueError(
            "warm_start.steps is 0 and `model` is null, so there is no policy; set `model`, or raise warm_start.steps"
        )
    return model


def reward_model_folder(stage: Stage) -> Path:
    """Return the folder of the reward model: the asset `reward_model`, or the model of the stage `reward_model`."""
    asset = asset_files(stage, "reward_model")
    if asset is not None:
        return asset
    earlier = stage.inputs.get("trained_reward_model")
    trained = None if earlier is None else earlier / REWARD_MODEL
    if trained is None or not trained.is_dir():
        raise ValueError(
            "reward.model > 0, but there is no reward model; set `reward_model`, or set reward_training.enabled to true"
        )
    return trained


def mark_untrained(stage: Path) -> None:
    """Record in the folder of a stage that its policy is the unchanged model asset."""
    (stage / UNTRAINED).write_text(json.dumps({"policy": "the input `model`"}) + "\n", encoding="utf-8")


KEPT = "steps"  # subfolder with one folder per kept step, named by its number


# A policy's accuracy fluctuates from step to step. Its mean over the last steps varies less than the value after the
# last step (Machado et al. 2018, arXiv 1709.06009, section 4.3), so an evaluation can average over them.
def measured_steps(steps: int, checkpoints: int) -> list[int]:
    """Return the last `checkpoints` of `steps` steps, after which policies are measured, in increasing order."""
    return list(range(steps - checkpoints + 1, steps + 1))


@contextmanager
def keeping(folder: Path, step: int) -> Iterator[Path]:
    """Yield a temporary folder for a step's models, which becomes the subfolder `step` of `folder` at the end."""
    target = folder / str(step)
    partial = target.with_name(f".{step}.partial")
    for leftover in (partial, target):  # a killed run leaves the first, a resumed run repeats steps of the second
        shutil.rmtree(leftover, ignore_errors=True)
    yield partial
    os.replace(partial, target)


def earlier_models(folder: Path, checkpoints: int) -> list[Path]:
    """Return the folders of the earlier models that a training run kept for its evaluation, the latest first.

    folder: contains a subfolder for each kept step, named by its number. Raises ValueError if the steps are not those
    that `checkpoints` asks for.
    """
    numbers = sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())
    if numbers != measured_steps(numbers[-1] + 1 if numbers else 0, checkpoints)[:-1]:
        kept = ", ".join(map(str, numbers)) or "none"
        raise ValueError(
            f"{folder}: evaluate.checkpoints = {checkpoints} needs the models of "
            f"{counted(checkpoints - 1, 'earlier step')}, but the kept steps are: {kept}; delete {folder.parent} to "
            "repeat the training"
        )
    return [folder / str(step) for step in reversed(numbers)]

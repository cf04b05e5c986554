"""Which student a stage starts from, and what it leaves; one that is switched off leaves none."""

import os
import shutil
from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.policy.models import save_policy
from trainers.policy.sources import asset_files
from trainers.policy.value_model import ValueModel
from trainers.stage import Stage

STUDENT, CRITIC = "student", "critic"  # subfolders of a stage: a Hugging Face folder, and a critic's body with its head
KEPT = "steps"  # subfolder with one folder per kept step, named by its number, with the same two subfolders
MEASURED = "measured"  # the same of the steps that the evaluation averages over, beside the last one


def save_models(
    folder: Path, student: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, critic: ValueModel | None = None
) -> None:
    """Write the student, and the critic if there is one, into subfolders of `folder`."""
    save_policy(folder / STUDENT, student, tokenizer)
    if critic is not None:
        critic.save(folder / CRITIC)
        tokenizer.save_pretrained(folder / CRITIC)


def keep_models(
    stage: Stage,
    step: int,
    student: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    critic: ValueModel | None = None,
    *,
    among: str = KEPT,
) -> None:
    """Keep a copy of the models under the number of the step; a folder of that name is a whole one."""
    target = stage.out / among / str(step)
    partial = target.with_name(f".{step}.partial")
    for leftover in (partial, target):  # of a run that was killed, and of steps that a resumed run takes again
        shutil.rmtree(leftover, ignore_errors=True)
    save_models(partial, student, tokenizer, critic)
    os.replace(partial, target)


def latest_student(stage: Stage, earlier: Sequence[str]) -> Path:
    """Return the folder of the last of the inputs `earlier` that trained a student, else of the asset `model`."""
    for name in earlier:
        folder = stage.inputs[name] / STUDENT
        if folder.is_dir():
            stage.log.info("student of the stage %s: %s", name, folder)
            return folder
    model = asset_files(stage, "model")
    if model is None:
        raise ValueError(f"none of the stages {', '.join(earlier)} left a student, and `model` is null")
    stage.log.info("student: the asset `model`, %s", model)
    return model


def measured_models(stage: Stage) -> list[Path]:
    """Return the folders of what the stage `gad` kept for the evaluation beside its last models, the latest first."""
    folder = stage.inputs.get("gad")
    return [] if folder is None else sorted((folder / MEASURED).glob("[0-9]*"), key=lambda path: -int(path.name))


def latest_critic(stage: Stage, earlier: Sequence[str]) -> Path | None:
    """Return the folder of the last of the inputs `earlier` that trained a critic; None if none did."""
    found = [stage.inputs[name] / CRITIC for name in earlier if (stage.inputs[name] / CRITIC).is_dir()]
    return found[0] if found else None

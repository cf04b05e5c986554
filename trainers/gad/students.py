"""Which student a stage starts from. A stage that is switched off leaves none, and the one before it counts."""

from collections.abc import Sequence
from pathlib import Path

from trainers.policy.sources import asset_files
from trainers.stage import Stage

STUDENT, CRITIC = "student", "critic"  # subfolders of a stage: a Hugging Face folder, and a critic's body with its head


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


def latest_critic(stage: Stage, earlier: Sequence[str]) -> Path | None:
    """Return the folder of the last of the inputs `earlier` that trained a critic; None if none did."""
    found = [stage.inputs[name] / CRITIC for name in earlier if (stage.inputs[name] / CRITIC).is_dir()]
    return found[0] if found else None

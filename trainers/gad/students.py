"""Folders of students and critics: those that a stage starts from, and those that it saves."""

from collections.abc import Sequence
from pathlib import Path

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ablation.runner.ranks import ALONE, Ranks
from trainers.policy.models import save_policy
from trainers.policy.sources import KEPT, asset_files, earlier_models, keeping
from trainers.policy.value_model import ValueModel
from trainers.running.stage import Stage

STUDENT, CRITIC = "student", "critic"  # subfolders of a stage: a Hugging Face folder, and a critic's body with its head
MEASURED = "measured"  # subfolder like KEPT, with the models of the steps that the evaluation averages over


def save_models(
    folder: Path,
    student: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    critic: ValueModel | None = None,
    *,
    ranks: Ranks = ALONE,
) -> None:
    """Write the student, and the critic if there is one, into subfolders of `folder`."""
    save_policy(folder / STUDENT, student, tokenizer, ranks)
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
    """Save a copy of the models in the stage's subfolder `among`, in a folder named by the step."""
    with keeping(stage.out / among, step) as folder:
        save_models(folder, student, tokenizer, critic, ranks=stage.ranks)


def latest_student(stage: Stage, earlier: Sequence[str]) -> Path:
    """Return the folder of the first student among the inputs `earlier`, else of the asset `model`."""
    for name in earlier:
        folder = stage.inputs[name] / STUDENT
        if folder.is_dir():
            stage.log.info("the student is the one that the stage %s left in %s", name, folder)
            return folder
    model = asset_files(stage, "model")
    if model is None:
        raise ValueError(f"no stage ({', '.join(earlier)}) left a student, and `model` is null; set `model`")
    stage.log.info("the student is the asset `model` in %s", model)
    return model


def measured_models(stage: Stage) -> list[Path]:
    """Return the folders of the earlier models that the stage `gad` kept for the evaluation, the latest first.

    Raises ValueError if they are not those that `evaluate.checkpoints` asks for.
    """
    folder = stage.inputs.get("gad")
    if folder is None or not (folder / STUDENT).is_dir():  # this evaluation precedes `gad`, or `gad` is not enabled
        return []
    return earlier_models(folder / MEASURED, stage.config.evaluate.checkpoints)


def latest_critic(stage: Stage, earlier: Sequence[str]) -> Path | None:
    """Return the folder of the first critic among the inputs `earlier`; None if none of them has a critic."""
    folders = [stage.inputs[name] / CRITIC for name in earlier if (stage.inputs[name] / CRITIC).is_dir()]
    return folders[0] if folders else None

"""Folders of the students and critics that stages load and save."""

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
    """Write the student, and the critic if there is one, each with its tokenizer, into subfolders of `folder`."""
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
    """Save the models after a step in the stage's subfolder `among`, in a folder named after the step."""
    with keeping(stage.out / among, step) as folder:
        save_models(folder, student, tokenizer, critic, ranks=stage.ranks)


def latest_student(stage: Stage, earlier: Sequence[str]) -> Path:
    """Return the folder of the first student in the inputs `earlier`, or else of the asset `model`.

    Raises ValueError if there is neither.
    """
    for name in earlier:
        folder = stage.inputs[name] / STUDENT
        if folder.is_dir():
            stage.log.info("the student is from the stage %s (%s)", name, folder)
            return folder
    model = asset_files(stage, "model")
    if model is None:
        raise ValueError(f"no earlier stage ({', '.join(earlier)}) has a student, and `model` is null; set `model`")
    stage.log.info("the student is the asset `model` (%s)", model)
    return model


def measured_models(stage: Stage) -> list[Path]:
    """Return the folders of the earlier models that the stage `gad` kept for the evaluation, the latest first.

    There are none if the stage has not run or is not enabled. Otherwise raises ValueError if their number is not
    `evaluate.checkpoints` - 1.
    """
    folder = stage.inputs.get("gad")
    if folder is None or not (folder / STUDENT).is_dir():  # this evaluation precedes `gad`, or `gad` is not enabled
        return []
    return earlier_models(folder / MEASURED, stage.config.evaluate.checkpoints)


def latest_critic(stage: Stage, earlier: Sequence[str]) -> Path | None:
    """Return the folder of the first critic in the inputs `earlier`; None if there is none."""
    folders = [stage.inputs[name] / CRITIC for name in earlier if (stage.inputs[name] / CRITIC).is_dir()]
    return folders[0] if folders else None

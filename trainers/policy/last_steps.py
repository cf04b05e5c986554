"""The last policies of a training, kept so that its evaluation can average over them.

A policy's accuracy moves up and down from step to step. Where it ends is chance; the mean over some of the last steps
has less of it, as the mean of the last returns has where runs of reinforcement learning are reported (Machado et al.,
2018, arXiv 1709.06009, section 4.3).
"""

import os
import shutil
from pathlib import Path
from typing import Protocol

from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.policy.models import save_policy
from trainers.ranks import Ranks

KEPT = "steps"  # subfolder with one folder per kept step, named by its number


class Averaged(Protocol):
    """What an evaluation says of the policies that it averages over."""

    @property
    def checkpoints(self) -> int: ...  # noqa: D102
    @property
    def apart(self) -> int: ...  # noqa: D102


def measured_steps(steps: int, settings: Averaged) -> list[int]:
    """Return the steps after which a policy is measured, the last one last."""
    return [steps - number * settings.apart for number in reversed(range(settings.checkpoints))]


def keep_policy(
    stage_folder: Path, step: int, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, ranks: Ranks
) -> None:
    """Keep a copy under the number of the step; a folder of that name is a whole one."""
    target = stage_folder / KEPT / str(step)
    partial = target.with_name(f".{step}.partial")
    for leftover in (partial, target):  # of a run that was killed, and of steps that a resumed run takes again
        shutil.rmtree(leftover, ignore_errors=True)
    save_policy(partial, model, tokenizer, ranks)
    os.replace(partial, target)


def kept_policies(stage_folder: Path) -> list[Path]:
    """Return the folders of the policies that were kept beside the last one, the latest first."""
    found = [path for path in (stage_folder / KEPT).glob("*") if path.name.isdigit()]
    return sorted(found, key=lambda path: -int(path.name))

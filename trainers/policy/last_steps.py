"""The last policies of a training, kept so that its evaluation can average over them.

A policy's accuracy moves up and down from step to step. Where it ends is chance; the mean over some of the last steps
has less of it, as the mean of the last returns has where runs of reinforcement learning are reported (Machado et al.,
2018, arXiv 1709.06009, section 4.3).
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from trainers.policy.config import LastSteps

KEPT = "steps"  # subfolder with one folder per kept step, named by its number


def measured_steps(steps: int, settings: LastSteps) -> list[int]:
    """Return the steps after which a policy is measured, the last one last."""
    return [steps - number * settings.apart for number in reversed(range(settings.checkpoints))]


@contextmanager
def keeping(folder: Path, step: int) -> Iterator[Path]:
    """Give a folder to fill with the models of a step; below `folder` one with the number of a step is a whole one."""
    target = folder / str(step)
    partial = target.with_name(f".{step}.partial")
    for leftover in (partial, target):  # of a run that was killed, and of steps that a resumed run takes again
        shutil.rmtree(leftover, ignore_errors=True)
    yield partial
    os.replace(partial, target)


def earlier_models(folder: Path, settings: LastSteps) -> list[Path]:
    """Return what a training kept for its evaluation beside its last model, the latest first.

    folder: holds a folder per kept step, named by its number.

    Raises:
        ValueError: these are not as many as the settings ask for, or not as far apart.
    """
    found = sorted(int(path.name) for path in folder.glob("*") if path.name.isdigit())
    last = found[-1] + settings.apart if found else 0
    if found != measured_steps(last, settings)[:-1]:
        raise ValueError(
            f"{folder} has models of the steps {', '.join(map(str, found)) or 'none'}: evaluate.checkpoints = "
            f"{settings.checkpoints} asks for {settings.checkpoints - 1}, evaluate.apart = {settings.apart} apart, "
            f"beside the last; delete {folder.parent}, and it is trained again"
        )
    return [folder / str(step) for step in reversed(found)]

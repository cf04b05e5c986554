"""The loop of a training stage: step after step, progress, and checkpoints from which a killed stage goes on."""

from collections.abc import Callable

from trainers.stage import Stage
from trainers.state import State


def run_steps(
    stage: Stage,
    step: Callable[[int], object],
    *,
    steps: int,
    first: int = 0,
    state: State | None = None,
    checkpoint_every: int | None = None,
    enough: Callable[[int], bool] | None = None,
) -> None:
    """Call `step` with the numbers from `first` up to `steps`, and report progress after each.

    state: written after every `checkpoint_every` steps, but not after the last; without one of the two there
    are not checkpoints. enough: asked after each step, with the number of steps taken, whether to end here.
    """
    for number in range(first, steps):
        step(number)
        done = number + 1
        if enough is not None and enough(done):
            stage.progress(done, done)
            return
        stage.progress(done, steps)
        if state is not None and checkpoint_every and done % checkpoint_every == 0 and done < steps:
            state.save(stage, done)

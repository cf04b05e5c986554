"""Stage `gad`: critic and student together from the first step. Its steps count on from the warm-up's."""

from trainers.gad.adversarial import Course, train
from trainers.gad.config import GadConfig
from trainers.gad.data import number_of_steps, training_rows
from trainers.parallel import join
from trainers.stage import Stage

RANKS = join  # several devices: a process for each


def run(stage: Stage) -> None:
    """Start from the warm-up's student and critic, or from SeqKD's student and a new critic where it was skipped."""
    config: GadConfig = stage.config
    before, warmup = 0, config.warmup
    if warmup.enabled:
        rows = len(training_rows(stage.inputs["data"], "warmup"))
        before = number_of_steps(rows, config.rollout.prompts, warmup.epochs, warmup.max_steps)
    train(stage, Course("gad", config.gad, first_step=before, earlier=("warmup", "seqkd", "base")))

"""Stage `warmup`: the critic alone for `warmup.critic_warmup` steps, then critic and student together."""

from trainers.gad.adversarial import Course, train
from trainers.parallel import join
from trainers.stage import Stage

RANKS = join  # several devices: a process for each


def run(stage: Stage) -> None:
    """Start from SeqKD's student, and a new critic."""
    train(stage, Course("warmup", stage.config.warmup, first_step=0, earlier=("seqkd", "base")))

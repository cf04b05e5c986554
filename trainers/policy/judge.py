"""Stage `judge`: a reward model that learns the rule's rewards, where `reward_training` asks for one."""

from trainers.parallel.join import join
from trainers.policy.config import PolicyConfig
from trainers.stage import Stage

RANKS = join  # several devices: a process for each


def run(stage: Stage) -> None:
    """Leave a sequence classifier in the folder `reward_model`, or nothing."""
    config: PolicyConfig = stage.config
    if not config.reward_training.enabled:
        stage.log.info("reward_training.enabled is false: nothing is trained")
        return
    stage.parts["train"](stage)

"""Stage `learner` of study `demonstrations`: train the in-context model of a task that has none."""

from importlib import import_module

from trainers.demonstrations.config import IN_CONTEXT
from trainers.stage import Stage


def run(stage: Stage) -> None:
    """Train where the task's module has a `train`; a pretrained model needs nothing."""
    module = import_module(f"{IN_CONTEXT}_{stage.config.task.name}")
    if hasattr(module, "train"):
        module.train(stage)
    else:
        stage.log.info("task %s brings its own model: nothing to train", stage.config.task.name)

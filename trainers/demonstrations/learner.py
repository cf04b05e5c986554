"""Stage `learner` of study `demonstrations`: train the in-context model of a task that has none."""

from trainers.stage import Stage


def run(stage: Stage) -> None:
    """Train where the task has a model to train; a pretrained one needs nothing."""
    if "train" in stage.parts:
        stage.parts["train"](stage)
    else:
        stage.log.info("task %s brings its own model: nothing to train", stage.config.task.name)

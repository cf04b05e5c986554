"""Stage `task_data`: generate or read the problems of all splits, once for all variants and seeds."""

from trainers.policy.sources import load_task
from trainers.running.stage import Stage
from trainers.tasks.interface import SPLITS, write_problems


def run(stage: Stage) -> None:
    """Write the problems of all splits: warm.jsonl, train.jsonl, dev.jsonl and test.jsonl."""
    data = stage.config.data
    task = load_task(stage)
    splits = task.splits({split: getattr(data, split) for split in SPLITS}, data.seed)
    for split, problems in splits.items():
        write_problems(stage.out / f"{split}.jsonl", problems)
        stage.log.info("%s: %d problems", split, len(problems))
    stage.log_metrics(0, {f"problems/{split}": len(problems) for split, problems in splits.items()})

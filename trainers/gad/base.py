"""Stage `base` of study `gad`: train a small model from scratch on flawed responses, if `model` is null."""

from functools import partial

from trainers.gad.config import GadConfig
from trainers.gad.data import WORKED, rows_of_step
from trainers.gad.students import STUDENT
from trainers.parallel import join
from trainers.policy.models import Placement, build_policy, save_policy
from trainers.policy.sources import asset_files, load_task
from trainers.policy.supervised import Schedule, train_on_responses, warmup_cosine, worked_examples
from trainers.policy.text import word_tokenizer
from trainers.running.stage import Stage, run_seed
from trainers.tasks.interface import read_problems

RANKS = join  # several devices: a process for each


def run(stage: Stage) -> None:
    """Train a model from scratch on worked responses and save it; do nothing if the asset `model` is set."""
    config: GadConfig = stage.config
    if asset_files(stage, "model") is not None:
        stage.log.info("the asset `model` is the base model, so nothing is trained")
        return
    placement = Placement.of(stage.devices, config.precision, stage.ranks)
    task, settings = load_task(stage), config.base
    seed = run_seed(stage.seed)
    tokenizer = word_tokenizer(task.words or ())
    model = stage.ranks.build(lambda: build_policy(config.scratch, tokenizer, seed).to(placement.before_sharding))
    model = placement.shard(model)
    problems = read_problems(stage.inputs["data"] / WORKED)
    rows = partial(rows_of_step, len(problems), settings.batch_size, purpose="base", seed=seed)
    train_on_responses(
        stage,
        model,
        worked_examples(tokenizer, task, problems),
        Schedule(rows, settings.steps, settings.lr, warmup_cosine),
        metric="base/loss",
        placement=placement,
        checkpoint_every=config.checkpoint_every,
    )
    save_policy(stage.out / STUDENT, model, tokenizer, stage.ranks)

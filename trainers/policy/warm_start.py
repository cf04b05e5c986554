"""Stage `warm_start`: supervised training on worked responses, once per seed, for all variants."""

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.parallel.join import join
from trainers.policy.config import PolicyConfig, WarmStart
from trainers.policy.models import POLICY, build_policy, load_policy, load_tokenizer, save_policy
from trainers.policy.placement import Placement
from trainers.policy.sources import asset_files, load_task, mark_untrained
from trainers.policy.supervised import Examples, Schedule, train_on_responses, warmup_cosine
from trainers.policy.text import prompt_tokens, response_tokens, word_tokenizer
from trainers.run_seed import with_run_seed
from trainers.stage import Stage
from trainers.tasks.interface import Problem, Task, bucket, read_problems

RANKS = join  # several devices: a process for each


def run(stage: Stage) -> None:
    """Train a model from scratch or from the asset `model`, and save it with its tokenizer."""
    config: PolicyConfig = stage.config
    placement = Placement.of(stage.devices, config.precision, stage.ranks)
    task = load_task(config.task, asset_files(stage, "data_source"))
    source = asset_files(stage, "model")
    if source is not None and config.warm_start.steps == 0:
        mark_untrained(stage.out)
        return
    if source is not None:
        tokenizer = load_tokenizer(source)
        model = load_policy(source, placement.before_sharding, config.precision, trainable=True)
    else:
        if task.words is None:
            raise ValueError(f"task = {config.task!r}: its text needs a pretrained `model`")
        tokenizer = word_tokenizer(task.words)
        seed = with_run_seed(config.warm_start.seed, stage.seed)
        model = build_policy(config.scratch, tokenizer, seed).to(placement.before_sharding)
    model = stage.ranks.shard(model)
    problems = read_problems(stage.inputs["task_data"] / "warm.jsonl")
    train(stage, model, tokenizer, task, problems, settings=config.warm_start, placement=placement)
    save_policy(stage.out / POLICY, model, tokenizer, stage.ranks)


def train(
    stage: Stage,
    model: PreTrainedModel,
    tokenizer: PreTrainedTokenizerBase,
    task: Task,
    problems: list[Problem],
    *,
    settings: WarmStart,
    placement: Placement,
) -> None:
    """Minimise the cross-entropy of the demonstrations' tokens, problems drawn with replacement."""
    missing = sum(problem.demonstration is None for problem in problems)
    if missing:
        raise ValueError(f"warm.jsonl: {missing} problems have no demonstration; set warm_start.steps to 0")
    generator = torch.Generator().manual_seed(bucket(f"warm start {with_run_seed(settings.seed, stage.seed)}", 2**62))

    def rows(_: int) -> list[int]:
        return torch.randint(len(problems), (settings.batch_size,), generator=generator).tolist()

    examples = Examples.of(
        tokenizer,
        [prompt_tokens(tokenizer, problem.prompt, task.instruction) for problem in problems],
        [response_tokens(tokenizer, problem.demonstration or "") for problem in problems],
    )
    schedule = Schedule(rows, settings.steps, settings.lr, warmup_cosine)
    train_on_responses(stage, model, examples, schedule, metric="warm_start/loss", placement=placement)

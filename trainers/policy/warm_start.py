"""Stage `warm_start`: supervised training on worked responses, once per seed, for all variants."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.parallel import join
from trainers.policy.config import PolicyConfig, Until, WarmStart
from trainers.policy.models import (
    POLICY,
    Placement,
    build_policy,
    load_policy_and_reference,
    load_tokenizer,
    save_policy,
)
from trainers.policy.responses import Responder
from trainers.policy.sources import asset_files, load_task, mark_untrained
from trainers.policy.supervised import Schedule, train_on_responses, warmup_cosine, worked_examples
from trainers.policy.text import prompt_tokens, word_tokenizer
from trainers.running.micro_batch import MicroBatch
from trainers.running.stage import Stage, run_seed
from trainers.tasks.interface import Problem, Task, bucket, by_rule, read_problems

RANKS = join  # several devices: a process for each


def run(stage: Stage) -> None:
    """Train a model from scratch or from the asset `model`, and save it with its tokenizer."""
    config: PolicyConfig = stage.config
    placement = Placement.of(stage.devices, config.precision, stage.ranks, stage.parts.get("adapters"))
    task = load_task(stage)
    source = asset_files(stage, "model")
    if source is not None and config.warm_start.steps == 0:
        mark_untrained(stage.out)
        stage.log_metrics(0, {"warm_start/steps": 0, "warm_start/short": 0.0})
        return
    if source is not None:
        tokenizer = load_tokenizer(source)
        model, _ = load_policy_and_reference(source, placement, config.warm_start.memory, stage.seed)
    else:
        if task.words is None:
            raise ValueError(f"task = {config.task!r} has text that needs a pretrained `model`")
        tokenizer = word_tokenizer(task.words)
        seed = run_seed(stage.seed)
        made = stage.ranks.build(lambda: build_policy(config.scratch, tokenizer, seed).to(placement.before_sharding))
        model = placement.shard(made)
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
    generator = torch.Generator().manual_seed(bucket(f"warm start {run_seed(stage.seed)}", 2**62))

    def rows(_: int) -> list[int]:
        return torch.randint(len(problems), (settings.batch_size,), generator=generator).tolist()

    examples = worked_examples(tokenizer, task, problems)
    schedule = Schedule(rows, settings.steps, settings.lr, warmup_cosine)
    if settings.until is None:
        train_on_responses(stage, model, examples, schedule, metric="warm_start/loss", placement=placement)
        stage.log_metrics(settings.steps, {"warm_start/steps": settings.steps, "warm_start/short": 0.0})
        return
    asked = read_problems(stage.inputs["task_data"] / "train.jsonl")[: settings.until.problems]
    goal = Goal(
        stage,
        settings.until,
        settings.steps,
        Responder(model, tokenizer, placement),
        task,
        asked,
        prompts=[prompt_tokens(tokenizer, problem, task.instruction) for problem in asked],
        limit=max(len(response) for response in examples.responses),
        micro_batch=stage.micro_batch(len(asked)),
    )
    train_on_responses(
        stage, model, examples, schedule, metric="warm_start/loss", placement=placement, enough=goal.reached
    )


@dataclass(frozen=True)
class Goal:
    """The accuracy at which a warm start ends, as a run of MLPerf Training ends at a quality (arXiv 1910.01500).

    Measured on problems that are reinforced later: neither those of the warm start, which it may know by heart, nor
    those that a result is measured on. limit: of a response, in tokens; the longest worked one's.
    """

    stage: Stage
    settings: Until
    steps: int
    respond: Responder
    task: Task
    problems: Sequence[Problem]
    prompts: Sequence[Sequence[int]]
    limit: int
    micro_batch: MicroBatch

    def reached(self, done: int) -> bool:
        """Measure after every `settings.every` steps and after the last, and tell whether it suffices."""
        if done % self.settings.every and done < self.steps:
            return False
        accuracy = self._accuracy()
        self.stage.log_metrics(done, {"warm_start/accuracy": accuracy})
        reached = accuracy >= self.settings.accuracy
        if reached or done == self.steps:
            short = max(0.0, self.settings.accuracy - accuracy)
            self.stage.log_metrics(done, {"warm_start/steps": done, "warm_start/short": short})
            outcome = "reached" if reached else "NOT reached"
            self.stage.log.info(
                "accuracy %.3f after %d steps: %.3f %s", accuracy, done, self.settings.accuracy, outcome
            )
        return reached

    @torch.no_grad()
    def _accuracy(self) -> float:
        """Return the share of the problems that the most likely responses answer rightly."""
        model = self.respond.model
        model.eval()  # activation checkpointing, of the training mode, would switch the cache off
        sequences, texts = self.respond(self.prompts, group_size=1, limit=self.limit, micro_batch=self.micro_batch)
        model.train()
        ended = sequences.ended(self.respond.tokenizer.eos_token_id).tolist()
        _, right = by_rule(self.task, self.problems, texts, ended)
        return sum(right) / len(right)

"""Stage `warm_start`: train the initial policy on worked responses, once per seed for all variants."""

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
            raise ValueError(f"the task {config.task.name} needs a pretrained model; set `model`")
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
    """Train the model on demonstrations of problems drawn with replacement, until `settings` ends the warm start."""
    missing = sum(problem.demonstration is None for problem in problems)
    if missing:
        problem = f"the demonstration is missing in {missing} of {len(problems)} problems"
        raise ValueError(f"warm.jsonl: {problem}; set warm_start.steps to 0")
    generator = torch.Generator().manual_seed(bucket(f"warm start {run_seed(stage.seed)}", 2**62))

    def rows(_: int) -> list[int]:
        return torch.randint(len(problems), (settings.batch_size,), generator=generator).tolist()

    examples = worked_examples(tokenizer, task, problems)
    schedule = Schedule(rows, settings.steps, settings.lr, warmup_cosine)
    if settings.until is None:
        train_on_responses(stage, model, examples, schedule, metric="warm_start/loss", placement=placement)
        stage.log_metrics(settings.steps, {"warm_start/steps": settings.steps, "warm_start/short": 0.0})
        return
    measured = read_problems(stage.inputs["task_data"] / "train.jsonl")[: settings.until.problems]
    goal = Goal(
        stage,
        settings.until,
        settings.steps,
        Responder(model, tokenizer, placement),
        task,
        measured,
        prompts=[prompt_tokens(tokenizer, problem, task.instruction) for problem in measured],
        limit=max(len(response) for response in examples.responses),
        micro_batch=stage.micro_batch(len(measured)),
    )
    train_on_responses(
        stage, model, examples, schedule, metric="warm_start/loss", placement=placement, enough=goal.reached
    )


@dataclass(frozen=True)
class Goal:
    """Accuracy at which a warm start ends, like the target quality of MLPerf Training (arXiv 1910.01500).

    The accuracy is measured on problems of the split train: the policy may have memorised those of the split warm, and
    the splits dev and test are for results. limit: length of the longest worked response, in tokens.
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
        """Measure the accuracy every `settings.every` steps and after the last; return whether it suffices."""
        if done % self.settings.every and done < self.steps:
            return False
        accuracy = self._accuracy()
        self.stage.log_metrics(done, {"warm_start/accuracy": accuracy})
        reached = accuracy >= self.settings.accuracy
        if reached or done == self.steps:
            short = max(0.0, self.settings.accuracy - accuracy)
            self.stage.log_metrics(done, {"warm_start/steps": done, "warm_start/short": short})
            outcome = "reaches" if reached else "misses"
            self.stage.log.info(
                "the accuracy after %d steps is %.3f, which %s warm_start.until.accuracy %.3f",
                done,
                accuracy,
                outcome,
                self.settings.accuracy,
            )
        return reached

    @torch.no_grad()
    def _accuracy(self) -> float:
        """Return the share of problems with a correct most likely response."""
        model = self.respond.model
        model.eval()  # in training mode activation checkpointing would disable the cache
        sequences, texts = self.respond(self.prompts, group_size=1, limit=self.limit, micro_batch=self.micro_batch)
        model.train()
        ended = sequences.ended(self.respond.tokenizer.eos_token_id).tolist()
        _, right = by_rule(self.task, self.problems, texts, ended)
        return sum(right) / len(right)

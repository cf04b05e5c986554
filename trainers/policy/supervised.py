"""Supervised training on given responses, for warm starts and sequence-level distillation."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from trainers.policy.batch import Sequences
from trainers.policy.learner import Learner, per_token_logps
from trainers.policy.models import Placement, learning
from trainers.policy.text import pad, pad_token, prompt_tokens, response_tokens
from trainers.running.stage import Stage
from trainers.running.state import State, run_steps
from trainers.tasks.interface import Problem, Task

Rate = Callable[[int, int], float]  # step, steps -> share of the peak rate
LOG_EVERY = 10  # steps


@dataclass(frozen=True)
class Examples:
    """Prompts and responses as token ids; `pad` is the id of padding. Responses end with the end-of-sequence token."""

    prompts: Sequence[Sequence[int]]
    responses: Sequence[Sequence[int]]
    pad: int

    @classmethod
    def of(
        cls,
        tokenizer: PreTrainedTokenizerBase,
        problems: Sequence[Problem],
        responses: Sequence[str],
        instruction: str | None = None,
    ) -> "Examples":
        """Return the examples of problems, each with its response as text."""
        prompts = [prompt_tokens(tokenizer, problem, instruction) for problem in problems]
        return cls(prompts, [response_tokens(tokenizer, text) for text in responses], pad_token(tokenizer))

    def cut(self, limit: int, *, end_token: bool = True) -> "Examples":
        """Return the examples with responses cut to `limit` tokens, without end tokens if `end_token` is false.

        A student's responses have the same limit, so a critic cannot distinguish the two by length alone.
        """
        ends = None if end_token else -1
        return replace(self, responses=[response[:ends][:limit] for response in self.responses])

    def batch(self, rows: Sequence[int]) -> Sequences:
        """Return the examples with these row numbers, on the CPU."""
        prompts = pad([self.prompts[i] for i in rows], self.pad, left=True)
        return Sequences(*prompts, *pad([self.responses[i] for i in rows], self.pad, left=False))


def worked_examples(tokenizer: PreTrainedTokenizerBase, task: Task, problems: Sequence[Problem]) -> Examples:
    """Return the examples of problems with their demonstrations as responses."""
    return Examples.of(tokenizer, problems, [problem.demonstration or "" for problem in problems], task.instruction)


@dataclass(frozen=True)
class Schedule:
    """Schedule of AdamW's steps: their examples, number and learning rates.

    rows: returns the example numbers of a step; with checkpoints they must depend on the step alone. lr: peak learning
    rate. rate: returns the share of the peak rate at a step. micro_batch: examples per forward and backward pass;
    None: all of a step.
    """

    rows: Callable[[int], Sequence[int]]
    steps: int
    lr: float
    rate: Rate
    micro_batch: int | None = None

    def lr_at(self, step: int) -> float:
        """Return the learning rate of a step."""
        return self.lr * self.rate(step, self.steps)

    def logs(self, step: int) -> bool:
        """Return whether the metrics of a step are logged, which is so for every tenth step and for the last step."""
        return step % LOG_EVERY == 0 or step + 1 == self.steps


def train_on_responses(
    stage: Stage,
    model: PreTrainedModel,
    examples: Examples,
    schedule: Schedule,
    *,
    metric: str,
    placement: Placement,
    checkpoint_every: int | None = None,
    after: Callable[[int], object] | None = None,
    enough: Callable[[int], bool] | None = None,
) -> None:
    """Train a model in place to minimise the cross-entropy per response token, in nats; prompts have no loss.

    metric: name of the loss; `lr` and `grad_norm` are logged under the same prefix. checkpoint_every: steps between
    checkpoints, from which a killed stage resumes; None: no checkpoints. after: called with the number of steps taken.
    enough: called likewise; true ends the training. It must depend on the weights alone, as a resumed stage repeats it.
    """
    prefix = metric.rpartition("/")[0]
    micro_batch = stage.micro_batch(schedule.micro_batch)
    learner = Learner.adamw(model, lr=schedule.lr, micro_batch=micro_batch)
    state = State({"model": learning(model)}, {"optimizer": learner.optimizer})

    def step(number: int) -> None:
        lr = schedule.lr_at(number)
        learner.set_rate(lr)
        losses, norm = fit(learner, examples.batch(schedule.rows(number)).to(placement.device), placement)
        if schedule.logs(number):
            stage.log_metrics(number, {metric: sum(losses), f"{prefix}/lr": lr, f"{prefix}/grad_norm": norm})
        if after is not None:
            after(number + 1)

    first = state.restore(stage) if checkpoint_every else 0
    with learner.training():
        run_steps(
            stage,
            step,
            steps=schedule.steps,
            first=first,
            state=state,
            checkpoint_every=checkpoint_every,
            enough=enough,
        )


def fit(learner: Learner, batch: Sequences, placement: Placement) -> tuple[list[Tensor], Tensor]:
    """Take one step on the cross-entropy of response tokens; return each micro-batch's loss and the gradient norm."""
    tokens = batch.completion_mask.sum()  # of the whole batch, so that the losses of micro-batches add up

    def backward(part: Tensor) -> Tensor:
        with placement.autocast():
            logps, _ = per_token_logps(learner.model, batch.select(part))
        loss = -logps.sum() / tokens
        learner.micro_batch.backward(loss)
        return loss.detach()

    return learner.step(torch.arange(len(batch)), backward)


def warmup_cosine(step: int, steps: int) -> float:
    """Return a step's share of the peak rate: a linear rise over a tenth of the steps, then a cosine to 0."""
    warm = max(1, steps // 10)
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def constant(step: int, steps: int) -> float:
    """Return 1, the share of the peak rate at every step."""
    return 1.0

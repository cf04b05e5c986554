"""Training of a model: log-probabilities of responses, gradients of micro-batches, clipping, optimiser steps."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from trainers.policy.batch import Sequences
from trainers.policy.config import UpdateSettings
from trainers.policy.models import learning
from trainers.policy.plain import packs, states
from trainers.running.micro_batch import MicroBatch
from trainers.running.stage import Stage
from trainers.running.state import State

T = TypeVar("T")


def response_logits(model: nn.Module, sequences: Sequences) -> Tensor:
    """Return the logits (N, T, V) that predict the responses' tokens, in float32 or float64."""
    width = sequences.completion_ids.shape[1]
    logits = model(**sequences.model_inputs(), use_cache=False, logits_to_keep=width + 1).logits
    return logits[:, :-1].to(torch.promote_types(logits.dtype, torch.float32))


def per_token_logps(
    model: Any, sequences: Sequences, temperature: float = 1.0, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities and the entropies at the responses' tokens, both (N, T), 0 at padding.

    entropy_gradient: whether the entropies have a gradient, for which torch keeps a graph over the vocabulary.
    """
    keep, tokens = sequences.completion_mask.bool(), sequences.completion_ids
    packed = packs(model)  # without padding: one row of tokens, in place of (N, T)
    if packed:
        logits, tokens = model.lm_head(states(model.model, sequences, last=False)) / temperature, tokens[keep]
    else:
        logits = response_logits(model, sequences) / temperature
    logps = torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0]
    entropy = token_entropy(logits if entropy_gradient else logits.detach())
    if packed:
        zeros = logits.new_zeros(keep.shape)
        return zeros.masked_scatter(keep, logps), zeros.masked_scatter(keep, entropy)
    return torch.where(keep, logps, 0.0), torch.where(keep, entropy, 0.0)


def token_entropy(logits: Tensor) -> Tensor:
    """Return the exact entropies (...), `-sum_v p_v log p_v`, of logits (..., V), in nats."""
    return torch.logsumexp(logits, -1) - (logits.softmax(-1) * logits).sum(-1)


@torch.no_grad()
def batched_logps(model: nn.Module, sequences: Sequences, temperature: float, micro_batch: MicroBatch) -> Tensor:
    """Return the log-probabilities (N, T) of the responses' tokens without gradient, computed in micro-batches."""
    width = sequences.completion_mask.shape[1]

    def logps(rows: Tensor) -> Tensor:
        chosen, _ = per_token_logps(model, sequences.select(rows), temperature)
        return nn.functional.pad(chosen, (0, width - chosen.shape[1]))

    return torch.cat(micro_batch.run(torch.arange(len(sequences)), logps))


@dataclass(frozen=True)
class Learner:
    """Model with its optimiser, the norm to which gradients are clipped, and the size of micro-batches."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    max_grad_norm: float = 1.0
    micro_batch: MicroBatch = field(default_factory=MicroBatch)
    reduces: str = "micro_batch"  # several ranks add up gradients after each "micro_batch", or once per "minibatch"

    @classmethod
    def adamw(
        cls,
        model: nn.Module,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        max_grad_norm: float = 1.0,
        micro_batch: MicroBatch | None = None,
        reduces: str = "micro_batch",
    ) -> "Learner":
        """Return a learner with a new AdamW over all trainable parameters."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        made = torch.optim.AdamW(parameters, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
        return cls(model, made, max_grad_norm, micro_batch or MicroBatch(), reduces)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Put the model into training mode for the `with` block, as activation checkpointing requires."""
        self.model.train()
        try:
            yield
        finally:
            self.model.eval()

    def set_rate(self, lr: float) -> None:
        """Set the learning rate of the next steps."""
        for group in self.optimizer.param_groups:
            group["lr"] = lr

    def warm_up(self, step: int, steps: int) -> None:
        """Set the learning rate of a step, numbered from 0. The rate rises linearly over the first `steps` steps."""
        self.set_rate(self.optimizer.defaults["lr"] * min(1.0, (step + 1) / max(1, steps)))

    def step(self, rows: Tensor, backward: Callable[[Tensor], T]) -> tuple[list[T], Tensor]:
        """Take one optimiser step on `rows`; return the results of `backward` and the gradient norm before clipping.

        backward: called with the rows of each micro-batch; adds their gradient, divided by the size of the minibatch,
        through `micro_batch.backward`. Without rows all gradients are 0, so that AdamW continues with its momentum.
        """
        ranks, after_each = self.micro_batch.ranks, self.reduces == "micro_batch"
        results = self.micro_batch.run(
            rows,
            backward,
            restart=lambda: self.optimizer.zero_grad(set_to_none=True),
            before_each=lambda is_last: ranks.reduce_gradients(self.model, after_each or is_last),
        )
        if len(rows) == 0:
            for parameter in self._parameters():  # not the model's, which are whole while they are gathered
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)
        norm = ranks.full_tensor(nn.utils.clip_grad_norm_(self._parameters(), self.max_grad_norm))
        self.optimizer.step()
        return results, norm

    def allocate(self) -> None:
        """Allocate gradients and optimiser states before the first step, as the first step would."""
        for parameter in self._parameters():
            parameter.grad, mean, square = (torch.zeros_like(parameter) for _ in range(3))
            step = torch.zeros((), device=parameter.device)
            self.optimizer.state[parameter] = {"step": step, "exp_avg": mean, "exp_avg_sq": square}

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


def learner_of(stage: Stage, model: nn.Module, lr: float, update: UpdateSettings) -> Learner:
    """Return a learner for `model` with learning rate `lr` and the settings `update`."""
    settings = update.model_dump(include={"betas", "weight_decay", "max_grad_norm", "reduces"})
    return Learner.adamw(model, lr=lr, micro_batch=stage.micro_batch(update.micro_batch), **settings)


def state_of(
    learners: Mapping[str, Learner], values: Any, generators: Mapping[str, torch.Generator] | None = None
) -> State:
    """Return the state that checkpoints hold: the learners' models and optimisers, `values` and random generators."""
    return State(
        {name: learning(learner.model) for name, learner in learners.items()},
        {f"{name}_optimizer": learner.optimizer for name, learner in learners.items()},
        generators or {},
        values,
    )


def minibatches(rows: int, update: UpdateSettings, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield the row numbers of each minibatch, in a new random order per epoch, without empty minibatches."""
    for _ in range(update.epochs):
        order = torch.randperm(rows, generator=generator)
        yield from (part for part in order.tensor_split(update.minibatches) if len(part))

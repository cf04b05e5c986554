"""A model that learns: what it says of responses, gradients of micro-batches, clipping, one step of its optimiser."""

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
    """Return the logits (N, T, V) of the response's tokens, float32 or more: position t sees what is before it."""
    width = sequences.completion_ids.shape[1]
    logits = model(**sequences.model_inputs(), use_cache=False, logits_to_keep=width + 1).logits
    return logits[:, :-1].to(torch.promote_types(logits.dtype, torch.float32))


def per_token_logps(
    model: Any, sequences: Sequences, temperature: float = 1.0, *, entropy_gradient: bool = False
) -> tuple[Tensor, Tensor]:
    """Return the log-probabilities of the response's tokens and the entropies there, both (N, T), 0 at padding.

    entropy_gradient: whether the entropies have a gradient, for which a graph over the vocabulary is kept.
    """
    keep = sequences.completion_mask.bool()
    if packs(model):
        logits = model.lm_head(states(model.model, sequences, last=False)) / temperature
        logps = _chosen(logits, sequences.completion_ids[keep])
        entropy = token_entropy(logits if entropy_gradient else logits.detach())
        zeros = logits.new_zeros(keep.shape)
        return zeros.masked_scatter(keep, logps), zeros.masked_scatter(keep, entropy)
    logits = response_logits(model, sequences) / temperature
    logps = _chosen(logits, sequences.completion_ids)
    entropy = token_entropy(logits if entropy_gradient else logits.detach())
    return torch.where(keep, logps, 0.0), torch.where(keep, entropy, 0.0)


def token_entropy(logits: Tensor) -> Tensor:
    """Return the entropy -sum_v p_v log p_v of logits (..., V): (...), nats; exact, not the estimate -log p(y_t)."""
    return torch.logsumexp(logits, -1) - (logits.softmax(-1) * logits).sum(-1)


def _chosen(logits: Tensor, tokens: Tensor) -> Tensor:
    """Return the log-probabilities of tokens (...) under logits (..., V)."""
    return torch.log_softmax(logits, -1).gather(-1, tokens[..., None])[..., 0]


@torch.no_grad()
def batched_logps(
    model: nn.Module, sequences: Sequences, temperature: float, micro_batch: MicroBatch | int | None
) -> Tensor:
    """Return `per_token_logps` (N, T) without gradient, a micro-batch of responses at a time; None: all at once."""
    micro_batch = micro_batch if isinstance(micro_batch, MicroBatch) else MicroBatch(micro_batch)
    width = sequences.completion_mask.shape[1]

    def logps(rows: Tensor) -> Tensor:
        chosen, _ = per_token_logps(model, sequences.select(rows), temperature)
        return nn.functional.pad(chosen, (0, width - chosen.shape[1]))

    return torch.cat(micro_batch.run(torch.arange(len(sequences)), logps))


@dataclass(frozen=True)
class Learner:
    """A model, its AdamW, the norm to which its gradients are clipped, and how many rows go through it at once."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    max_grad_norm: float = 1.0
    micro_batch: MicroBatch = field(default_factory=MicroBatch)
    reduces: str = "micro_batch"  # when several ranks add up their gradients: after each one, or once per "minibatch"

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
        """Return a learner with a new AdamW over all parameters that learn."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        made = torch.optim.AdamW(parameters, lr=lr, betas=betas, weight_decay=weight_decay, fused=True)
        return cls(model, made, max_grad_norm, micro_batch or MicroBatch(), reduces)

    @contextmanager
    def training(self) -> Iterator[None]:
        """Put the model into training mode, where activation checkpointing is active (dropout is off anyway)."""
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
        """Set the learning rate of a step, numbered from 0: linear over the first `steps`, then the settings'."""
        self.set_rate(self.optimizer.defaults["lr"] * min(1.0, (step + 1) / max(1, steps)))

    def step(self, rows: Tensor, backward: Callable[[Tensor], T]) -> tuple[list[T], Tensor]:
        """Take one step on `rows`; return what `backward` returned for each micro-batch, and the norm before clipping.

        `backward(part)` adds the gradient of some rows, divided by the size of the minibatch, by `micro_batch.backward`
        (trainers/running/micro_batch.py).
        Without rows all gradients are 0, not None: AdamW goes on with its momentum.
        """
        ranks, after_each = self.micro_batch.ranks, self.reduces == "micro_batch"
        results = self.micro_batch.run(
            rows,
            backward,
            restart=lambda: self.optimizer.zero_grad(set_to_none=True),
            before_each=lambda is_last: ranks.reduce_gradients(self.model, after_each or is_last),
        )
        if len(rows) == 0:
            for parameter in self._parameters():  # a sharded model's own may be whole at the moment
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)
        norm = ranks.full_tensor(nn.utils.clip_grad_norm_(self._parameters(), self.max_grad_norm))
        self.optimizer.step()
        return results, norm

    def allocate(self) -> None:
        """Allocate gradients and optimiser states before the first step, laid out as that step would."""
        for parameter in self._parameters():
            parameter.grad, mean, square = (torch.zeros_like(parameter) for _ in range(3))
            step = torch.zeros((), device=parameter.device)
            self.optimizer.state[parameter] = {"step": step, "exp_avg": mean, "exp_avg_sq": square}

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]


def learner_of(stage: Stage, model: nn.Module, lr: float, update: UpdateSettings) -> Learner:
    """Return a learner with the settings of a study's updates."""
    settings = update.model_dump(include={"betas", "weight_decay", "max_grad_norm", "reduces"})
    return Learner.adamw(model, lr=lr, micro_batch=stage.micro_batch(update.micro_batch), **settings)


def state_of(
    learners: Mapping[str, Learner], values: Any, generators: Mapping[str, torch.Generator] | None = None
) -> State:
    """Return what a checkpoint holds of a run with these learners."""
    return State(
        {name: learning(learner.model) for name, learner in learners.items()},
        {f"{name}_optimizer": learner.optimizer for name, learner in learners.items()},
        generators or {},
        values,
    )


def minibatches(rows: int, update: UpdateSettings, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield the row numbers of each minibatch, in a new order for every epoch; fewer minibatches where rows are few."""
    for _ in range(update.epochs):
        order = torch.randperm(rows, generator=generator)
        yield from (part for part in order.tensor_split(update.minibatches) if len(part))

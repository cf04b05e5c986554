"""A model that learns: gradients of micro-batches, clipping, one step of its optimiser."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from trainers.micro_batch import MicroBatch

T = TypeVar("T")
adamw = partial(torch.optim.AdamW, fused=True)


@dataclass(frozen=True)
class Learner:
    """A model, its AdamW, the norm to which its gradients are clipped, and how many rows fit into memory."""

    model: nn.Module
    optimizer: torch.optim.Optimizer
    max_grad_norm: float = 1.0
    memory: MicroBatch = field(default_factory=MicroBatch)

    @classmethod
    def adamw(
        cls,
        model: nn.Module,
        *,
        lr: float,
        betas: tuple[float, float] = (0.9, 0.99),
        weight_decay: float = 0.0,
        max_grad_norm: float = 1.0,
        memory: MicroBatch | None = None,
        optimizer: Callable[..., torch.optim.Optimizer] | None = None,
    ) -> "Learner":
        """Return a learner with a new AdamW over all parameters that learn: `optimizer`, or torch's own."""
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        made = (optimizer or adamw)(parameters, lr=lr, betas=betas, weight_decay=weight_decay)
        return cls(model, made, max_grad_norm, memory or MicroBatch())

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

    def step(self, rows: Tensor, backward: Callable[[Tensor], T]) -> tuple[list[T], Tensor]:
        """Take one step on `rows`; return what `backward` returned for each micro-batch, and the norm before clipping.

        `backward(part)` adds the gradient of some rows, divided by what all rows count (trainers/micro_batch.py), by
        `memory.backward`.
        Without rows all gradients are 0, not None: AdamW goes on with its momentum.
        """
        results = self.memory.run(rows, backward, lambda: self.optimizer.zero_grad(set_to_none=True))
        if len(rows) == 0:
            for parameter in self._parameters():  # a sharded model's own may be whole at the moment
                if parameter.requires_grad:
                    parameter.grad = torch.zeros_like(parameter)
        norm = self.memory.ranks.whole(nn.utils.clip_grad_norm_(self._parameters(), self.max_grad_norm))
        self.optimizer.step()
        return results, norm

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.optimizer.param_groups for parameter in group["params"]]

"""What a model that learns holds, on a device and on the machine: weights, gradients, optimiser."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import Any, Protocol

from ablation.contract.footprint import Held, Work
from trainers.footprint import tensors
from trainers.footprint.shapes import Shape
from trainers.footprint.tensors import FLOAT, Precision

_STATES = {"float32": 8, "bfloat16": 4}  # bytes of AdamW's two moments, of each parameter
_8BIT_BLOCK = 256  # columns with one scale (trainers.policy.low_bit_adamw)
_8BIT_LEAST = 4096  # of a matrix; smaller tensors keep float32


class Saving(Protocol):
    """What is read of a study's settings of its memory."""

    @property
    def optimizer_states(self) -> str: ...  # noqa: D102
    @property
    def lora(self) -> Any: ...  # noqa: D102


@dataclass(frozen=True)
class Learnt:
    """A model with its optimiser on each of some devices.

    critic: the body with a head of one output, else the causal model. memory: None: no setting saves any.
    """

    name: str
    shape: Shape
    precision: Precision
    devices: int = 1
    critic: bool = False
    memory: Saving | None = None

    @property
    def sharded(self) -> bool:
        """Tell whether FSDP2 divides the model."""
        return self.devices > 1

    @property
    def parameters(self) -> int:
        """Return the parameters of the model, adapters not among them."""
        return self.shape.body + self._head if self.critic else self.shape.parameters

    @property
    def trained(self) -> int:
        """Return the parameters that learn: all, or the adapters, and a critic's head."""
        if self._lora is None:
            return self.parameters
        return self._adapters + self._head

    @property
    def held(self) -> tuple[Held, ...]:
        """Return what stays on each device."""
        return tuple(Held(f"{self.name}: {name}", ceil(size / self.devices)) for name, size in self._parts.items())

    @property
    def start(self) -> int:
        """Return the bytes on the machine while the first process loads the model, and again while it saves it."""
        return FLOAT * self.parameters

    @property
    def whole_reference(self) -> tuple[Held, ...]:
        """Return what a frozen copy of the model holds, undivided; with adapters it is the model without them."""
        return tensors.frozen("reference", self.parameters, self.precision) if self._lora is None else ()

    @property
    def reference(self) -> tuple[Held, ...]:
        """Return what of it stays on each device."""
        return tuple(Held(part.name, ceil(part.size / self.devices)) for part in self.whole_reference)

    def update(self, name: str, rows: int, tokens: int, *, predicted: int = 0, entropy: str = "dropped") -> Work:
        """Return the work of an update on `rows` rows at once; tokens, predicted: of a row."""

        def parts(n: int) -> dict[str, int]:
            how: dict[str, Any] = {"entropy": entropy, "frozen": self._low, "cached": not self.sharded}
            return tensors.update(self.shape, self.precision, n * tokens, predicted=n * predicted, **how)

        return self._pass(name, rows, parts, learnt=True)

    def forward(self, name: str, rows: int, tokens: int, *, predicted: int = 0, frozen: bool = False) -> Work:
        """Return the work of a pass without gradient, of the model or (frozen) of its frozen copy."""
        low = frozen or self._low

        def parts(n: int) -> dict[str, int]:
            how = {"frozen": low, "cached": not self.sharded}
            return tensors.forward(self.shape, self.precision, n * tokens, predicted=n * predicted, **how)

        return self._pass(name, rows, parts, low=low)

    def drawing(self, name: str, **sizes: int) -> Work:
        """Return the work of sampling; sizes: those of `tensors.drawing`."""
        return tensors.drawing(name, self.shape, self.precision, sharded=self.sharded, frozen=self._low, **sizes)

    def _pass(
        self,
        name: str,
        rows: int,
        parts: Callable[[int], Mapping[str, int]],
        *,
        learnt: bool = False,
        low: bool | None = None,
    ) -> Work:
        low = self._low if low is None else low
        size = tensors.weight_size(self.precision) if low else FLOAT
        gradients = learnt and self._lora is None
        whole = tensors.gathered(self.shape, size=size, learnt=gradients) if self.sharded else 0
        return tensors.work(name, rows, parts, whole)

    @property
    def _lora(self) -> Any:
        return None if self.memory is None else self.memory.lora

    @property
    def _low(self) -> bool:
        """Tell whether the weights are frozen, and so in the precision of the pass: those beside adapters."""
        return self._lora is not None

    @property
    def _head(self) -> int:
        return self.shape.hidden + 1 if self.critic else 0

    @property
    def _adapters(self) -> int:
        """Return the parameters of LoRA's two matrices beside each matrix of the blocks that it is for."""
        lora = self._lora
        chosen = [
            rows + columns
            for name, rows, columns in self.shape.matrices
            if lora.targets is None or name in lora.targets
        ]
        return self.shape.layers * lora.rank * sum(chosen)

    @property
    def _parts(self) -> dict[str, int]:
        own = {"gradients": FLOAT * self.trained, "optimiser": self._moments}
        if self._lora is None:
            return {"weights": FLOAT * self.parameters} | own
        frozen = tensors.weight_size(self.precision) * (self.parameters - self._head)
        return {"weights": frozen, "adapters": FLOAT * self.trained} | own

    @property
    def _moments(self) -> int:
        """Return the bytes of the optimiser's states."""
        states = "float32" if self.memory is None else self.memory.optimizer_states
        if states != "8bit":
            return _STATES[states] * self.trained
        small = self.trained - sum(rows * columns for rows, columns in self._large)
        packed = sum(2 * rows * columns + 8 * rows * ceil(columns / _8BIT_BLOCK) for rows, columns in self._large)
        return packed + _STATES["float32"] * small

    @property
    def _large(self) -> Sequence[tuple[int, int]]:
        """Return the sides of every trained matrix whose moments are of 8 bits."""
        if self._lora is None:
            blocks = [(rows, columns) for _, rows, columns in self.shape.matrices] * self.shape.layers
            outer = [(self.shape.vocab, self.shape.hidden)]
            outer *= 1 if self.critic or self.shape.tied else 2
            if self.shape.positions and self.shape.family == "gpt2":
                outer.append((self.shape.positions, self.shape.hidden))
        else:
            rank, targets, outer = self._lora.rank, self._lora.targets, []
            blocks = [
                pair
                for name, rows, columns in self.shape.matrices
                if targets is None or name in targets
                for pair in ((rank, columns), (rows, rank))
            ] * self.shape.layers
        return [(rows, columns) for rows, columns in [*blocks, *outer] if rows * columns >= _8BIT_LEAST]


def host_of(learnt: Sequence[Learnt], *, reference: bool = False) -> dict[str, int]:
    """Return the machine's memory of a training: the models at the moment that needs most.

    Only the first process reads a model, whole, and saves it so; several devices get their parts of it and, for the
    first, of a reference from there. A checkpoint is written tensor by tensor, and counts for nothing.
    """
    copied = sum(part.size for part in learnt[0].whole_reference) if reference and learnt[0].sharded else 0
    largest = max(learnt[0].start + copied, *(each.start for each in learnt), 0)
    return {"models while they are loaded or saved": largest}

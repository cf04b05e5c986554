"""The MALMEN editor around a frozen model: predict shifts, apply them for a while, learn from what they did."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from trainers.debias.hypernetwork import Hypernetwork
from trainers.debias.prepared import Prepared
from trainers.debias.ridge import Ridge
from trainers.debias.suffix import SuffixModel

T = TypeVar("T")


@dataclass
class ModuleEdit:
    """One module's part of an edit: what went in, the solved system, the shift [d_in, d_out]."""

    keys: Tensor
    value_grads: Tensor
    ridge: Ridge
    shift: Tensor


def micro_batches(indices: Sequence[T], size: int) -> list[Sequence[T]]:
    """Cut an edit batch into pieces of at most `size` items, each with a loss of its own."""
    return [indices[begin : begin + size] for begin in range(0, len(indices), size)]


def predict(
    hypernetwork: Hypernetwork,
    prepared: Prepared,
    batches: Sequence[Sequence[int]],
    *,
    chunk: int,
    update_normaliser: bool,
    only: Collection[str] | None = None,
) -> dict[str, ModuleEdit]:
    """Predict the shifts that edit a batch of items, without a graph.

    Args:
        hypernetwork: the networks of the edited modules.
        prepared: source of keys and value gradients.
        batches: the edit batch as micro-batches of item numbers.
        chunk: rows per pass through the hypernetwork.
        update_normaliser: true on training batches only; otherwise the normaliser stays as it is.
        only: the modules whose shifts are asked for; None: all. The normaliser sees all modules in either case.

    Returns:
        per module name its part of the edit.
    """
    edits = {}
    names = [module.name for module in prepared.modules]
    inputs = {name: [prepared.edit_inputs(name, batch) for batch in batches] for name in names}
    if update_normaliser:
        for number in range(len(batches)):
            for name in names:
                hypernetwork.update_normaliser(name, *inputs[name][number])
    same = prepared.same_keys([index for batch in batches for index in batch])
    for name in names if only is None else only:
        keys, value_grads = (torch.cat(parts) for parts in zip(*inputs[name], strict=True))
        ridge = Ridge(keys, hypernetwork.log_lambda(name), same=same)
        differences = hypernetwork.value_differences(name, keys, value_grads, chunk)
        edits[name] = ModuleEdit(keys, value_grads, ridge, ridge.shift(differences))
    return edits


@contextmanager
def applied(
    model: SuffixModel, shifts: Mapping[str, Tensor], *, gradients: bool = False
) -> Iterator[dict[str, nn.Parameter]]:
    """Run the block with the shifts added to the edited weights.

    The original parameters are put aside untouched and put back whatever happens, so the model is afterwards the same
    to the last bit.

    Args:
        model: the partial model.
        shifts: per module name [d_in, d_out].
        gradients: whether the edited weights collect `.grad`.

    Yields:
        the edited weights by module name, in their module's own layout.
    """
    modules = {name: model.module(name) for name in shifts}
    originals = {name: module.get_parameter("weight") for name, module in modules.items()}
    edited = {}
    try:
        for name, module in modules.items():
            shift = shifts[name].T if isinstance(module, nn.Linear) else shifts[name]
            weight = originals[name].detach() + shift.to(originals[name].dtype)
            edited[name] = module.weight = nn.Parameter(weight, requires_grad=gradients)
        yield edited
    finally:
        for name, module in modules.items():
            module.weight = originals[name]


def shift_gradients(model: SuffixModel, edited: Mapping[str, nn.Parameter]) -> dict[str, Tensor]:
    """Gradients [d_in, d_out] of the loss w.r.t. the shifts, from the edited weights after a backward pass, if any."""
    gradients = {}
    for name, weight in edited.items():
        gradient = torch.zeros_like(weight) if weight.grad is None else weight.grad  # of a rank without items
        gradients[name] = (gradient.T if isinstance(model.module(name), nn.Linear) else gradient).float()
    return gradients


def accumulate(
    hypernetwork: Hypernetwork,
    edits: Mapping[str, ModuleEdit],
    gradients: Mapping[str, Tensor],
    *,
    chunk: int,
    share: float,
) -> None:
    """Add to the hypernetwork's `.grad` what a loss says through the closed form (arXiv 2311.04661).

    Args:
        hypernetwork: the networks that predicted `edits`.
        edits: from `predict`.
        gradients: per module, gradient of the loss w.r.t. the shift [d_in, d_out].
        chunk: rows per pass through the hypernetwork.
        share: factor of this batch, 1 / (batches per optimiser step).
    """
    for name, edit in edits.items():
        inputs = (edit.keys, edit.value_grads)
        hypernetwork.backward(name, inputs, edit.ridge.backward(gradients[name] * share), chunk)

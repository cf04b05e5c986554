"""The MALMEN editor around a frozen model: predict shifts, apply them for a while, learn from what they did.

The ridge regression that turns value differences into a shift of the weights, and its derivative:

    shift = (U^T U + lambda I)^-1 U^T D                      U [N, d_in], D [N, d_out]   (arXiv 2311.04661)
          = U^T (U U^T + lambda I)^-1 D                      the same (push-through identity), an N x N system

With G = d loss / d shift, M = (U^T U + lambda I)^-1 G:  d loss / d D = U M  and  d loss / d lambda = -<M, shift>
(arXiv 2311.04661). In the N x N form, with K = U U^T + lambda I:  U M = K^-1 U G  and
<M, shift> = <K^-1 U G, K^-1 D>. The smaller system is taken. Factorised once, in float64: keys of real models make
U^T U too ill-conditioned for float32.

Tokens with the same prefix have the same key: an item's two sentences agree up to the word that differs. m rows with
one key u and differences d_1 to d_m are, in both products, one row sqrt(m) u with (d_1 + ... + d_m) / sqrt(m). So the
system has one row for each distinct key.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from trainers.debias.hypernetwork import Hypernetwork
from trainers.debias.prepared import Prepared
from trainers.debias.suffix import SuffixModel

T = TypeVar("T")


class Ridge:
    """One factorised system; serves the shift and then its derivative."""

    def __init__(self, keys: Tensor, log_lambda: Tensor, *, same: Tensor | None = None) -> None:
        """Factorise the smaller system of keys [N, d_in], with the exponential of the scalar log_lambda as penalty.

        same: [N], rows with the same number have the same key; the numbers are 0, 1, ..., each there at least once.
        """
        self._same = torch.arange(len(keys), device=keys.device) if same is None else same
        count = torch.bincount(self._same)
        rows = torch.arange(len(keys), device=keys.device)
        first = torch.full_like(count, len(keys)).scatter_reduce(0, self._same, rows, "amin")
        self._root = count.double().sqrt().unsqueeze(-1)
        self.keys = keys.detach()[first].double() * self._root
        self.penalty = log_lambda.detach().double().exp()
        n, d_in = self.keys.shape
        self.dual = n < d_in  # the N x N form
        gram = self.keys @ self.keys.T if self.dual else self.keys.T @ self.keys
        gram.diagonal().add_(self.penalty)
        self.factor = torch.linalg.cholesky(gram)
        self._solution: Tensor | None = None

    def shift(self, differences: Tensor) -> Tensor:
        """Return the shift [d_in, d_out] for value differences [N, d_out], in their dtype."""
        summed = differences.new_zeros(len(self.keys), differences.shape[1], dtype=torch.float64)
        summed = summed.index_add(0, self._same, differences.double()) / self._root
        if self.dual:
            self._solution = torch.cholesky_solve(summed, self.factor)
            return (self.keys.T @ self._solution).to(differences.dtype)
        self._solution = torch.cholesky_solve(self.keys.T @ summed, self.factor)
        return self._solution.to(differences.dtype)

    def backward(self, shift_grad: Tensor) -> tuple[Tensor, Tensor]:
        """Backpropagate a loss's gradient w.r.t. the last `shift`, [d_in, d_out].

        Returns its gradients w.r.t. the value differences [N, d_out] and w.r.t. log lambda (scalar).
        """
        assert self._solution is not None  # `shift` comes first
        gradient = shift_grad.double()
        if self.dual:
            solved = torch.cholesky_solve(self.keys @ gradient, self.factor)
            summed_grad = solved
        else:
            solved = torch.cholesky_solve(gradient, self.factor)
            summed_grad = self.keys @ solved
        differences_grad = (summed_grad / self._root)[self._same]
        log_lambda_grad = -self.penalty * (solved * self._solution).sum()
        return differences_grad.to(shift_grad.dtype), log_lambda_grad.to(shift_grad.dtype)


@dataclass
class ModuleEdit:
    """One module's part of an edit: what went in, the solved system, the shift [d_in, d_out]."""

    keys: Tensor
    value_grads: Tensor
    ridge: Ridge
    shift: Tensor


def edit_batches(indices: Sequence[int], n_edits: int, order: str | None = None) -> list[list[int]]:
    """Cut items into edit batches (the last may be smaller), shuffled with `order` as the seed, or as they are."""
    indices = list(indices)
    if order is not None:
        random.Random(order).shuffle(indices)
    return [indices[begin : begin + n_edits] for begin in range(0, len(indices), n_edits)]


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
    """Predict the shifts that edit a batch of items, given as micro-batches of their numbers, without a graph.

    Returns each module's part of the edit by its name. chunk: rows per pass through the hypernetwork.
    update_normaliser: true on training batches only. only: the modules whose shifts are asked for, None: all; a
    normaliser that is updated sees all modules in either case.
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
    """Run the block with the shifts [d_in, d_out] added to the edited weights.

    The original parameters are put aside untouched and put back whatever happens, so the model is afterwards the same
    to the last bit. gradients: whether the edited weights collect `.grad`.

    Yields the edited weights by module name, in their module's own layout.
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

    gradients: of the loss w.r.t. the shift [d_in, d_out] of each module. chunk: rows per pass through the hypernetwork.
    share: factor of this batch, 1 / (batches per optimiser step).
    """
    for name, edit in edits.items():
        inputs = (edit.keys, edit.value_grads)
        hypernetwork.backward(name, inputs, edit.ridge.backward(gradients[name] * share), chunk)

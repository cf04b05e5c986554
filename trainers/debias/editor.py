"""The MALMEN editor (arXiv 2311.04661), which shifts the weights of a frozen model and learns these shifts.

A hypernetwork maps keys (a module's inputs) and value gradients (the loss's gradients with respect to its outputs) to
value differences. Modules of one shape share a network, in which each module has its own scales, shifts and step size.

The ridge regression that turns value differences into a shift of the weights, and its derivative:

    shift = (U^T U + lambda I)^-1 U^T D                      U [N, d_in], D [N, d_out]
          = U^T (U U^T + lambda I)^-1 D                      the same (push-through identity), an N x N system

With G = d loss / d shift, M = (U^T U + lambda I)^-1 G:  d loss / d D = U M  and  d loss / d lambda = -<M, shift>.
In the N x N form, with K = U U^T + lambda I:  U M = K^-1 U G  and
<M, shift> = <K^-1 U G, K^-1 D>. The smaller system is solved. It is factorised once, in float64, because keys of real
models make U^T U too ill-conditioned for float32.

Tokens with the same prefix have the same key, as do the tokens of an item's two sentences up to the word that differs.
In both products, m rows with one key u and differences d_1 to d_m equal the single row sqrt(m) u with the difference
(d_1 + ... + d_m) / sqrt(m), so the system needs only one row for each distinct key.
"""

import random
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TypeVar

import torch
from torch import Tensor, nn

from trainers.debias.model import SuffixModel
from trainers.debias.prepared import Prepared
from trainers.models.causal import EditedModule

T = TypeVar("T")
WEIGHTS_FILE = "hypernetwork.safetensors"  # of the best epoch, as the stage `train` leaves it


class RunningMeanStd(nn.Module):
    """Normalisation by the mean and deviation of all rows given to `update`, as in MALMEN's code."""

    n: Tensor
    mean: Tensor
    var: Tensor
    std: Tensor

    def __init__(self, size: int) -> None:
        super().__init__()
        self.register_buffer("n", torch.zeros(1))
        self.register_buffer("mean", torch.zeros(size))
        self.register_buffer("var", torch.zeros(size))  # sum of squared deviations, not yet divided by n
        self.register_buffer("std", torch.zeros(size))

    @torch.no_grad()
    def update(self, x: Tensor) -> None:
        """Update the statistics with the rows of x [N, size]; call this only in training."""
        n = self.n + len(x)
        delta = x.mean(0) - self.mean
        variance = x.var(0) if len(x) > 1 else torch.zeros_like(self.var)
        self.mean += len(x) * delta / n
        self.var += len(x) * variance + self.n * len(x) * delta.square() / n
        self.std.copy_((self.var / (n - 1 + torch.finfo(x.dtype).eps)).sqrt())
        self.n.copy_(n)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the rows of x [N, size]."""
        return (x - self.mean) / (self.std + torch.finfo(x.dtype).eps)


class Block(nn.Module):
    """Residual low-rank block `y + scale * max(y @ A @ B + bias, 0) + shift`. Each module has its own scale and shift.

    It uses `clamp`, whose derivative at 0 is 1. B and bias are initially 0, where the derivative of `relu` is 0, so
    with `relu` A, B, bias and scale would never change.
    """

    def __init__(self, size: int, rank: int, n_modules: int, generator: torch.Generator) -> None:
        super().__init__()
        self.A = nn.Parameter(torch.randn(size, rank, generator=generator))
        self.B = nn.Parameter(torch.zeros(rank, size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.scale = nn.Parameter(torch.ones(n_modules, size))
        self.shift = nn.Parameter(torch.zeros(n_modules, size))

    def forward(self, y: Tensor, index: int) -> Tensor:
        """Map y [N, size] to [N, size]. index: the module's number among modules of its shape."""
        x = (y @ self.A @ self.B + self.bias).clamp(min=0)
        return y + self.scale[index] * x + self.shift[index]


class ShapeNetwork(nn.Module):
    """Part of a hypernetwork, used for all modules of one shape (d_in, d_out)."""

    def __init__(
        self, d_in: int, d_out: int, n_modules: int, *, rank: int, n_blocks: int, lr: float, generator: torch.Generator
    ) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_out
        self.normaliser = RunningMeanStd(d_in + d_out)
        self.blocks = nn.ModuleList(Block(d_in + d_out, rank, n_modules, generator) for _ in range(n_blocks))
        self.lr = nn.Parameter(torch.full((n_modules,), lr))
        self.log_lambda = nn.Parameter(torch.zeros(n_modules))

    def forward(self, keys: Tensor, value_grads: Tensor, index: int) -> Tensor:
        """Return the value differences [N, d_out], `-lr * (u . u~) * v~` with the network's outputs u~ and v~.

        keys: u, [N, d_in]. value_grads: [N, d_out]. index: the module's number among modules of its shape.
        """
        y = self.normaliser(torch.cat((keys, value_grads), -1))
        for block in self.blocks:
            y = block(y, index)
        pseudo_keys, pseudo_grads = y.split([self.d_in, self.d_out], -1)
        return -self.lr[index] * (keys * pseudo_keys).sum(-1, keepdim=True) * pseudo_grads


class Hypernetwork(nn.Module):
    """All networks of an editor; its methods take the name of the edited module."""

    def __init__(self, modules: Sequence[EditedModule], *, rank: int, n_blocks: int, lr: float, seed: int) -> None:
        """Draw the weights from `seed` alone; `lr` is the initial value of the learned step size of every module."""
        super().__init__()
        generator = torch.Generator().manual_seed(seed)
        shapes: dict[tuple[int, int], int] = {}
        self.index: dict[str, int] = {}
        self.key: dict[str, str] = {}
        for module in modules:
            self.index[module.name] = shapes.get(module.shape, 0)
            self.key[module.name] = f"{module.d_in}x{module.d_out}"
            shapes[module.shape] = self.index[module.name] + 1
        self.networks = nn.ModuleDict(
            {
                f"{d_in}x{d_out}": ShapeNetwork(
                    d_in, d_out, count, rank=rank, n_blocks=n_blocks, lr=lr, generator=generator
                )
                for (d_in, d_out), count in shapes.items()
            }
        )

    def network(self, name: str) -> ShapeNetwork:
        """Return the network that serves a module."""
        network = self.networks[self.key[name]]
        assert isinstance(network, ShapeNetwork)
        return network

    def update_normaliser(self, name: str, keys: Tensor, value_grads: Tensor) -> None:
        """Update the statistics of the module's shape with keys [N, d_in] and value gradients [N, d_out]."""
        self.network(name).normaliser.update(torch.cat((keys, value_grads), -1))

    @torch.no_grad()
    def value_differences(self, name: str, keys: Tensor, value_grads: Tensor, chunk: int) -> Tensor:
        """Return the value differences [N, d_out] of a module, computed `chunk` rows at a time without gradient."""
        network, index = self.network(name), self.index[name]
        pairs = zip(keys.split(chunk), value_grads.split(chunk), strict=True)
        return torch.cat([network(u, v, index) for u, v in pairs])

    def log_lambda(self, name: str) -> Tensor:
        """Return the logarithm of a module's ridge penalty, a learned scalar with gradient."""
        return self.network(name).log_lambda[self.index[name]]

    def backward(
        self,
        name: str,
        inputs: tuple[Tensor, Tensor],
        gradients: tuple[Tensor, Tensor],
        chunk: int,
    ) -> None:
        """Add a module's gradients to `.grad` of the parameters, `chunk` rows at a time (MALMEN's second phase).

        inputs: keys [N, d_in] and value gradients [N, d_out], as given to `value_differences`. gradients: those of the
        loss with respect to the value differences [N, d_out] and to the logarithm of the penalty (scalar).
        """
        network, index = self.network(name), self.index[name]
        differences_grad, log_lambda_grad = gradients
        (log_lambda_grad.detach() * self.log_lambda(name)).backward()
        pieces = zip(*(rows.split(chunk) for rows in (*inputs, differences_grad)), strict=True)
        for keys, value_grads, gradient in pieces:
            network(keys, value_grads, index).backward(gradient)


class Ridge:
    """Factorised ridge regression, which computes the shift of a module's weights and backpropagates through it."""

    def __init__(self, keys: Tensor, log_lambda: Tensor, *, same: Tensor | None = None) -> None:
        """Factorise the system of keys [N, d_in] with the penalty exp(log_lambda), a scalar.

        same: [N], a number for each row, equal for rows with the same key; the numbers are 0, 1, ... without a gap.
        None: no two keys are equal.
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
        """Return the loss's gradients with respect to the value differences [N, d_out] and log_lambda (scalar).

        shift_grad: gradient [d_in, d_out] of the loss with respect to the shift that `shift` returned last.
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
    """One module's part of an edit: keys and value gradients, the solved system, and the shift [d_in, d_out]."""

    keys: Tensor
    value_grads: Tensor
    ridge: Ridge
    shift: Tensor


def edit_batches(indices: Sequence[int], n_edits: int, order: str | None = None) -> list[list[int]]:
    """Return the items in batches of `n_edits`; the last may be smaller. order: seed of a shuffle; None: no shuffle."""
    indices = list(indices)
    if order is not None:
        random.Random(order).shuffle(indices)
    return [indices[begin : begin + n_edits] for begin in range(0, len(indices), n_edits)]


def micro_batches(indices: Sequence[T], size: int) -> list[Sequence[T]]:
    """Return a batch divided into consecutive micro-batches of at most `size` items."""
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
    """Return {module name: edit} for an edit batch, predicted without gradient.

    batches: the micro-batches of the edit batch, as numbers of items. chunk: rows per pass through the hypernetwork.
    update_normaliser: true only in training; the normalisers are then updated for all modules. only: the modules to
    predict; None: all.
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
        keys, value_grads = (torch.cat(rows) for rows in zip(*inputs[name], strict=True))
        ridge = Ridge(keys, hypernetwork.log_lambda(name), same=same)
        differences = hypernetwork.value_differences(name, keys, value_grads, chunk)
        edits[name] = ModuleEdit(keys, value_grads, ridge, ridge.shift(differences))
    return edits


@contextmanager
def applied(
    model: SuffixModel, shifts: Mapping[str, Tensor], *, gradients: bool = False
) -> Iterator[dict[str, nn.Parameter]]:
    """Add the shifts [d_in, d_out] to the edited weights in a `with` block, and restore the original ones afterwards.

    gradients: whether the edited weights collect `.grad`. Yields {module name: edited weight in the module's layout}.
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
    """Return {module name: gradient [d_in, d_out] of the loss with respect to the shift}. edited: from `applied`."""
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
    """Backpropagate a loss from the shifts to the hypernetwork's `.grad`, through the ridge regression.

    gradients: those of the loss with respect to each module's shift [d_in, d_out]. chunk: rows per pass through the
    hypernetwork. share: factor of the gradients, 1 / (edit batches per optimizer step).
    """
    for name, edit in edits.items():
        inputs = (edit.keys, edit.value_grads)
        hypernetwork.backward(name, inputs, edit.ridge.backward(gradients[name] * share), chunk)

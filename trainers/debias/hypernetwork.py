"""MALMEN's hypernetwork (arXiv 2311.04661): from keys and value gradients to pseudo keys and gradients.

One network per module *shape*, shared by the modules of that shape, which differ in embeddings only.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from trainers.models.causal import EditedModule

WEIGHTS_FILE = "hypernetwork.safetensors"  # of the best epoch, as the stage `train` leaves it


class RunningMeanStd(nn.Module):
    """Normaliser over the rows seen in training (as in MALMEN's public code); nothing but `update` changes it."""

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
        """Take in the rows of x [N, size]; call it on training batches only."""
        n = self.n + len(x)
        delta = x.mean(0) - self.mean
        spread = x.var(0) if len(x) > 1 else torch.zeros_like(self.var)
        self.mean += len(x) * delta / n
        self.var += len(x) * spread + self.n * len(x) * delta.square() / n
        self.std.copy_((self.var / (n - 1 + torch.finfo(x.dtype).eps)).sqrt())
        self.n.copy_(n)

    def forward(self, x: Tensor) -> Tensor:
        """Normalise the rows of x [N, size]."""
        return (x - self.mean) / (self.std + torch.finfo(x.dtype).eps)


class Block(nn.Module):
    """Residual low-rank block y + scale * max(y A B + bias, 0) + shift, with scale and shift of the module.

    B and bias begin at 0, where `clamp` has derivative 1 and `relu` 0: with relu A, B, bias and scale would never move.
    """

    def __init__(self, size: int, rank: int, n_modules: int, generator: torch.Generator) -> None:
        super().__init__()
        self.A = nn.Parameter(torch.randn(size, rank, generator=generator))
        self.B = nn.Parameter(torch.zeros(rank, size))
        self.bias = nn.Parameter(torch.zeros(size))
        self.scale = nn.Parameter(torch.ones(n_modules, size))
        self.shift = nn.Parameter(torch.zeros(n_modules, size))

    def forward(self, y: Tensor, index: int) -> Tensor:
        """Map y [N, size] to [N, size] for the module of this number."""
        x = (y @ self.A @ self.B + self.bias).clamp(min=0)
        return y + self.scale[index] * x + self.shift[index]


class ShapeNetwork(nn.Module):
    """The network of one module shape (d_in, d_out)."""

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
        """Value differences d = -lr * (u . u~) * v~, [N, d_out] (arXiv 2311.04661).

        keys: [N, d_in]. value_grads: [N, d_out]. index: the module's number among those of its shape.
        """
        y = self.normaliser(torch.cat((keys, value_grads), -1))
        for block in self.blocks:
            y = block(y, index)
        pseudo_keys, pseudo_grads = y.split([self.d_in, self.d_out], -1)
        return -self.lr[index] * (keys * pseudo_keys).sum(-1, keepdim=True) * pseudo_grads


class Hypernetwork(nn.Module):
    """All networks of an editor, addressed by the name of the edited module."""

    def __init__(self, modules: Sequence[EditedModule], *, rank: int, n_blocks: int, lr: float, seed: int) -> None:
        """Draw the weights from `seed` alone; `lr` is the initial learned step size of every module."""
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
        """Take in the keys [N, d_in] and value gradients [N, d_out] of one module; in training only."""
        self.network(name).normaliser.update(torch.cat((keys, value_grads), -1))

    @torch.no_grad()
    def value_differences(self, name: str, keys: Tensor, value_grads: Tensor, chunk: int) -> Tensor:
        """Value differences [N, d_out] of one module, `chunk` rows at a time, without a graph."""
        network, index = self.network(name), self.index[name]
        pairs = zip(keys.split(chunk), value_grads.split(chunk), strict=True)
        return torch.cat([network(u, v, index) for u, v in pairs])

    def log_lambda(self, name: str) -> Tensor:
        """Learned log of the ridge penalty of one module: a scalar in the graph."""
        return self.network(name).log_lambda[self.index[name]]

    def backward(
        self,
        name: str,
        inputs: tuple[Tensor, Tensor],
        gradients: tuple[Tensor, Tensor],
        chunk: int,
    ) -> None:
        """Add the gradients of one module's part to `.grad`: MALMEN's second phase, `chunk` rows at a time.

        inputs: keys [N, d_in] and value gradients [N, d_out], as given to `value_differences`. gradients: of the loss
        w.r.t. the value differences [N, d_out] and w.r.t. the log penalty (scalar).
        """
        network, index = self.network(name), self.index[name]
        differences_grad, log_lambda_grad = gradients
        (log_lambda_grad.detach() * self.log_lambda(name)).backward()
        pieces = zip(*(rows.split(chunk) for rows in (*inputs, differences_grad)), strict=True)
        for keys, value_grads, gradient in pieces:
            network(keys, value_grads, index).backward(gradient)

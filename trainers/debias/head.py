"""Log-probabilities of labels under a large output matrix, without keeping the logits.

Scores and the KL need two numbers of each position's distribution: the label's logit and the log partition function
A(h) = logsumexp(W h + b). The gradient of A is the expected output row m(h) = E_p[W_v], so one pass over the vocabulary
gives value and gradient, and memory is one chunk of logits. And since logits are linear in h,

    KL(p_ref || p) = A(h) - A(h_ref) - m(h_ref) . (h - h_ref)

(the Bregman divergence of A), so the reference distribution of every position is kept as one vector and one number
instead of a vocabulary of log-probabilities.
"""

import math
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

CHUNK = 256  # positions whose logits are in memory at once


@dataclass
class OutputMatrix:
    """logits = weight @ hidden + bias; weight [V, d], bias [V] or None."""

    weight: Tensor
    bias: Tensor | None
    # By dtype, reused: fresh memory of this size costs page faults, a fifth of the product's time.
    _scratch: dict[torch.dtype, Tensor] = field(default_factory=dict)

    def _memory(self, rows: int, dtype: torch.dtype) -> Tensor:
        if dtype not in self._scratch:
            self._scratch[dtype] = torch.empty(CHUNK, len(self.weight), dtype=dtype, device=self.weight.device)
        return self._scratch[dtype][:rows]

    def logits(self, hidden: Tensor) -> Tensor:
        """Logits [R, V] of at most CHUNK rows, float32 at least, in memory that the next call overwrites; no graph."""
        dtype = self.weight.dtype
        out = torch.mm(hidden, self.weight.T, out=self._memory(len(hidden), dtype))
        if self.bias is not None:
            out.add_(self.bias)
        return self._memory(len(hidden), torch.float32).copy_(out) if dtype == torch.bfloat16 else out

    def expected_rows(self, weights: Tensor) -> Tensor:
        """Return weights [R, V] @ weight in its dtype; may overwrite what `logits` keeps in that dtype."""
        dtype = self.weight.dtype
        low = weights if weights.dtype == dtype else self._memory(len(weights), dtype).copy_(weights)
        return low @ self.weight


def log_partition(hidden: Tensor, matrix: OutputMatrix, *, mean: bool) -> tuple[Tensor, Tensor | None]:
    """Return A(h) [R] of hidden [R, d] and, if `mean`, m(h) [R, d]: float32 at least, in chunks and without a graph."""
    partitions, means = [], []
    with torch.no_grad():
        for chunk in hidden.tensor_split(math.ceil(len(hidden) / CHUNK)):
            logits = matrix.logits(chunk)
            top = logits.amax(-1, keepdim=True)
            weights = logits.sub_(top).exp_()
            total = weights.sum(-1, keepdim=True)
            partitions.append((top + total.log()).squeeze(-1))
            if mean:
                means.append(matrix.expected_rows(weights).to(total.dtype) / total)
    return torch.cat(partitions), torch.cat(means) if mean else None


class _LogPartition(torch.autograd.Function):
    """A(h) for rows of which several share one distribution: `rows` are computed, `inverse` says which one is whose."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, rows: Tensor, inverse: Tensor, matrix: Any) -> Tensor:
        partition, mean = log_partition(hidden[rows], matrix, mean=ctx.needs_input_grad[0])
        ctx.save_for_backward(mean, inverse)
        ctx.dtype = hidden.dtype
        return partition[inverse]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]  # torch: *any
        mean, inverse = ctx.saved_tensors
        return (gradient.unsqueeze(-1) * mean[inverse]).to(ctx.dtype), None, None, None


def label_log_probs(
    hidden: Tensor, labels: Tensor, rows: Tensor, inverse: Tensor, matrix: OutputMatrix
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each label and the log partition function, [N] each; differentiable in `hidden`.

    hidden: [N, d], last hidden state at the predicting positions. labels: [N], the word that each predicts. rows: [R],
    positions that stand for all those with the same prefix of tokens (their hidden states are equal). inverse: [N],
    which of the R each position equals.
    """
    partition = _LogPartition.apply(hidden, rows, inverse, matrix)
    logits = (hidden * matrix.weight[labels]).sum(-1).to(partition.dtype)
    if matrix.bias is not None:
        logits = logits + matrix.bias[labels]
    return logits - partition, partition


def reference(hidden: Tensor, rows: Tensor, inverse: Tensor, matrix: OutputMatrix) -> tuple[Tensor, Tensor]:
    """Return what `token_kl` needs of the reference: m(h_ref) [N, d] and the offset m(h_ref) . h_ref - A(h_ref) [N].

    hidden: [N, d], last hidden state of the unedited model. rows, inverse: as in `label_log_probs`.
    """
    partition, mean = log_partition(hidden[rows], matrix, mean=True)
    assert mean is not None  # asked for
    offset = (mean.double() * hidden[rows].double()).sum(-1) - partition.double()
    return mean[inverse], offset.to(partition.dtype)[inverse]


def token_kl(hidden: Tensor, partition: Tensor, reference_mean: Tensor, reference_offset: Tensor) -> Tensor:
    """Return KL(reference || current) [N] of the next-token distributions, in nats.

    Differentiable in `hidden` and `partition`. Rounding can make a vanishing KL negative by about 1e-6. hidden [N, d],
    partition [N]: of the current model. reference_mean [N, d], reference_offset [N]: from `reference`.
    """
    return reference_offset + partition - (reference_mean * hidden).sum(-1)

"""The ridge regression that turns value differences into a shift of the weights, and its derivative.

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

import torch
from torch import Tensor


class Ridge:
    """One factorised system; serves the shift and then its derivative."""

    def __init__(
        self, keys: Tensor, log_lambda: Tensor, *, same: Tensor | None = None, dual: bool | None = None
    ) -> None:
        """Factorise.

        Args:
            keys: [N, d_in].
            log_lambda: scalar; the penalty is its exponential.
            same: [N], rows with the same number have the same key; the numbers are 0, 1, ..., each there at least once.
            dual: the N x N form if true, the d_in x d_in form if false; by default the smaller one.
        """
        self._same = torch.arange(len(keys), device=keys.device) if same is None else same
        count = torch.bincount(self._same)
        rows = torch.arange(len(keys), device=keys.device)
        first = torch.full_like(count, len(keys)).scatter_reduce(0, self._same, rows, "amin")
        self._root = count.double().sqrt().unsqueeze(-1)
        self.keys = keys.detach()[first].double() * self._root
        self.penalty = log_lambda.detach().double().exp()
        n, d_in = self.keys.shape
        self.dual = n < d_in if dual is None else dual
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
        """Derivative of a loss through the last `shift`.

        Args:
            shift_grad: [d_in, d_out], gradient of the loss w.r.t. the shift.

        Returns:
            its gradients w.r.t. the value differences [N, d_out] and w.r.t. log lambda (scalar).
        """
        if self._solution is None:
            raise RuntimeError("backward before shift")
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

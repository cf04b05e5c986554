"""The ridge regression that turns value differences into a shift of the weights, and its derivative.

    shift = (U^T U + lambda I)^-1 U^T D                      U [N, d_in], D [N, d_out]   (arXiv 2311.04661)
          = U^T (U U^T + lambda I)^-1 D                      the same (push-through identity), an N x N system

With G = d loss / d shift, M = (U^T U + lambda I)^-1 G:  d loss / d D = U M  and  d loss / d lambda = -<M, shift>
(arXiv 2311.04661). In the N x N form, with K = U U^T + lambda I:  U M = K^-1 U G  and
<M, shift> = <K^-1 U G, K^-1 D>. The smaller system is taken. Factorised once, in float64: keys of real models make
U^T U too ill-conditioned for float32.
"""

import torch
from torch import Tensor


class Ridge:
    """One factorised system; serves the shift and then its derivative."""

    def __init__(self, keys: Tensor, log_lambda: Tensor, *, dual: bool | None = None) -> None:
        """Factorise.

        Args:
            keys: [N, d_in].
            log_lambda: scalar; the penalty is its exponential.
            dual: the N x N form if true, the d_in x d_in form if false; by default the smaller one.
        """
        self.keys = keys.detach().double()
        self.penalty = log_lambda.detach().double().exp()
        n, d_in = self.keys.shape
        self.dual = n < d_in if dual is None else dual
        gram = self.keys @ self.keys.T if self.dual else self.keys.T @ self.keys
        gram.diagonal().add_(self.penalty)
        self.factor = torch.linalg.cholesky(gram)
        self._solution: Tensor | None = None

    def shift(self, differences: Tensor) -> Tensor:
        """Return the shift [d_in, d_out] for value differences [N, d_out], in their dtype."""
        if self.dual:
            self._solution = torch.cholesky_solve(differences.double(), self.factor)
            return (self.keys.T @ self._solution).to(differences.dtype)
        self._solution = torch.cholesky_solve(self.keys.T @ differences.double(), self.factor)
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
            differences_grad = solved
        else:
            solved = torch.cholesky_solve(gradient, self.factor)
            differences_grad = self.keys @ solved
        log_lambda_grad = -self.penalty * (solved * self._solution).sum()
        return differences_grad.to(shift_grad.dtype), log_lambda_grad.to(shift_grad.dtype)

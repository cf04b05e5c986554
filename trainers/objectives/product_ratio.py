"""The sequence ratio without length normalisation, as in the GSPO notes: the product of a response's token ratios.

s = pi(y | x) / pi_old(y | x) = exp(sum_t (logps - old_logps)): the importance weight of the response itself. GSPO
(arXiv 2507.18071, equation 7) takes its L-th root, because the product's spread grows with the length and leaves
every clip range.
"""

from torch import Tensor

from trainers.objectives.token_ratio import TOKEN_LOG_BOUND


def product_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Return s for logps, old_logps, mask (N, T), the same at every token of the response: (N, T).

    The log-ratio is bounded as that of a token is, so that a long response can neither overflow nor vanish.
    """
    log_ratio = ((logps - old_logps) * mask).sum(-1, keepdim=True)
    return log_ratio.clamp(-TOKEN_LOG_BOUND, TOKEN_LOG_BOUND).exp().expand_as(logps)

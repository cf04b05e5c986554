"""The sequence ratio without length normalisation, as in the GSPO notes: the product of a response's token ratios.

s = pi(y | x) / pi_old(y | x) = exp(sum_t (logps - old_logps)) is the importance weight of the whole response. GSPO
(arXiv 2507.18071, equation 7) uses its L-th root, because the variance of the product grows with the length L.
"""

from torch import Tensor

from trainers.objectives.token_ratio import TOKEN_LOG_BOUND


def product_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Return the sequence ratio s (N, T), the same at every token of a response, for logps, old_logps and mask (N, T).

    The log-ratio is clamped like a token's log-ratio, so that the ratio of a long response neither overflows nor
    vanishes.
    """
    log_ratio = ((logps - old_logps) * mask).sum(-1, keepdim=True)
    return log_ratio.clamp(-TOKEN_LOG_BOUND, TOKEN_LOG_BOUND).exp().expand_as(logps)

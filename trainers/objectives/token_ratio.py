"""Token importance ratios: `w_t = pi(y_t | x, y_<t) / pi_old(y_t | x, y_<t)` (PPO, arXiv 1707.06347)."""

from torch import Tensor

TOKEN_LOG_BOUND = 20.0  # bound of a token's log-ratio, as in verl, so that the ratio neither overflows nor vanishes


def token_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Return `exp(logps - old_logps)`, (N, T), for logps, old_logps and mask (N, T)."""
    return (logps - old_logps).clamp(-TOKEN_LOG_BOUND, TOKEN_LOG_BOUND).exp()

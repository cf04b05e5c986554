"""The ratio of GSPO-token (arXiv 2507.18071, equation 14): the sequence's value, the token's own gradient.

s_t = sg[s] * pi_t / sg[pi_t]. With one advantage per response its loss and its gradient are those of GSPO (section
4.3 there); they part when the advantage differs from token to token. It is also verl's form of GSPO.
"""

from torch import Tensor

from trainers.objectives.gspo_ratio import SEQUENCE_LOG_BOUND
from trainers.objectives.policy import sequence_mean


def gspo_token_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Return exp(sg[1/L sum_t (logps - old_logps)] + logps - sg[logps]): (N, T)."""
    sequence = sequence_mean(logps - old_logps, mask).detach()[:, None]
    return (sequence + logps - logps.detach()).clamp(max=SEQUENCE_LOG_BOUND).exp()

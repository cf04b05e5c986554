"""The ratio of GSPO-token (arXiv 2507.18071, equation 14): the value of the sequence ratio with the token's gradient.

s_t = sg[s] * pi_t / sg[pi_t]. With one advantage per response its loss and gradient equal those of GSPO (section 4.3
there); with token advantages they differ. verl implements GSPO in this form.
"""

from torch import Tensor

from trainers.objectives.gspo_ratio import SEQUENCE_LOG_BOUND
from trainers.objectives.policy import sequence_mean


def gspo_token_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Return `exp(sg[1/L * sum_t (logps - old_logps)] + logps - sg[logps])`, (N, T); sg stops the gradient."""
    sequence = sequence_mean(logps - old_logps, mask).detach()[:, None]
    return (sequence + logps - logps.detach()).clamp(max=SEQUENCE_LOG_BOUND).exp()

"""The sequence ratio of GSPO (arXiv 2507.18071, equation 7): the geometric mean of a response's token ratios."""

from torch import Tensor

from trainers.objectives.policy import sequence_mean

SEQUENCE_LOG_BOUND = 10.0  # upper bound of the sequence's log ratio, as in verl: a ratio of at most 22,026


def gspo_ratio(logps: Tensor, old_logps: Tensor, mask: Tensor) -> Tensor:
    """Return `s = exp(1/L * sum_t (logps - old_logps))`, (N, T), which is the same at every token of a response."""
    return sequence_mean(logps - old_logps, mask).clamp(max=SEQUENCE_LOG_BOUND).exp()[:, None].expand_as(logps)

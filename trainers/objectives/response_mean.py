"""One ratio per response, after all token weights, as in Verl_RL's `core_algos.py` for PTRW and asymmetric clips."""

from torch import Tensor

from trainers.objectives.policy import Diagnostics, sequence_mean


def response_mean(ratio: Tensor, mask: Tensor) -> tuple[Tensor, Diagnostics]:
    """Return the mean of each response's ratios (N, T), with its gradient, repeated at all tokens of the response.

    Unlike in `arithmetic_ratio`, weights of mean 1 on equal ratios have no effect.
    """
    return sequence_mean(ratio, mask)[:, None].expand_as(ratio), {}

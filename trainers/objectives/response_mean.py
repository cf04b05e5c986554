"""One ratio per response after all token weights, as Verl_RL's `core_algos.py` has it for PTRW and asymmetric clips."""

from torch import Tensor

from trainers.objectives.policy import Diagnostics, sequence_mean


def response_mean(ratio: Tensor, mask: Tensor) -> tuple[Tensor, Diagnostics]:
    """Return the mean of a response's ratios at each of its tokens, with its gradient: (N, T) of (N, T).

    Weights of mean 1 on equal ratios cancel in it, unlike in `arithmetic_ratio`.
    """
    return sequence_mean(ratio, mask)[:, None].expand_as(ratio), {}

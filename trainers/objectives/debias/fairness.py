"""The fairness term of version v10: the mean gap between stereotype and anti-stereotype."""

from torch import Tensor


def fairness_gap(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Mean over the batch of |lp_stereo - lp_anti|, in nats; a scalar, zero when every pair is balanced.

    Args:
        anti_logp: [B], mean log-probabilities of the anti-stereotypical sentences under the edited model.
        stereo_logp: [B], those of the stereotypical sentences.
    """
    return (stereo_logp - anti_logp).abs().mean()

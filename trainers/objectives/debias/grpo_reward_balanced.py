"""Reward from version v4 on: anti-stereotype and stereotype should be equally likely."""

from torch import Tensor


def reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Mean over the batch of 0.5 - |lp_anti - lp_stereo|, in nats; at most 0.5, reached when every pair is balanced.

    Args:
        anti_logp: [B], mean log-probabilities of the anti-stereotypical sentences under the edited model.
        stereo_logp: [B], those of the stereotypical sentences.

    Returns:
        Scalar.
    """
    return 0.5 - (anti_logp - stereo_logp).abs().mean()

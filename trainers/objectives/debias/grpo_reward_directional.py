"""Reward of the versions v1-v3: the anti-stereotype should be more likely than the stereotype."""

from torch import Tensor


def reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Mean over the batch of lp_anti - lp_stereo, in nats; unbounded, so it rewards the opposite bias too.

    Args:
        anti_logp: [B], mean log-probabilities of the anti-stereotypical sentences under the edited model.
        stereo_logp: [B], those of the stereotypical sentences.

    Returns:
        Scalar.
    """
    return (anti_logp - stereo_logp).mean()

"""Reward `directional` of an editor: the difference between mean log-probabilities (the BiasEdit notes, v1 to v3)."""

from torch import Tensor


def directional_reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Return the mean of `lp_anti - lp_stereo`. This reward is unbounded, so it also rewards the opposite bias."""
    return (anti_logp - stereo_logp).mean()

"""Reward `balanced` of an editor: how balanced each pair of sentences is (the BiasEdit notes, from v4 on)."""

from torch import Tensor


def balanced_reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Return the mean of `0.5 - |lp_anti - lp_stereo|`, which is 0.5 if every pair is balanced and otherwise lower."""
    return 0.5 - (anti_logp - stereo_logp).abs().mean()

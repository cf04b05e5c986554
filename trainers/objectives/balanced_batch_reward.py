"""Reward `balanced_batch` of an editor: how balanced a batch is on average (the listing in the BiasEdit notes)."""

from torch import Tensor


def balanced_batch_reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Return `0.5 - |mean(lp_anti - lp_stereo)|`, which is 0.5 if the differences cancel over the batch."""
    return 0.5 - (anti_logp - stereo_logp).mean().abs()

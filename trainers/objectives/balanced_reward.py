"""Reward `balanced` of an editor: 0 distance between the two sentences is best (the notes, from v4 on)."""

from torch import Tensor


def balanced_reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Return the mean of 0.5 - |lp_anti - lp_stereo| (from v4 on); at most 0.5, reached when every pair is balanced."""
    return 0.5 - (anti_logp - stereo_logp).abs().mean()

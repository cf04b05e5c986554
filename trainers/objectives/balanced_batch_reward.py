"""Reward `balanced_batch` of an editor: the balance of a batch, as the listing of the notes has it."""

from torch import Tensor


def balanced_batch_reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Return 0.5 - |mean of lp_anti - lp_stereo|, as the listing of the notes has it; 0.5 when the gaps cancel."""
    return 0.5 - (anti_logp - stereo_logp).mean().abs()

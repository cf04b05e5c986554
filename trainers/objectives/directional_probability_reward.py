"""Reward `directional_probability` of an editor: the difference of probabilities (text of the BiasEdit notes)."""

from torch import Tensor


def directional_probability_reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Return the mean of `exp(lp_anti) - exp(lp_stereo)`, in [-1, 1]: the notes' P(anti) - P(stereo), read literally.

    exp(lp) is the geometric mean of the probabilities of a sentence's tokens.
    """
    return (anti_logp.exp() - stereo_logp.exp()).mean()

"""Reward `directional_probability` of an editor: the difference of probabilities, as the notes write it."""

from torch import Tensor


def directional_probability_reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """Return the mean of exp(lp_anti) - exp(lp_stereo), the notes' P(anti) - P(stereo) read literally; in [-1, 1].

    exp(lp) is the probability of a token of the sentence, as a geometric mean.
    """
    return (anti_logp.exp() - stereo_logp.exp()).mean()

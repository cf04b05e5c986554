"""The balanced reward of a batch as a whole: the listing of seed 000 takes one number of all its sentences."""

from torch import Tensor


def reward(anti_logp: Tensor, stereo_logp: Tensor) -> Tensor:
    """0.5 - |mean over the batch of lp_anti - lp_stereo|, in nats; at most 0.5, reached when the gaps cancel.

    Args:
        anti_logp: [B], mean log-probabilities of the anti-stereotypical sentences under the edited model.
        stereo_logp: [B], those of the stereotypical sentences.

    Returns:
        Scalar.
    """
    return 0.5 - (anti_logp - stereo_logp).mean().abs()

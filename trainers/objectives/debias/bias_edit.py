"""BiasEdit's losses on sequence scores (arXiv 2503.08588, as in its public code).

A *score* of a sentence is the mean over its labelled tokens: `p` of the probabilities, `logp` of their logarithms.
All functions take vectors of shape [B], one entry per item, and are differentiable in every argument.
"""

import torch
from torch import Tensor


def kl_div(input_logp: Tensor, target_p: Tensor) -> Tensor:
    """Kullback-Leibler term of two score vectors, torch's `kl_div(reduction="batchmean")`, in nats.

    Args:
        input_logp: [B], log scores.
        target_p: [B], scores; zeros contribute nothing.

    Returns:
        Scalar: sum(target * (log target - input)) / B. The gradient flows into both arguments.
    """
    return torch.nn.functional.kl_div(input_logp, target_p, reduction="batchmean")


def edit_loss(anti_p: Tensor, anti_logp: Tensor, stereo_p: Tensor, stereo_logp: Tensor) -> Tensor:
    """Symmetric debiasing loss: KL(lp_anti, p_stereo) + KL(lp_stereo, p_anti) (arXiv 2503.08588).

    Args:
        anti_p: [B], scores of the anti-stereotypical sentences.
        anti_logp: [B], their log scores.
        stereo_p: [B], scores of the stereotypical sentences.
        stereo_logp: [B], their log scores.

    Returns:
        Scalar, mean over the batch, in nats.
    """
    return kl_div(anti_logp, stereo_p) + kl_div(stereo_logp, anti_p)


def retention_loss(edited_logp: Tensor, unedited_p: Tensor) -> Tensor:
    """Loss that keeps the unrelated sentences as likely as before (arXiv 2503.08588).

    Args:
        edited_logp: [B], log scores of the unrelated sentences under the edited model.
        unedited_p: [B], their scores under the unedited model (a constant).

    Returns:
        Scalar, mean over the batch, in nats.
    """
    return kl_div(edited_logp, unedited_p.detach())

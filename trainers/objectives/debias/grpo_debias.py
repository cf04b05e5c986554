"""The GRPO term that the study adds to BiasEdit: a scaled reward and a KL against the unedited model."""

from torch import Tensor


def mean_token_kl(anti_kl: Tensor, stereo_kl: Tensor) -> Tensor:
    """Average the token-level KL(unedited || edited): over tokens, then over the two sets of sentences.

    Args:
        anti_kl: [N], KL in nats of the next-token distributions (full vocabulary) at the positions that predict the
            labelled tokens of the anti-stereotypical sentences.
        stereo_kl: [M], the same for the stereotypical sentences.

    Returns:
        Scalar, in nats.
    """
    return 0.5 * (anti_kl.mean() + stereo_kl.mean())


def grpo_loss(reward: Tensor, kl: Tensor, *, beta: float, gamma: float) -> Tensor:
    """-gamma * reward + beta * KL; scalars, in nats. There is one "group" per batch, so nothing is standardised."""
    return beta * kl - gamma * reward


def combine(edit_loss: Tensor, grpo: Tensor, *, weight: float) -> Tensor:
    """(1 - weight) * edit_loss + weight * grpo; scalars, weight in [0, 1]."""
    return (1.0 - weight) * edit_loss + weight * grpo

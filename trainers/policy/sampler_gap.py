"""How far the sampler's log-probabilities are from those of the trained weights.

Rounding, unless the sampler's weights, cache or precision are not the policy's. That engines round otherwise than
trainers, and what it does: Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training".
"""

from typing import Literal

import torch
from torch import Tensor

from trainers.objectives.aggregation import masked_mean
from trainers.policy.actor import Actor, Batch

COMPARED = 8  # responses, spread evenly over the step's, so over all prompts and over all processes that sample
# Nats. Between two ways through the same model float32 rounds to 1e-5, bfloat16 to 1e-2.
LIMITS: dict[str, float] = {"float32": 1e-3, "bfloat16": 0.05}


def sampler_gap(actor: Actor, batch: Batch, sampled_in: Literal["float32", "bfloat16"]) -> dict[str, float]:
    """Return `rollout/logp_gap`, nats, and what it may be, before the update.

    The gap is the mean over tokens of |log p of the sampler - log p of the policy|. Where the old log-probabilities
    were recomputed it is of all responses, else of `COMPARED` ones.
    """
    sequences, sampled = batch.sequences, batch.sequences.logps
    if sampled is None:
        raise ValueError("responses that nobody sampled have no log-probabilities to compare with")
    if actor.recompute_logps:
        gap = masked_mean((batch.old_logps - sampled).abs(), sequences.mask)
    else:
        some = sequences.select(_spread(len(sequences)).to(sequences.mask.device))
        assert some.logps is not None
        gap = masked_mean((actor.logps(some) - some.logps).abs(), some.mask)
    return {"rollout/logp_gap": gap.item(), "rollout/logp_gap_limit": LIMITS[sampled_in]}


def _spread(count: int) -> Tensor:
    """Return the numbers of `COMPARED` rows of `count`, evenly spread; of all where there are no more."""
    some = min(COMPARED, count)
    return torch.arange(some) * count // some

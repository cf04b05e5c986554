"""Rewards of tokens by a reward model that reads the policy's own tokens."""

from dataclasses import replace
from pathlib import Path

import torch
from torch import Tensor, nn

from trainers.objectives.rewards.token_rewards import increments
from trainers.policy.batch import Sequences
from trainers.policy.placement import Placement
from trainers.policy.value_model import ValueModel
from trainers.ranks import ALONE


class TokenRewardModel:
    """A sequence classifier whose head is read at every token. Raises ValueError for another tokenizer's."""

    def __init__(self, folder: Path, placement: Placement, policy: Path, batch_size: int = 64) -> None:
        there = replace(placement, policy=placement.reward, ranks=ALONE)  # each rank has all of it
        self.model = ValueModel.from_reward_model(folder, there, policy).requires_grad_(False)
        self.device, self.batch_size = placement.reward, batch_size

    @torch.no_grad()
    def __call__(self, sequences: Sequences, end: int) -> Tensor:
        """Return the rewards (N, T) of the tokens, on the CPU, 0 at padding.

        end: the end-of-sequence token. A reward model judges texts, which do not have it: it gets no reward.
        """
        width, rows = sequences.mask.shape[1], torch.arange(len(sequences))
        rewards = []
        for part in rows.split(self.batch_size):
            chosen = sequences.select(part.to(sequences.mask.device)).to(self.device)
            inside = chosen.mask * (chosen.response_ids != end)
            found = increments(self.model(chosen), inside)
            rewards.append(nn.functional.pad(found, (0, width - found.shape[1])).cpu())
        return torch.cat(rewards)

"""Rewards of tokens by a reward model that reads the policy's own tokens."""

from pathlib import Path

import torch
from torch import Tensor, nn

from trainers.micro_batch import MicroBatch
from trainers.objectives.rewards import increments
from trainers.policy.batch import Sequences
from trainers.policy.placement import Placement
from trainers.policy.value_model import ValueModel


class TokenRewardModel:
    """A sequence classifier whose head is read at every token. Raises ValueError for another tokenizer's.

    Several ranks share its weights, and each scores its part of the responses.
    """

    def __init__(self, folder: Path, placement: Placement, policy: Path, batch_size: int = 64) -> None:
        ranks = placement.ranks

        def load() -> ValueModel:
            return ValueModel.from_reward_model(folder, placement, policy).requires_grad_(False)

        self.model = ranks.shard(ranks.build(load))
        self.device, self.memory = placement.device, MicroBatch(batch_size, ranks=ranks)

    @torch.no_grad()
    def __call__(self, sequences: Sequences, end: int) -> Tensor:
        """Return the rewards (N, T) of the tokens, on the CPU, 0 at padding.

        end: the end-of-sequence token. A reward model judges texts, which do not have it: it gets no reward.
        """
        width = sequences.mask.shape[1]

        def judge(rows: Tensor) -> Tensor:
            chosen = sequences.select(rows.to(sequences.mask.device)).to(self.device)
            inside = chosen.mask * (chosen.response_ids != end)
            found = increments(self.model(chosen), inside)
            return nn.functional.pad(found, (0, width - found.shape[1])).cpu()

        return torch.cat(self.memory.run(torch.arange(len(sequences)), judge))

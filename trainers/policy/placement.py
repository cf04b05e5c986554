"""Which model is where, in which precision: policy and critic on the first device, reference and reward on the last.

With several ranks each has one device, on which it keeps its part of the models.
"""

from contextlib import AbstractContextManager
from dataclasses import dataclass

import torch

from trainers.policy.config import Precision
from trainers.ranks import ALONE, Ranks


@dataclass(frozen=True)
class Placement:
    """Devices of the models: two leased devices split them; one device, or the CPU, holds them all."""

    policy: torch.device
    reference: torch.device
    reward: torch.device
    precision: Precision
    ranks: Ranks = ALONE

    @classmethod
    def of(cls, devices: list[str], precision: Precision, ranks: Ranks = ALONE) -> "Placement":
        """Return the placement on the stage's devices, those of this rank."""
        first, last = torch.device(devices[0]), torch.device(devices[-1])
        return cls(policy=first, reference=last, reward=last, precision=precision, ranks=ranks)

    @property
    def before_sharding(self) -> torch.device:
        """Return where a model is loaded: several ranks move it to their devices in parts."""
        return self.policy if self.ranks.size == 1 else torch.device("cpu")

    def autocast(self, device: torch.device) -> AbstractContextManager[None]:
        """Return the context of a forward on `device`: bfloat16 arithmetic where the precision asks for it.

        Autocast keeps the bfloat16 copies of weights until the context ends; several ranks, which gather the weights of
        one block at a time, do without: each weight is used once in a forward.
        """
        enabled, keep = self.precision.compute == "bfloat16", self.ranks.size == 1
        return torch.autocast(device.type, dtype=torch.bfloat16, enabled=enabled, cache_enabled=keep)

"""Where the models of a process are, and in which precision: on its one device, whole or this rank's part of them."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any

import torch

from ablation.runner.ranks import ALONE, Ranks
from trainers.policy.config import Precision


@dataclass(frozen=True)
class Placement:
    """The device of the models, the processes that share them, and `lora.Adapters` where models learn with some."""

    device: torch.device
    precision: Precision
    ranks: Ranks = ALONE
    adapters: Any = None

    @classmethod
    def of(cls, devices: list[str], precision: Precision, ranks: Ranks = ALONE, adapters: Any = None) -> "Placement":
        """Return the placement on the stage's device, that of this rank."""
        return cls(torch.device(devices[0]), precision, ranks, adapters)

    @property
    def before_sharding(self) -> torch.device:
        """Return where a model is loaded: several ranks move it to their devices in parts."""
        return self.device if self.ranks.size == 1 else torch.device("cpu")

    def autocast(self) -> AbstractContextManager[None]:
        """Return the context of a forward: bfloat16 arithmetic where the precision asks for it.

        Autocast keeps the bfloat16 copies of weights until the context ends; several ranks, which gather the weights of
        one block at a time, do without: each weight is used once in a forward.
        """
        enabled, keep = self.precision.compute == "bfloat16", self.ranks.size == 1
        return torch.autocast(self.device.type, dtype=torch.bfloat16, enabled=enabled, cache_enabled=keep)

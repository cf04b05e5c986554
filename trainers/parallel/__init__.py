"""Stages on several devices: one process per device, weights sharded by FSDP2, started by torchrun's launcher.

A stage declares that it supports several devices by `RANKS = join` in its entry module. `join` imports the rest of the
package only for several devices, but that code is always part of the stage's key (`ablation.contract.code`).
"""

from typing import TYPE_CHECKING

from ablation.runner.ranks import Ranks

if TYPE_CHECKING:
    import torch  # the process that starts the ranks has none


def join(device: "torch.device", halvings: int = 0) -> Ranks:
    """Join the other ranks of the stage; `halvings` is the number of earlier starts that ran out of memory."""
    from trainers.parallel.group import Group

    return Group.join(device, halvings)

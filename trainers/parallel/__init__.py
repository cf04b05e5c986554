"""One stage on several devices: a process for each, weights sharded by FSDP2, started by torchrun's launcher.

A stage says that it can run so by `RANKS = join` in its entry module. The import that `join` makes late is part of its
code all the same (`ablation.contract.code`); a stage on one device does not make it.
"""

from typing import TYPE_CHECKING

from ablation.runner.ranks import Ranks

if TYPE_CHECKING:
    import torch  # the process that starts the ranks has none


def join(device: "torch.device", halvings: int = 0) -> Ranks:
    """Meet the other ranks. halvings: how often an earlier start ran out of memory."""
    from trainers.parallel.group import Group

    return Group.join(device, halvings)

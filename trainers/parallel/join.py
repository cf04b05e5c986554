"""How a stage says that it can run on several devices: `RANKS = join` in its entry module.

The import that is made late is part of the stage's code all the same (`ablation.contract.fingerprint`); a stage on one
device does not make it.
"""

import torch

from ablation.runner.ranks import Ranks


def join(device: torch.device, halvings: int = 0) -> Ranks:
    """Meet the other ranks. halvings: how often an earlier start ran out of memory."""
    from trainers.parallel.group import Group

    return Group.join(device, halvings)

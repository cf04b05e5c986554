"""Interface that `ablation.runner` expects of an entry's package: repeatable numbers, and the class of a stage.

The key of every stage of a trainer holds this code.
"""

import random

import numpy
import torch

from trainers.running.stage import Stage

__all__ = ["Stage", "fix_randomness"]


def fix_randomness(seed: int, threads: int) -> None:
    """Make torch deterministic, with exactly these threads (sums depend on them), and seed every generator."""
    random.seed(seed)
    numpy.random.seed(seed)
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    # use_deterministic_algorithms(True, warn_only=True), but that also imports the compiler: 0.6 s of CPU
    torch.set_deterministic_debug_mode("warn")
    # Nothing reads uninitialised memory, and filling it costs time in every operator.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a property
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(seed)

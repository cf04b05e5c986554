"""What `ablation.runner` requires of trainers: a function that fixes randomness, and a class of stages.

This code is part of the key of every trainer's stage.
"""

import random

import numpy
import torch

from trainers.running.stage import Stage

__all__ = ["Stage", "fix_randomness"]


def fix_randomness(seed: int, threads: int) -> None:
    """Seed all global generators, make torch deterministic and set its number of threads, on which sums depend."""
    random.seed(seed)
    numpy.random.seed(seed)
    torch.set_num_threads(threads)
    torch.set_num_interop_threads(1)
    # Not use_deterministic_algorithms(True, warn_only=True), which also imports the compiler (0.6 s of CPU time).
    torch.set_deterministic_debug_mode("warn")
    # No operator here reads uninitialised memory, and filling it would slow down every operator.
    torch.utils.deterministic.fill_uninitialized_memory = False  # type: ignore[attr-defined]  # a property
    torch.backends.cudnn.benchmark = False
    torch.backends.cuda.matmul.allow_tf32 = False
    torch.backends.cudnn.allow_tf32 = False
    torch.manual_seed(seed)

"""What makes a stage's numbers repeatable, set before it starts. Every stage's key holds this code."""

import os
import random


def prepare_process(threads: int) -> None:
    """Set what torch reads once, when it is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS is deterministic only with a fixed workspace
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


def fix_randomness(seed: int, threads: int, *, torch_too: bool) -> None:
    """Make torch deterministic, with exactly these threads (sums depend on them), and seed every generator."""
    import numpy

    random.seed(seed)
    numpy.random.seed(seed)
    if not torch_too:
        return
    import torch

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

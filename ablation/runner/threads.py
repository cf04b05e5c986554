"""How many threads a stage's libraries use. The key of every stage of a trainer holds this code."""

import os


def prepare_process(threads: int) -> None:
    """Set what torch reads once, when it is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS is deterministic only with a fixed workspace
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")

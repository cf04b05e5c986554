"""The process of a stage: its threads and its memory.

The key of every stage of a trainer holds the code of `prepare_process`.
"""

import ctypes
import os


def prepare_process(threads: int) -> None:
    """Set what torch reads once, when it is imported."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = str(threads)
    os.environ["CUBLAS_WORKSPACE_CONFIG"] = ":4096:8"  # cuBLAS is deterministic only with a fixed workspace
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")


_TRIM_THRESHOLD, _MMAP_THRESHOLD = -1, -3  # of glibc's malloc.h
_KEPT, _LARGE = 1 << 30, 32 << 20  # bytes; more than 32 MiB glibc does not accept as the second


def keep_freed_memory() -> None:
    """Give less than 1 GiB at the end of the heap back to the system; tensors above 32 MiB still come and go.

    By default glibc returns it at every drop, and its pages are zeroed again at the next rise: a tenth of the CPU time
    of training small models. Does nothing where the C library is another one.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):  # musl, macOS, Windows
        return
    mallopt(_MMAP_THRESHOLD, _LARGE)
    mallopt(_TRIM_THRESHOLD, _KEPT)

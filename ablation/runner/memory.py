"""Keeps memory that a stage has freed in its process, for the next tensor of that size."""

import ctypes

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

"""DAPO's soft overlong punishment (arXiv 2503.14476, equation 13)."""

from torch import Tensor


def overlong_penalty(lengths: Tensor, *, max_length: int, buffer: int) -> Tensor:
    """Return a penalty in [-1, 0] per response of `lengths` (N,) tokens.

    0 up to max_length - buffer, then linear down to -1 at max_length and beyond.
    """
    excess = lengths.float() - (max_length - buffer)
    return -(excess / buffer).clamp(0.0, 1.0)

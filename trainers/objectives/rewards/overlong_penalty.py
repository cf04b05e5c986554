"""DAPO's soft overlong punishment (arXiv 2503.14476, equation 13)."""

from torch import Tensor


def overlong_penalty(lengths: Tensor, *, max_length: int, buffer: int, factor: float = 1.0) -> Tensor:
    """Return a penalty in [-factor, 0] per response of `lengths` (B,) tokens.

    0 up to max_length - buffer, then linear down to -factor at max_length and beyond.
    """
    excess = lengths.float() - (max_length - buffer)
    return -factor * (excess / buffer).clamp(0.0, 1.0)

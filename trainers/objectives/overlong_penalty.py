"""DAPO's soft overlong punishment (arXiv 2503.14476, equation 13)."""

from torch import Tensor


def overlong_penalty(lengths: Tensor, *, max_length: int, buffer: int) -> Tensor:
    """Return the penalties (N,), in [-1, 0], of responses with `lengths` (N,) tokens.

    The penalty is 0 up to max_length - buffer tokens and falls linearly to -1 at max_length.
    """
    excess = lengths.float() - (max_length - buffer)
    return -(excess / buffer).clamp(0.0, 1.0)

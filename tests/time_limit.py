"""A test that would wait for ever fails instead: after so long that no loaded machine decides it."""

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

PATIENCE = 900  # seconds


@contextmanager
def time_limit(seconds: int = PATIENCE) -> Iterator[None]:
    """Raise TimeoutError where the block takes longer."""

    def give_up(signal_number: int, frame: FrameType | None) -> None:
        raise TimeoutError(f"took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)

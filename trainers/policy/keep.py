"""What a measurement hands to whoever keeps the responses: here, so that what is quoted is in no training's key."""

from collections.abc import Callable, Mapping, Sequence

from trainers.policy.spread import Distinct

Keep = Callable[[str, Distinct, Sequence[str], Mapping[str, Sequence[float]]], None]
"""Takes a protocol, its M different responses, their texts, and their values by name, M each."""


def nothing(protocol: str, found: Distinct, texts: Sequence[str], values: Mapping[str, Sequence[float]]) -> None:
    """Keep none."""

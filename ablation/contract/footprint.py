"""What a stage holds in memory: a study's `footprint` module says it of a configuration, and the tracker adds it up.

    footprint(stage, config, models, devices) -> Footprint | None  # in the module that _study.yaml names as such

No torch: what `held` counts follows from numbers of parameters, what `works` count from shapes of tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

GIB = 1 << 30


@dataclass(frozen=True)
class Held:
    """Bytes that stay on each of a stage's devices from the first step to the last."""

    name: str
    size: int


@dataclass(frozen=True)
class Work:
    """What is on a device beside `held` while a stage does one thing; one such thing at a time.

    rows: how many go through the model at once, as configured. parts: bytes at so many rows, by name. least: bytes in
    all with one row at once, to which a stage goes down by halves where memory does not suffice.
    """

    name: str
    rows: int
    parts: Mapping[str, int]
    least: int

    @property
    def size(self) -> int:
        """Return the bytes at `rows` rows."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Footprint:
    """What each of a stage's devices holds, where it has as many as was asked for: all hold the same.

    host: bytes of the machine's memory by name, of all processes of the stage, at the moment that needs most.

    assumed: what the estimate takes for granted. unknown: what is not counted; sizes are then too small, and nothing
    can be refused because of them that would be refused otherwise.
    """

    held: tuple[Held, ...] = ()
    works: tuple[Work, ...] = ()
    host: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def held_size(self) -> int:
        """Return the bytes that stay on a device."""
        return sum(part.size for part in self.held)

    @property
    def peak(self) -> int:
        """Return the most bytes on a device, as configured."""
        return self.held_size + max((work.size for work in self.works), default=0)

    @property
    def least(self) -> int:
        """Return the most bytes on a device with one row at a time: with fewer the stage cannot run."""
        return self.held_size + max((work.least for work in self.works), default=0)

    @property
    def host_size(self) -> int:
        """Return the bytes of the machine's memory."""
        return sum(self.host.values())


@dataclass(frozen=True)
class ModelAsset:
    """A model that a config key names: the asset as configured, and the folder of its files where it was fetched."""

    asset: Any
    folder: Path | None = None


class Footprints(Protocol):
    """The function that a study's module has."""

    def __call__(self, stage: str, config: Any, models: Mapping[str, ModelAsset], devices: int) -> Footprint | None:
        """Return what a stage of a configuration needs on so many devices; None for a stage that holds no model."""

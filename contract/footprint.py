"""What a stage holds in memory: a study's `footprint` module says it of a configuration, and the tracker adds it up.

    footprint(stage, config, models, devices) -> Footprint | None  # in the module that _study.yaml names as such

No torch: what `held` counts follows from numbers of parameters, what `works` count from shapes of tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from pathlib import Path
from typing import Any, Protocol

GIB = 1 << 30


@dataclass(frozen=True)
class Held:
    """Bytes that stay on a device from the first step to the last. device: 0 is the stage's first, -1 its last."""

    name: str
    size: int
    device: int = 0


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
    device: int = 0

    @property
    def size(self) -> int:
        """Return the bytes at `rows` rows."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Footprint:
    """What a stage needs. `host`: bytes of the machine's memory by name, at the moment that needs most.

    assumed: what the estimate takes for granted. unknown: what is not counted; sizes are then too small, and nothing
    can be refused because of them that would be refused otherwise.
    """

    held: tuple[Held, ...] = ()
    works: tuple[Work, ...] = ()
    host: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def held_on(self, device: int, devices: int) -> int:
        """Return the bytes held on one of the stage's devices, by number."""
        return sum(part.size for part in self.held if part.device % devices == device)

    def peak_on(self, device: int, devices: int) -> int:
        """Return the most bytes on a device, as configured."""
        works = [work.size for work in self.works if work.device % devices == device]
        return self.held_on(device, devices) + max(works, default=0)

    def least_on(self, device: int, devices: int) -> int:
        """Return the most bytes on a device with one row at a time: with fewer the stage cannot run."""
        works = [work.least for work in self.works if work.device % devices == device]
        return self.held_on(device, devices) + max(works, default=0)

    def peak(self, devices: int) -> int:
        """Return the most bytes on any of so many devices, as configured."""
        return max(self.peak_on(device, devices) for device in range(devices))

    def least(self, devices: int) -> int:
        """Return the most bytes on any of so many devices with one row at a time."""
        return max(self.least_on(device, devices) for device in range(devices))

    def divided(self, devices: int, *, least: bool = True) -> int:
        """Return the bytes per device if all that is held were divided evenly; each works on rows of its own."""
        works = [work.least if least else work.size for work in self.works]
        return ceil(sum(part.size for part in self.held) / devices) + max(works, default=0)

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

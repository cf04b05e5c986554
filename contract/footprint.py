"""What a stage holds in memory: a study's `footprint` module says it of a configuration, and the tracker adds it up.

    footprint(stage, config, models, devices) -> Footprint | None  # in the module that _study.yaml names as such

No torch: what `held` counts follows from numbers of parameters, what `works` count from shapes of tensors.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from pathlib import Path
from typing import Any, Protocol

GIB = 1 << 30


@dataclass(frozen=True)
class Held:
    """Bytes that stay on a device from the first step to the last.

    device: 0 is the stage's first, -1 its last. whole: where a stage is sharded, every device has all of it.
    """

    name: str
    size: int
    device: int = 0
    whole: bool = False


@dataclass(frozen=True)
class Work:
    """What is on a device beside `held` while a stage does one thing; one such thing at a time.

    rows: how many go through the model at once, as configured. parts: bytes at so many rows, by name. least: bytes in
    all with one row at once, to which a stage goes down by halves where memory does not suffice. gathered: bytes of
    weights that are whole on each device meanwhile, where a stage is sharded.
    """

    name: str
    rows: int
    parts: Mapping[str, int]
    least: int
    device: int = 0
    gathered: int = 0

    @property
    def size(self) -> int:
        """Return the bytes at `rows` rows."""
        return sum(self.parts.values())


@dataclass(frozen=True)
class Footprint:
    """What a stage needs. `host`: bytes of the machine's memory by name, at the moment that needs most.

    sharded: on several devices all that is held is divided among them, and each works on rows of its own; else `device`
    says where it is. start: bytes of the machine's memory in each process before its models are divided.

    assumed: what the estimate takes for granted. unknown: what is not counted; sizes are then too small, and nothing
    can be refused because of them that would be refused otherwise.
    """

    held: tuple[Held, ...] = ()
    works: tuple[Work, ...] = ()
    host: Mapping[str, int] = field(default_factory=dict)
    sharded: bool = False
    start: int = 0
    assumed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    def parts_on(self, device: int, devices: int) -> list[tuple[str, int]]:
        """Return what is held on one of the stage's devices, by number: names and bytes."""
        if self.sharded and devices > 1:
            return [(part.name, part.size if part.whole else ceil(part.size / devices)) for part in self.held]
        return [(part.name, part.size) for part in self.held if part.device % devices == device]

    def held_on(self, device: int, devices: int) -> int:
        """Return the bytes of them all."""
        return sum(size for _, size in self.parts_on(device, devices))

    def works_on(self, device: int, devices: int) -> list[Work]:
        """Return what one of the stage's devices does."""
        if self.sharded and devices > 1:
            return list(self.works)
        return [replace(work, gathered=0) for work in self.works if work.device % devices == device]

    def peak_on(self, device: int, devices: int) -> int:
        """Return the most bytes on a device, as configured."""
        works = [work.size + work.gathered for work in self.works_on(device, devices)]
        return self.held_on(device, devices) + max(works, default=0)

    def least_on(self, device: int, devices: int) -> int:
        """Return the most bytes on a device with one row at a time: with fewer the stage cannot run."""
        works = [work.least + work.gathered for work in self.works_on(device, devices)]
        return self.held_on(device, devices) + max(works, default=0)

    def peak(self, devices: int) -> int:
        """Return the most bytes on any of so many devices, as configured."""
        return max(self.peak_on(device, devices) for device in range(devices))

    def least(self, devices: int) -> int:
        """Return the most bytes on any of so many devices with one row at a time."""
        return max(self.least_on(device, devices) for device in range(devices))

    def host_on(self, devices: int) -> Mapping[str, int]:
        """Return the bytes of the machine's memory by name, with so many devices."""
        starting = devices * self.start if self.sharded and devices > 1 else 0
        if starting > sum(self.host.values()):
            return {f"models in each of {devices} processes before they are divided": starting}
        return self.host


@dataclass(frozen=True)
class ModelAsset:
    """A model that a config key names: the asset as configured, and the folder of its files where it was fetched."""

    asset: Any
    folder: Path | None = None


class Footprints(Protocol):
    """The function that a study's module has."""

    def __call__(self, stage: str, config: Any, models: Mapping[str, ModelAsset], devices: int) -> Footprint | None:
        """Return what a stage of a configuration needs on so many devices; None for a stage that holds no model."""

"""Memory that a stage needs: a study's `footprint` module estimates it, and the planner adds it up.

    footprint(stage, config, models, devices) -> Footprint | None  # in the module that _study.yaml names as such

`config` is the variant's; `models` holds its assets that are models, by config key; None is returned for a stage that
holds no model worth counting, and UnknownSize is raised where nothing tells a model's size. No torch.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GIB = 1 << 30


class UnknownSize(ValueError):
    """Nothing on this machine tells the size of a model."""


@dataclass(frozen=True)
class Work:
    """Bytes of a device, in addition to `held`, while a stage does one thing; one such thing at a time.

    rows: how many go through the model at once, as configured. of_rows: bytes of so many rows. A stage goes down by
    halves to one row at once where memory does not suffice.
    """

    name: str
    rows: int
    of_rows: Callable[[int], int]


@dataclass(frozen=True)
class Footprint:
    """Memory of each of a stage's devices, where it has as many as requested: all hold the same.

    held: bytes from the first step to the last, by name. host: bytes of the machine's memory for models, of all
    processes of the stage, at the moment that needs most. notes: what is assumed or not counted. reserved: share of a
    device that something else takes.
    """

    held: Mapping[str, int] = field(default_factory=dict)
    works: tuple[Work, ...] = ()
    host: int = 0
    notes: tuple[str, ...] = ()
    reserved: float = 0.0

    @property
    def peak(self) -> int:
        """Return the most bytes on a device, as configured."""
        return sum(self.held.values()) + max((work.of_rows(work.rows) for work in self.works), default=0)

    @property
    def least(self) -> int:
        """Return the most bytes on a device with one row at a time: the stage cannot run with fewer."""
        return sum(self.held.values()) + max((work.of_rows(1) for work in self.works), default=0)


@dataclass(frozen=True)
class ModelAsset:
    """A model that a config key names: the asset as configured, and the folder of its files where it was fetched."""

    asset: Any
    folder: Path | None = None

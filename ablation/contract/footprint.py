"""Memory that a stage needs: a study's `footprint` module estimates it, and the planner adds it up.

    footprint(stage, config, models, devices) -> Footprint | None  # in the module that _study.yaml names as such

`config` is the variant's; `models` holds its assets that are models, by config key; None is returned for a stage that
holds no model. No torch: held bytes follow from numbers of parameters, the others from shapes of tensors.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

GIB = 1 << 30


@dataclass(frozen=True)
class Work:
    """Memory of a device, in addition to `held`, while a stage does one thing; one such thing at a time.

    rows: how many go through the model at once, as configured. of_rows: bytes of so many rows. A stage goes down by
    halves to one row at once where memory does not suffice.
    """

    name: str
    rows: int
    of_rows: Callable[[int], int]

    @property
    def size(self) -> int:
        """Return the bytes at `rows` rows."""
        return self.of_rows(self.rows)


@dataclass(frozen=True)
class Footprint:
    """Memory of each of a stage's devices, where it has as many as requested: all hold the same.

    held: bytes from the first step to the last, by name. host: bytes of the machine's memory by name, of all processes
    of the stage, at the moment that needs most. assumed: what the estimate takes for granted. unknown: what is not
    counted: sizes are then lower bounds.
    """

    held: Mapping[str, int] = field(default_factory=dict)
    works: tuple[Work, ...] = ()
    host: Mapping[str, int] = field(default_factory=dict)
    assumed: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()

    @property
    def held_size(self) -> int:
        """Return the bytes that stay on a device."""
        return sum(self.held.values())

    @property
    def peak(self) -> int:
        """Return the most bytes on a device, as configured."""
        return self.held_size + max((work.size for work in self.works), default=0)

    @property
    def least(self) -> int:
        """Return the most bytes on a device with one row at a time: the stage cannot run with fewer."""
        return self.held_size + max((work.of_rows(1) for work in self.works), default=0)


@dataclass(frozen=True)
class ModelAsset:
    """A model that a config key names: the asset as configured, and the folder of its files where it was fetched."""

    asset: Any
    folder: Path | None = None


Footprints = Callable[[str, Any, Mapping[str, ModelAsset], int], Footprint | None]

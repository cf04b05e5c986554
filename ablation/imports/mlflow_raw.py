"""A run as either store of MLflow's describes it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class RawRun:
    """What the two stores say in different ways.

    Attributes:
        place: the database, or the folder of the run.
        key: MLflow's id of it.
        status: MLflow's word, such as `FINISHED`; "" where it cannot be read.
        started: milliseconds since the epoch.
        params, tags: as text, as MLflow keeps them.
    """

    place: Path
    key: str
    name: str
    status: str
    started: int | None
    deleted: bool
    params: Mapping[str, str]
    tags: Mapping[str, str]

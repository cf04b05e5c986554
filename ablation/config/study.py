"""A study as it was read and checked: its file, its config model, its stages and its variants at the chosen scale."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel, Field

from ablation.config.names import Strict
from ablation.config.published_schema import PublishedFile
from ablation.config.study_schema import StageDefinition, StudyFile
from ablation.contract.parts import PartsOf


class Change(Strict):
    """One leaf that differs between two variants."""

    key: str
    old: Any = Field(alias="from")
    new: Any = Field(alias="to")
    factor: str = Field(description="The group of keys that it counts for.")
    no_effect: str = Field(default="", description="Why it cannot matter at the study's scale, where that is known.")


@dataclass(frozen=True)
class Variant:
    """One configuration.

    `declared` is what the files say (all keys), `values` the same after the scale, `resolved` the checked model of it.
    All are to be read only.
    """

    study: str
    name: str
    parent: str | None
    why: str
    file: Path
    gpu: int | None
    overrides: dict[str, Any]
    declared: dict[str, Any]
    values: dict[str, Any]
    resolved: BaseModel
    changes: tuple[Change, ...]
    factors: tuple[str, ...]


@dataclass(frozen=True)
class Study:
    """A question with its variants, parents before children. `stages` have the resources of the chosen scale."""

    name: str
    file: Path
    written: StudyFile
    config_model: type[BaseModel]
    parts: PartsOf | None
    stages: dict[str, StageDefinition]
    variants: dict[str, Variant]
    published: PublishedFile | None

    @property
    def last_stage(self) -> str:
        """Return the stage whose metrics are the run's results."""
        return next(reversed(self.stages))

"""The form of plan.json: it is written from these classes and read into them.

read_plan(results / "plan.json") -> PlanFile
"""

import hashlib
import json
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from ablation.config.names import Strict
from ablation.config.published_schema import PublishedFile
from ablation.config.study import Change
from ablation.config.study_schema import Resources, StudyDefinition
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_bytes
from ablation.plan.collected import stage_folder

_MAX_BYTES = 1 << 30


class PlannedVariant(Strict):
    """One variant: its whole configuration at the plan's scale, and what it changes from its parent."""

    name: str
    parent: str | None
    why: str
    file: str
    gpu: int | None = None
    resolved: dict[str, Any]
    factors: tuple[str, ...]
    changes: tuple[Change, ...]


class PlannedRun(Strict):
    """One variant with one seed: stage -> key, in the order of the stages."""

    variant: str
    seed: int
    stages: dict[str, str]


class StudyRecord(StudyDefinition):
    """A study's definition with what planning adds: its name, its published numbers, its last stage.

    `analysis_digest` tells one analysis plan from another.
    """

    name: str
    analysis_digest: str
    published: PublishedFile | None
    last_stage: str

    def as_recorded(self) -> dict[str, Any]:
        """Return the fields of this class, and none of a subclass, for another subclass to take over."""
        return {name: getattr(self, name) for name in StudyRecord.model_fields}


class PlannedStudy(StudyRecord):
    """A study with its variants, parents before children, and its runs."""

    variants: tuple[PlannedVariant, ...]
    runs: tuple[PlannedRun, ...]

    @property
    def parents(self) -> dict[str, str | None]:
        """Return variant -> its parent."""
        return {variant.name: variant.parent for variant in self.variants}


class PlannedStage(Strict):
    """One job: its name, inputs and resources, and the folder that its key gives it."""

    id: str
    study: str
    stage: str
    key: str
    seed: int | None
    label: str
    entry: str
    dir: Path
    inputs: dict[str, Path]
    resources: Resources
    variants: tuple[str, ...]

    @property
    def status(self) -> Path:
        """Return the file whose presence means that the stage has ended."""
        return self.dir / "status.json"

    @property
    def arguments(self) -> list[str]:
        """Return the words for `ablation.runner.run`."""
        words = ["--config", f"{self.dir}/config.json", "--out", str(self.dir), "--label", self.label]
        words += ["--gpus", str(self.resources.gpu)]
        if self.resources.nodes > 1:
            words += ["--nodes", str(self.resources.nodes)]
        return words + [word for name, folder in self.inputs.items() for word in ("--input", f"{name}={folder}")]


class PlanFile(Strict):
    """The whole plan; `stages` are in an order in which they can run."""

    scale: str
    results: Path
    reports: Path
    studies: tuple[PlannedStudy, ...]
    stages: tuple[PlannedStage, ...]

    def text(self) -> str:
        """Return JSON with a study or stage on each line, so that it diffs well."""
        parts = []
        for name, value in self:
            if isinstance(value, tuple):
                rows = ",\n".join(row.model_dump_json(by_alias=True) for row in value)
                parts.append(f"{json.dumps(name)}: [\n{rows}\n]")
            else:
                parts.append(f"{json.dumps(name)}: {json.dumps(str(value), ensure_ascii=False)}")
        return "{" + ",\n".join(parts) + "}\n"

    def folders(self, results: Path) -> dict[str, Path]:
        """Return {stage key: folder}. Folders follow `results`, also where it was moved after the plan was made."""
        return {stage.key: stage_folder(results, self.results, stage.dir) for stage in self.stages}


def digest_of_plan(text: str) -> str:
    """Return 16 hex digits for the text of a plan."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_plan(path: Path) -> PlanFile:
    """Return the plan; raise ConfigError where there is none or it cannot be read."""
    try:
        return PlanFile.model_validate_json(read_bytes(path, _MAX_BYTES))
    except FileNotFoundError:
        raise ConfigError(path, "", None, "there is no plan", "run `snakemake`, which writes it") from None
    except OSError as error:
        raise ConfigError(path, "", None, f"cannot be read ({error.strerror or error})", "make it readable") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key, problem = ".".join(map(str, first["loc"])), first["msg"]
        raise ConfigError(path, key, None, f"not a plan ({problem})", "delete it and run `snakemake`") from None

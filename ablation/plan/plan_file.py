"""The plan: the schema of plan.json, the plan in memory, and the seeds that `add-seeds` adds."""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import Field, TypeAdapter, ValidationError

from ablation.config.names import Strict
from ablation.config.published_schema import PublishedFile
from ablation.config.study import Change, Study
from ablation.config.study_schema import Resources, StudyDefinition
from ablation.contract.atomic import update_text, write_text
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_bytes
from ablation.plan.collected import PLAN_FILE, stage_folder

if TYPE_CHECKING:
    from ablation.config.settings import Settings

ASSETS = "assets"
EXTRA_SEEDS = "seeds.json"
Address = tuple[str, str]  # a stage's id and key
_MAX_BYTES = 1 << 30
_MAX_SEEDS = 10_000
_CONTENT = TypeAdapter(dict[str, dict[str, Annotated[int, Field(ge=1, le=_MAX_SEEDS)]]])
_CONFIG = TypeAdapter(dict[str, Any])


class PlannedVariant(Strict):
    """One variant: its configuration at the plan's scale, and its changes from its parent."""

    name: str
    parent: str | None
    why: str
    label: str = ""
    file: str
    gpu: int | None = None
    resolved: dict[str, Any]
    factors: tuple[str, ...]
    changes: tuple[Change, ...]
    helper: bool = False  # written by `explain` between two other variants, and judged only by `explain`


class PlannedRun(Strict):
    """One variant with one seed; `stages` is {stage: key} in the order of the stages."""

    variant: str
    seed: int
    stages: dict[str, str]


class StudyRecord(StudyDefinition):
    """Definition of a study with its name, published numbers, last stage and the digest of its analysis plan."""

    name: str
    analysis_digest: str
    published: PublishedFile | None
    last_stage: str


class PlannedStudy(StudyRecord):
    """Study with its runs and its variants, parents before children."""

    variants: tuple[PlannedVariant, ...]
    runs: tuple[PlannedRun, ...]

    @property
    def parents(self) -> dict[str, str | None]:
        """Return {variant: parent} of the study; the parent of a root is None."""
        return {variant.name: variant.parent for variant in self.variants}


class PlannedStage(Strict):
    """One job: its id, key, inputs, resources and folder."""

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
    def address(self) -> Address:
        """Return the stage's id and key, by which the plan finds it."""
        return self.id, self.key

    @property
    def status(self) -> Path:
        """Return the path of the status file, which exists once the stage has ended."""
        return self.dir / "status.json"

    @property
    def arguments(self) -> list[str]:
        """Return the command-line arguments for `ablation.runner.run`."""
        words = ["--config", f"{self.dir}/config.json", "--out", str(self.dir), "--label", self.label]
        words += ["--gpus", str(self.resources.gpu)]
        return words + [word for name, folder in self.inputs.items() for word in ("--input", f"{name}={folder}")]


class PlanFile(Strict):
    """Content of plan.json; `stages` are in an order in which they can run."""

    scale: str
    results: Path
    reports: Path
    studies: tuple[PlannedStudy, ...]
    stages: tuple[PlannedStage, ...]

    def text(self) -> str:
        """Return the plan as JSON with one value per line, for readable diffs."""
        return f"{self.model_dump_json(by_alias=True, indent=1)}\n"

    def folders(self, results: Path) -> dict[str, Path]:
        """Return {stage key: folder} below `results`, even if the results were moved after planning."""
        return {stage.key: stage_folder(results, self.results, stage.dir) for stage in self.stages}


def digest_of_plan(text: str) -> str:
    """Return the digest of a plan's text, 16 hex digits."""
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def read_plan(path: Path) -> PlanFile:
    """Return the content of plan.json. Raises ConfigError if the file is missing or cannot be read."""
    try:
        return PlanFile.model_validate_json(read_bytes(path, _MAX_BYTES))
    except FileNotFoundError:
        raise ConfigError(path, "", None, "the plan does not exist", "run `snakemake`, which writes it") from None
    except OSError as error:
        raise ConfigError(path, "", None, f"cannot be read ({error.strerror or error})", "make it readable") from None
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        key, problem = ".".join(map(str, first["loc"])), first["msg"]
        raise ConfigError(path, key, None, f"is not a plan ({problem})", "delete it and run `snakemake`") from None


@dataclass(frozen=True)
class Plan:
    """The plan in memory: all studies, variants, runs and stages.

    upstream: the stages that each stage reads. configs: the content of each stage's config.json.
    """

    settings: "Settings"
    studies: dict[str, Study]
    content: PlanFile
    upstream: dict[Address, tuple[Address, ...]]
    configs: dict[Address, dict[str, Any]]

    @cached_property
    def stages(self) -> dict[Address, PlannedStage]:
        """Return all stages by address, in an order in which they can run."""
        return {stage.address: stage for stage in self.content.stages}

    def stage(self, id: str, key: str) -> PlannedStage:
        """Return the stage with an id (`debias.train`) and key. Raises ConfigError if the plan does not have it."""
        try:
            return self.stages[id, key]
        except KeyError:
            problem = f"this stage of {id} is no longer planned, because the configuration or the code has changed"
            raise ConfigError(self.file, "stages", key, problem, "start snakemake again") from None

    def stage_ids(self) -> list[str]:
        """Return the id of every kind of stage, `assets` first; each becomes a Snakemake rule."""
        return [ASSETS, *(f"{study.name}.{stage}" for study in self.studies.values() for stage in study.stages)]

    @property
    def file(self) -> Path:
        """Return the path of plan.json."""
        return self.settings.results / PLAN_FILE

    @cached_property
    def text(self) -> str:
        """Return the content of plan.json."""
        return self.content.text()

    @property
    def digest(self) -> str:
        """Return the digest of plan.json, 16 hex digits."""
        return digest_of_plan(self.text)

    def write(self) -> None:
        """Write plan.json and the config.json of every selected stage, if their contents have changed."""
        update_text(self.file, self.text)
        for stage in self.selected():
            text = f"{_CONFIG.dump_json(self.configs[stage.address], indent=1).decode()}\n"
            # Not synced, because ten thousand syncs take a minute; after a power cut a partial file is written again.
            update_text(stage.dir / "config.json", text, sync=False)

    @cached_property
    def parents_added(self) -> dict[str, list[str]]:
        """Return {study: parents} for the parents that run only because a selected child is judged against them."""
        added = {}
        for study in self._chosen_studies():
            named = [variant for variant in study.variants if variant.name in self.settings.variant]
            parents = dict.fromkeys(variant.parent for variant in named if variant.parent is not None)
            if new := [parent for parent in parents if parent not in self.settings.variant]:
                added[study.name] = new
        return added

    def selected(self, study: str | None = None) -> list[PlannedStage]:
        """Return the stages of the runs that the settings select (study, variant, seed, shard), and their inputs.

        The parents of selected variants are selected too.
        """
        if study not in self._selected:
            self._selected[study] = self._select(study)
        return list(self._selected[study])

    @cached_property
    def _selected(self) -> dict[str | None, list[PlannedStage]]:
        return {}

    def _select(self, study: str | None) -> list[PlannedStage]:
        wanted: set[Address] = set()
        for planned in self._chosen_studies():
            variants = {*self.settings.variant, *self.parents_added.get(planned.name, ())}
            seeds = self._sharded(sorted({run.seed for run in planned.runs}))
            for run in planned.runs if study in (None, planned.name) else ():
                if (not variants or run.variant in variants) and run.seed in seeds:
                    wanted |= {(f"{planned.name}.{stage}", key) for stage, key in run.stages.items()}
        needed = self.with_upstream(wanted)
        return [stage for address, stage in self.stages.items() if address in needed]

    def _sharded(self, seeds: list[int]) -> list[int]:
        """Return the seeds that the settings `shard` and `seed` select.

        All runs of a seed are in one shard, because they are paired.
        """
        first, count = map(int, (self.settings.shard or "1/1").split("/"))
        return [seed for seed in seeds[first - 1 :: count] if self.settings.seed in (None, seed)]

    def with_upstream(self, wanted: Iterable[Address]) -> set[Address]:
        """Return the addresses of the wanted stages and of all stages that they need."""
        addresses = set(wanted)
        waiting = list(addresses)
        while waiting:
            for source in self.upstream[waiting.pop()]:
                if source not in addresses:
                    addresses.add(source)
                    waiting.append(source)
        return addresses

    def statuses(self) -> list[Path]:
        """Return the status files of the selected stages."""
        return [stage.status for stage in self.selected()]

    def _chosen_studies(self) -> list[PlannedStudy]:
        return [study for study in self.content.studies if self.settings.study in (None, study.name)]


def load_extra_seeds(results: Path) -> dict[str, dict[str, int]]:
    """Return {study: {variant: number of seeds}} from the file of added seeds; {} if there is none.

    Raises ConfigError if the file is damaged, because to plan fewer seeds would undo decisions.
    """
    path = results / EXTRA_SEEDS
    try:
        return _CONTENT.validate_json(read_bytes(path), strict=True)
    except FileNotFoundError:
        return {}
    except (ValidationError, OSError) as error:
        key, value, why = "", None, str(error)
        if isinstance(error, ValidationError):
            first = error.errors(include_url=False)[0]
            key, value, why = ".".join(map(str, first["loc"])), first["input"] if first["loc"] else None, first["msg"]
        problem = f"must hold a number of seeds from 1 to {_MAX_SEEDS:,} for each study and variant ({why})"
        raise ConfigError(path, key, value, problem, "correct the file, or delete it to drop all added seeds") from None


def save_extra_seeds(results: Path, study: str, counts: Mapping[str, int]) -> None:
    """Raise a study's numbers of seeds in the file of added seeds to `counts`, {variant: number}; lower none."""
    content = load_extra_seeds(results)
    merged = dict(content.get(study, {}))
    for variant, count in counts.items():
        merged[variant] = max(count, merged.get(variant, 0))
    write_text(results / EXTRA_SEEDS, json.dumps(content | {study: merged}, indent=1, sort_keys=True) + "\n")


def extended(seeds: Sequence[int], count: int) -> tuple[int, ...]:
    """Return the seeds, extended to `count` by the smallest integers from 0 that are not among them."""
    result, candidate = list(seeds), 0
    while len(result) < count:
        if candidate not in seeds:
            result.append(candidate)
        candidate += 1
    return tuple(result)

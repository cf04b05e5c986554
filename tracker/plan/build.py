"""Variants times seeds become content-addressed stages: what runs, where it goes, and what it is made of."""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from contract.errors import ConfigError, TrackerError
from contract.fingerprint import HARNESS, Code, code_of, digest_of
from contract.status import misplaced, read_state
from tracker.config import dotted
from tracker.config.settings import Settings, load_settings, suggest
from tracker.config.study_schema import Resources
from tracker.config.variants import StageSpec, Study, Variant, load_studies
from tracker.plan.clock import settle_times
from tracker.plan.dirty_tree import check_trees
from tracker.plan.extra_seeds import extended, load_extra_seeds
from tracker.plan.files import plan_text, study_row, write_if_changed
from tracker.plan.keys import canonical, config_modules, key_of, key_values, path_digest
from tracker.plan.reports import claim_reports
from tracker.plan.retry import RETRIED, mark_stale, repair_corrupt, retry_failed

# The workflow imports this module only, so what it needs besides is here too.
__all__ = ["Plan", "PlannedStage", "Run", "TrackerError", "build_plan", "load_settings"]

ASSETS = "assets"
ASSET_ENTRY = "trainers.assets"
ASSET_MODEL = "trainers.assets_config:Asset"
ASSET_RESOURCES = Resources(threads=1, mem_mb=6000, runtime=120, gpu=0)
_PROJECT = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class PlannedStage:
    """One job: what it is called, reads and needs, and the folder that its key gives it."""

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
    config: dict[str, Any]
    upstream: tuple[tuple[str, str], ...]

    @property
    def status(self) -> Path:
        """Return the file whose presence means that the stage has ended."""
        return self.dir / "status.json"

    def row(self) -> dict[str, Any]:
        """Return the stage as plan.json holds it."""
        return {
            "id": self.id,
            "study": self.study,
            "stage": self.stage,
            "key": self.key,
            "seed": self.seed,
            "label": self.label,
            "entry": self.entry,
            "dir": str(self.dir),
            "inputs": {name: str(path) for name, path in self.inputs.items()},
            "resources": self.resources.model_dump(),
            "variants": list(self.variants),
        }


@dataclass(frozen=True)
class Run:
    """One variant with one seed: the keys of its stages, in order."""

    study: str
    variant: str
    seed: int
    stages: dict[str, str]


@dataclass(frozen=True)
class Plan:
    """Everything that the settings ask for; `stages` are in an order in which they can run."""

    settings: Settings
    studies: dict[str, Study]
    stages: dict[tuple[str, str], PlannedStage]
    runs: tuple[Run, ...]

    def stage(self, id: str, key: str) -> PlannedStage:
        """Return one stage by its id (`debias.train`) and key. Raises ConfigError if the plan has none."""
        try:
            return self.stages[id, key]
        except KeyError:
            problem = f"the plan has no stage {id} with this key"
            raise ConfigError(self.file, "stages", key, problem, "configuration or code changed: plan again") from None

    @property
    def file(self) -> Path:
        """Return the path of plan.json."""
        return self.settings.results / "plan.json"

    def selected(self, study: str | None = None) -> list[PlannedStage]:
        """Return the stages of the selected runs (settings' study, variant, seed), with all that they need."""
        wanted: set[tuple[str, str]] = set()
        for run in self.runs:
            if self._is_selected(run, study):
                wanted |= {(f"{run.study}.{stage}", key) for stage, key in run.stages.items()}
        waiting = list(wanted)
        while waiting:
            for above in self.stages[waiting.pop()].upstream:
                if above not in wanted:
                    wanted.add(above)
                    waiting.append(above)
        return [stage for name, stage in self.stages.items() if name in wanted]

    def statuses(self, study: str | None = None) -> list[Path]:
        """Return the status files of the selected stages."""
        return [stage.status for stage in self.selected(study)]

    def stage_ids(self) -> list[str]:
        """Return the id of every kind of stage, `assets` first: one Snakemake rule for each."""
        return [ASSETS, *(f"{study.name}.{stage}" for study in self.studies.values() for stage in study.stages)]

    def write(self) -> None:
        """Write plan.json if its content changed, and the config.json of every selected stage likewise."""
        write_if_changed(self.file, plan_text(self.as_dict()), sync=True)
        for stage in self.selected():
            # Not synced: a power cut may leave a part, then it is written again; ten thousand syncs take a minute.
            write_if_changed(
                stage.dir / "config.json", json.dumps(stage.config, ensure_ascii=False, indent=1) + "\n", sync=False
            )

    def pending(self, study: str | None = None) -> list[PlannedStage]:
        """Return the selected stages that have not ended, are damaged or, with `retry: failed`, are to run again."""
        again = ("missing", "running", "corrupt", *(RETRIED if self.settings.retry == "failed" else ()))
        return [stage for stage in self.selected(study) if read_state(stage.dir, stage.key).state in again]

    def check_trees(self, root: Path = _PROJECT) -> list[str]:
        """Return warnings about uncommitted files, as each study's `dirty_tree` asks. ConfigError where it refuses."""
        return check_trees(self, root)

    def settle_times(self) -> list[str]:
        """See `tracker.plan.clock`. To be called once, by the process that starts the jobs, before all else."""
        return settle_times(self)

    def claim_reports(self) -> None:
        """See `tracker.plan.reports`."""
        claim_reports(self.settings.results, self.settings.reports)

    def retry_failed(self) -> list[PlannedStage]:
        """See `tracker.plan.retry`. To be called once, by the process that starts the jobs."""
        return retry_failed(self)

    def repair(self) -> list[PlannedStage]:
        """Make stages with damaged files run again, and have what the database lacks collected; return the stages."""
        for stage in self.selected():
            if misplaced(stage.dir) == [stage.dir]:
                problem = f"is a link to {os.readlink(stage.dir)}" if stage.dir.is_symlink() else "is no folder"
                remedy = "put the folder itself there, or remove it"
                raise ConfigError(stage.dir, "", None, problem, f"{remedy}; `results` as a whole may be a link")
        mark_stale(self)
        return repair_corrupt(self)

    def as_dict(self) -> dict[str, Any]:
        """Return the content of plan.json."""
        runs: dict[str, list[Run]] = {name: [] for name in self.studies}
        for run in self.runs:
            runs[run.study].append(run)
        return {
            "scale": self.settings.scale,
            "results": str(self.settings.results),
            "reports": str(self.settings.reports),
            "studies": [study_row(study, runs[study.name]) for study in self.studies.values()],
            "stages": [stage.row() for stage in self.stages.values()],
        }

    def _is_selected(self, run: Run, study: str | None) -> bool:
        wanted = self.settings
        return (
            (study is None or run.study == study)
            and (wanted.study is None or run.study == wanted.study)
            and (not wanted.variants or run.variant in wanted.variants)
            and (wanted.seed is None or run.seed == wanted.seed)
        )


def build_plan(settings: Settings, gpu_pool: int | None = None, *, root: Path = _PROJECT) -> Plan:
    """Expand all variants and seeds of the settings' studies into stages.

    Args:
        settings: what is planned and selected.
        gpu_pool: accelerators that Snakemake was given; the settings' `gpus` by default.
        root: the folder that holds the packages whose code counts for the keys.

    Raises:
        ConfigError: the configuration is wrong, or the selection is empty.
    """
    studies = load_studies(settings, gpu_pool)
    builder = _Builder(settings, studies, root)
    for study in studies.values():
        builder.add_study(study)
    plan = builder.finish()
    chosen = [study for study in studies.values() if settings.study in (None, study.name)]
    names = [name for study in chosen for name in study.variants]
    for variant in settings.variants:
        if variant not in names:
            raise ConfigError("--config", "variant", variant, "there is no such variant", suggest(variant, names))
    return plan


@dataclass
class _Draft:
    """A stage while variants that share it are still being found."""

    spec: StageSpec
    study: Study | None
    key: str
    seed: int | None
    inputs: dict[str, tuple[str, str]]
    config: dict[str, Any]
    gpu: int
    variants: dict[str, None]
    label: str = ""

    @property
    def id(self) -> str:
        return ASSETS if self.study is None else f"{self.study.name}.{self.spec.name}"


class _Builder:
    """Collects the stages of all runs, each once."""

    def __init__(self, settings: Settings, studies: Mapping[str, Study], root: Path) -> None:
        self.settings, self.studies, self.root = settings, dict(studies), root
        self.drafts: dict[tuple[str, str], _Draft] = {}
        self.runs: list[Run] = []
        self.codes: dict[tuple[tuple[str, ...], frozenset[str]], Code] = {}
        self.extra_seeds = load_extra_seeds(settings.results)

    def add_study(self, study: Study) -> None:
        for variant in study.variants.values():
            parts = {name: self._parts(study, variant, spec) for name, spec in study.stages.items()}
            extra = self.extra_seeds.get(study.name, {}).get(variant.name, 0)
            for seed in extended(self.settings.seeds, extra):
                keys: dict[str, str] = {}
                for name, spec in study.stages.items():
                    keys[name] = self._add_stage(study, variant, spec, seed=seed, keys=keys, parts=parts[name])
                self.runs.append(Run(study.name, variant.name, seed, keys))

    def _parts(self, study: Study, variant: Variant, spec: StageSpec) -> dict[str, Any]:
        """Return what the key of a stage is made of, apart from the seed and the inputs."""
        values = variant.resolved_dict()
        rules = [rule for rule in study.health if rule.stage == spec.name and rule.severity == "abort"]
        return {
            "config": {name: values[name] for name in spec.reads},
            "hashed": key_values(variant.resolved, values, spec.reads),
            "rules": [rule.model_dump(mode="json") for rule in rules],
            "numbers": sorted((rule.numbers() for rule in rules), key=canonical),
            "code": self._code(study, variant, spec),
            "assets": {
                name: self._add_asset(study, variant, source.removeprefix("asset:"), spec)
                for name, source in spec.inputs.items()
                if source.startswith("asset:") and dotted.get(variant.resolved_dict(), source[6:], None) is not None
            },
        }

    def _code(self, study: Study, variant: Variant, spec: StageSpec) -> Code:
        used = getattr(variant.resolved, "used_modules", None)
        modules = (spec.entry, *(used(spec.name) if used else ()))
        try:
            return self._reached(modules, config_modules(study.config_model))
        except ConfigError as error:
            where = f"stages.{spec.name}.entry" if error.value == spec.entry else f"stages.{spec.name}"
            problem = f"{error.file}: {error.problem}"
            raise ConfigError(study.file, where, error.value, problem, error.remedy) from None

    def _reached(self, modules: tuple[str, ...], exclude: frozenset[str]) -> Code:
        if (modules, exclude) not in self.codes:
            self.codes[modules, exclude] = code_of((*modules, *HARNESS), self.root, exclude=exclude)
        return self.codes[modules, exclude]

    def _add_stage(
        self, study: Study, variant: Variant, spec: StageSpec, *, seed: int, keys: dict[str, str], parts: dict[str, Any]
    ) -> str:
        own_seed = seed if spec.seeded else None
        inputs = {
            name: parts["assets"].get(name) or (f"{study.name}.{source}", keys[source])
            for name, source in spec.inputs.items()
            if name in parts["assets"] or not source.startswith("asset:")  # an asset key that is null is no input
        }
        id = f"{study.name}.{spec.name}"
        key = key_of(
            {
                "stage": id,
                "config": parts["hashed"],
                "seed": own_seed,
                "inputs": {name: key for name, (_, key) in inputs.items()},
                "abort": parts["numbers"],
                "code": digest_of(parts["code"].trees),
            }
        )
        gpu = variant.gpu if variant.gpu is not None and spec.resources.gpu > 0 else spec.resources.gpu
        draft = self.drafts.get((id, key))
        if draft is None:
            config = {
                "stage": id,
                "key": key,
                "seed": own_seed,
                "entry": spec.entry,
                "model": study.config_path,
                "reads": list(spec.reads),
                "config": parts["config"],
                "abort_rules": parts["rules"],
                "code": parts["code"]._asdict(),
            }
            draft = self.drafts[id, key] = _Draft(spec, study, key, own_seed, inputs, config, gpu, {})
        draft.variants[variant.name] = None
        draft.gpu = max(draft.gpu, gpu)
        return key

    def _add_asset(self, study: Study, variant: Variant, name: str, spec: StageSpec) -> tuple[str, str]:
        value: Any = variant.resolved
        for part in name.split("."):
            value = getattr(value, part, None)
        if not isinstance(value, BaseModel) or not getattr(value, "sources", None):
            where = f"stages.{spec.name}.inputs"
            raise ConfigError(study.file, where, f"asset:{name}", "is not an asset", "name a key that holds sources")
        asset = value.model_dump(mode="json")
        digests = [path_digest(Path(source["path"])) for source in asset["sources"] if source.get("source") == "path"]
        code = self._reached((ASSET_ENTRY,), config_modules(type(value)))
        hashed = {"stage": ASSETS, "asset": key_values(value, asset), "digests": digests}
        key = key_of(hashed | {"code": digest_of(code.trees)})
        draft = self.drafts.get((ASSETS, key))
        if draft is None:
            config = {
                "stage": ASSETS,
                "key": key,
                "seed": None,
                "entry": ASSET_ENTRY,
                "model": ASSET_MODEL,
                "reads": sorted(asset),
                "config": asset,
                "abort_rules": [],
                "code": code._asdict(),
            }
            stage = StageSpec(ASSETS, ASSET_ENTRY, {}, (), False, ASSET_RESOURCES)
            draft = _Draft(stage, None, key, None, {}, config, 0, {}, label=_asset_label(asset))
            self.drafts[ASSETS, key] = draft
        draft.variants[variant.name] = None
        return ASSETS, key

    def finish(self) -> Plan:
        stages = {name: self._planned(draft) for name, draft in self._in_order()}
        return Plan(self.settings, self.studies, stages, tuple(self.runs))

    def _in_order(self) -> Iterator[tuple[tuple[str, str], _Draft]]:
        """Yield what comes first first: assets, then each study's stages in their declared order."""
        rank = {(ASSETS): (-1, 0)}
        for number, study in enumerate(self.studies.values()):
            rank |= {f"{study.name}.{name}": (number, place) for place, name in enumerate(study.stages)}
        yield from sorted(self.drafts.items(), key=lambda item: rank[item[0][0]])

    def _planned(self, draft: _Draft) -> PlannedStage:
        return PlannedStage(
            id=draft.id,
            study=ASSETS if draft.study is None else draft.study.name,
            stage=draft.spec.name,
            key=draft.key,
            seed=draft.seed,
            label=draft.label or _label(draft),
            entry=draft.spec.entry,
            dir=self._dir(draft.id, draft.key),
            inputs={name: self._dir(*above) for name, above in draft.inputs.items()},
            resources=draft.spec.resources.model_copy(update={"gpu": draft.gpu}),
            variants=tuple(draft.variants),
            config=draft.config,
            upstream=tuple(draft.inputs.values()),
        )

    def _dir(self, id: str, key: str) -> Path:
        return self.settings.results.joinpath("stages", *id.split(".", 1), key)


def _label(draft: _Draft) -> str:
    """`v8 seed 0`, `v4, v5 and 3 more, seed 0`, `all variants`."""
    assert draft.study is not None
    names = list(draft.variants)
    seed = "" if draft.seed is None else f"seed {draft.seed}"
    if len(names) == 1:
        return f"{names[0]} {seed}".strip()
    if len(names) == len(draft.study.variants):
        shown = "all variants"
    elif len(names) <= 3:
        shown = f"{', '.join(names[:-1])} and {names[-1]}"
    else:
        shown = f"{names[0]}, {names[1]} and {len(names) - 2} more"
    return f"{shown}, {seed}" if seed else shown


def _asset_label(asset: Mapping[str, Any]) -> str:
    source = asset["sources"][0]
    name = next((source[key] for key in ("repo", "package", "path", "architecture") if key in source), "")
    return f"{asset.get('kind', 'asset')} {name}".strip()

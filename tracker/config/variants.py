"""Studies and their variants: read, inherit, merge, scale, check. A variant is a diff against its one parent."""

import importlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from contract.errors import ConfigError
from tracker.config import dotted
from tracker.config.constraints import check_exclusions, check_gpu, factor_of
from tracker.config.published_schema import PublishedFile
from tracker.config.scale import Scale, load_scale
from tracker.config.settings import Settings, suggest
from tracker.config.study_schema import HealthRule, Resources, StudyFile, is_safe_name
from tracker.config.validation import check_key, check_known, validate
from tracker.config.yaml_io import load_yaml

DEFINITION = {"table", "curves", "figures", "analysis", "health", "trained_model"}  # what the plan takes over as it is
RESERVED_KEYS = ("extends", "why", "gpu")
_RESERVED_STUDIES = ("assets",)  # results/stages/assets holds the shared models and data sets


@dataclass(frozen=True)
class Change:
    """One leaf that differs; `factor` is the group that it counts for.

    `no_effect` says why it cannot matter at the study's scale, where the config model knows (`unseen_changes`).
    """

    key: str
    old: Any
    new: Any
    factor: str
    no_effect: str = ""


@dataclass(frozen=True)
class StageSpec:
    """One declared step of a study, with this scale's resources."""

    name: str
    entry: str
    inputs: dict[str, str]
    reads: tuple[str, ...]
    seeded: bool
    resources: Resources


@dataclass(frozen=True)
class Variant:
    """One configuration. `declared` is what the files say (all keys), `resolved` the same after the scale."""

    study: str
    name: str
    parent: str | None
    why: str
    file: Path
    gpu: int | None
    overrides: dict[str, Any]
    declared: dict[str, Any]
    resolved: BaseModel
    changes: tuple[Change, ...]
    factors: tuple[str, ...]

    def resolved_dict(self) -> dict[str, Any]:
        """Return all keys of the resolved configuration as plain values, to be read only."""
        return self._values

    @cached_property
    def _values(self) -> dict[str, Any]:
        return self.resolved.model_dump(mode="json")


@dataclass(frozen=True)
class Study:
    """A question with its variants, parents before children."""

    name: str
    title: str
    question: str
    source: str
    file: Path
    config_path: str
    config_model: type[BaseModel]
    factors: dict[str, list[str]]
    stages: dict[str, StageSpec]
    variants: dict[str, Variant]
    definition: dict[str, Any]
    health: tuple[HealthRule, ...]
    dirty_tree: str
    published: dict[str, Any] | None

    @property
    def last_stage(self) -> str:
        """Return the stage whose metrics are the run's results."""
        return next(reversed(self.stages))


@dataclass
class _File:
    """A variant file as written."""

    name: str
    path: Path
    parent: str | None
    why: str
    gpu: int | None
    overrides: dict[str, Any]
    children: list[str] = field(default_factory=list)


def load_studies(settings: Settings, gpu_pool: int | None = None) -> dict[str, Study]:
    """Read, resolve and check every variant of the settings' studies.

    Args:
        settings: which studies, at which scale.
        gpu_pool: accelerators that there are (`--resources gpu=N`); the settings' `gpus` by default.

    Raises:
        ConfigError: the first thing that is wrong, with file, key, value and remedy.
    """
    pool = settings.gpus if gpu_pool is None else gpu_pool
    scale = load_scale(settings)
    return {name: load_study(settings.configs, name, scale.study(name), pool) for name in settings.studies}


def diff(study: Study, a: str, b: str, *, scaled: bool = False) -> list[Change]:
    """Return every leaf in which variant `b` differs from variant `a`; as declared, or at the study's scale."""
    for name in (a, b):
        if name not in study.variants:
            raise ConfigError(study.file.parent, name, None, "there is no such variant", suggest(name, study.variants))
    one, two = study.variants[a], study.variants[b]
    if scaled:
        return _noted(_changes(one.resolved_dict(), two.resolved_dict(), study.factors), one.resolved, two.resolved)
    return _noted(_changes(one.declared, two.declared, study.factors), one.resolved, two.resolved)


def load_study(configs: Path, name: str, scale: Scale, pool: int) -> Study:
    """Read one study; see `load_studies`."""
    folder = configs / "studies" / name
    file = folder / "_study.yaml"
    if not is_safe_name(name) or name in _RESERVED_STUDIES:
        raise ConfigError(
            folder, "", None, "is not a usable study name", "use letters, digits, '-' and '_'; not `assets`"
        )
    written = _load_study_file(file)
    model = _import_model(written.config, file)
    _check_keys(written, model, file)
    scale.check(model, set(written.stages))
    stages = _stages(written, scale, pool, file)
    base = _declare(model, {}, written.base, file, "base.")
    files = _read_variants(folder, model, pool)
    scale.refuse_overridden({variant.name: variant.overrides for variant in files.values()})

    variants: dict[str, Variant] = {}
    for variant in _parents_first(files):
        parent = base if variant.parent is None else variants[variant.parent].declared
        declared = _declare(model, parent, variant.overrides, variant.path, "")
        _refuse_idle(variant, parent, declared)
        resolved = scale.apply(model, declared, variant.path)
        for config in (declared, resolved.model_dump(mode="json")):
            changed = [key for key, _ in dotted.leaves(variant.overrides)]
            check_exclusions(written.exclusions, config, variant.path, changed)
        _refuse_without_effect(variant, resolved)
        changes: tuple[Change, ...] = ()
        if variant.parent is not None:
            found = _changes(parent, declared, written.factors)
            changes = tuple(_noted(found, variants[variant.parent].resolved, resolved))
        variants[variant.name] = Variant(
            study=name,
            name=variant.name,
            parent=variant.parent,
            why=variant.why,
            file=variant.path,
            gpu=variant.gpu,
            overrides=variant.overrides,
            declared=declared,
            resolved=resolved,
            changes=changes,
            factors=tuple(dict.fromkeys(change.factor for change in changes)),
        )
    _check_figures(written, file, variants)
    return Study(
        name=name,
        title=written.title,
        question=written.question,
        source=written.source,
        file=file,
        config_path=written.config,
        config_model=model,
        factors=written.factors,
        stages=stages,
        variants=variants,
        definition=written.model_dump(mode="json", include=DEFINITION),
        health=tuple(written.health),
        dirty_tree=written.dirty_tree,
        published=_load_published(configs, written, file, variants),
    )


def _load_study_file(file: Path) -> StudyFile:
    data = load_yaml(file)
    known = {info.alias or key for key, info in StudyFile.model_fields.items()}
    for key, value in data.items():
        if key not in known:
            raise ConfigError(file, key, value, "is not a key of _study.yaml", suggest(key, sorted(known)))
    return validate(StudyFile, data, file)


def _import_model(path: str, file: Path) -> type[BaseModel]:
    module, name = path.split(":")
    try:
        model = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(file, "config", path, f"cannot be imported ({error})", "write module:Class") from error
    if not (isinstance(model, type) and issubclass(model, BaseModel)) or model.model_config.get("extra") != "forbid":
        raise ConfigError(file, "config", path, "is not a strict pydantic model", 'use BaseModel with extra="forbid"')
    for key, info in model.model_fields.items():
        if info.is_required():
            problem = f"its key {key!r} has no default"
            raise ConfigError(file, "config", path, problem, "give it one: a stage gets only the keys it reads")
        if key in RESERVED_KEYS:
            raise ConfigError(file, "config", path, f"its key {key!r} is reserved", "rename it")
    return model


def _check_keys(written: StudyFile, model: type[BaseModel], file: Path) -> None:
    """Refuse keys that the config model does not have, wherever `_study.yaml` names one."""
    for name, keys in written.factors.items():
        for key in keys:
            check_key(model, key, file, f"factors.{name}")
    for number, exclusion in enumerate(written.exclusions):
        for key in exclusion.named_keys():
            check_key(model, key, file, f"exclusions.{number}")
    for name, stage in written.stages.items():
        for key in stage.reads:
            if key not in model.model_fields:
                remedy = suggest(key, sorted(model.model_fields))
                raise ConfigError(
                    file, f"stages.{name}.reads", key, "is not a top-level key of the config model", remedy
                )
        for label, source in stage.inputs.items():
            if source.startswith("asset:"):
                check_key(model, source.removeprefix("asset:"), file, f"stages.{name}.inputs.{label}")


def _stages(written: StudyFile, scale: Scale, pool: int, file: Path) -> dict[str, StageSpec]:
    stages = {}
    for name, stage in written.stages.items():
        override = scale.definition.resources.get(name)
        changed = {} if override is None else override.model_dump(exclude_none=True)
        resources = stage.resources.model_copy(update=changed)
        check_gpu(resources.gpu, pool, scale.file if "gpu" in changed else file, f"stages.{name}.resources.gpu")
        stages[name] = StageSpec(name, stage.entry, stage.inputs, tuple(stage.reads), stage.seeded, resources)
    return stages


def _read_variants(folder: Path, model: type[BaseModel], pool: int) -> dict[str, _File]:
    files = {}
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in (".yml", ".yaml") and path.suffix != ".yaml":
            raise ConfigError(path, "", None, f"has the suffix {path.suffix}", "rename it to .yaml")
        if path.suffix == ".yaml" and path.name.lower() == "_study.yaml" != path.name:
            raise ConfigError(path, "", None, "is no name of a variant", "write _study.yaml, or name it otherwise")
        if path.suffix == ".yaml" and path.name != "_study.yaml":
            files[path.stem] = _read_variant(path, model, pool)
    if not files:
        raise ConfigError(folder, "", None, "holds no variant", "add one, for example baseline.yaml")
    for variant in files.values():
        if variant.parent is None:
            continue
        if variant.parent not in files:
            remedy = suggest(variant.parent, files)
            raise ConfigError(variant.path, "extends", variant.parent, "there is no such variant", remedy)
        files[variant.parent].children.append(variant.name)
    return files


def _read_variant(path: Path, model: type[BaseModel], pool: int) -> _File:
    if not is_safe_name(path.stem):
        remedy = "use letters, digits, '.', '-', '_', not starting with '.' or '-'"
        raise ConfigError(path, "", None, "is not a usable variant name", remedy)
    overrides = load_yaml(path)
    parent, why, gpu = (overrides.pop(key, None) for key in RESERVED_KEYS)
    if parent is not None and not isinstance(parent, str):
        raise ConfigError(
            path, "extends", parent, "is not the name of one variant", "write one name, in quotes if a number"
        )
    if not isinstance(why, str) or not why.strip():
        raise ConfigError(path, "why", why, "is missing", "say in a sentence why this variant exists")
    if gpu is not None:
        if not isinstance(gpu, int) or isinstance(gpu, bool) or gpu < 1:
            raise ConfigError(path, "gpu", gpu, "is not a number of devices", "write 1, 2, ...")
        check_gpu(gpu, pool, path)
    check_known(model, overrides, path)
    return _File(path.stem, path, parent, why.strip(), gpu, overrides)


def _parents_first(files: Mapping[str, _File]) -> Iterator[_File]:
    """Yield variants parent before child, siblings in natural order (v2 before v10). Raises for a cycle."""
    reached: set[str] = set()
    stack = sorted((name for name, file in files.items() if file.parent is None), key=natural, reverse=True)
    while stack:
        file = files[stack.pop()]
        reached.add(file.name)
        stack += sorted(file.children, key=natural, reverse=True)
        yield file
    if len(reached) < len(files):
        cycle = _cycle(next(file for name, file in files.items() if name not in reached), files)
        first = files[cycle[0]]
        problem = f"the lineage is a cycle: {' -> '.join([*cycle, cycle[0]])}"
        raise ConfigError(
            first.path, "extends", first.parent, problem, "remove `extends` from the one that is the root"
        )


def _cycle(start: _File, files: Mapping[str, _File]) -> list[str]:
    path: list[str] = []
    name = start.name
    while name not in path:
        path.append(name)
        name = files[name].parent or name
    return path[path.index(name) :]


def natural(name: str) -> list[tuple[int, int, str]]:
    """Return a sort key in which v2 comes before v10."""
    return [(0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.findall(r"\d+|\D+", name)]


def _declare(
    model: type[BaseModel], parent: Mapping[str, Any], overrides: Mapping[str, Any], file: Path, prefix: str
) -> dict[str, Any]:
    return validate(model, dotted.merge_into(model, parent, overrides), file, prefix).model_dump(mode="json")


def _refuse_idle(variant: _File, parent: Mapping[str, Any], declared: Mapping[str, Any]) -> None:
    """An override that changes nothing is a mistake: the reader believes that it does."""
    for key, value in dotted.leaves(variant.overrides):
        if json.dumps(dotted.get(declared, key, None)) == json.dumps(dotted.get(parent, key, {"no": "value"})):
            owner = f"the parent {variant.parent}" if variant.parent else "the base"
            raise ConfigError(variant.path, key, value, f"{owner} has this value already", "remove the line")


def _refuse_without_effect(variant: _File, resolved: BaseModel) -> None:
    """Refuse an override of a key that the config model's `without_effect` says changes nothing in this variant."""
    idle: Mapping[str, str] = getattr(resolved, "without_effect", dict)()
    for key, value in dotted.leaves(variant.overrides):
        for other, reason in idle.items():
            if value is not None and dotted.covers(other, key):
                problem = f"has no effect: {reason}"
                raise ConfigError(variant.path, key, value, problem, "remove the line, or change what it depends on")


def _changes(old: Mapping[str, Any], new: Mapping[str, Any], factors: Mapping[str, list[str]]) -> Iterator[Change]:
    before, after = dict(dotted.leaves(old)), dict(dotted.leaves(new))
    for key in dict.fromkeys([*before, *after]):
        if _opened(key, before, after) or _opened(key, after, before):
            continue  # null became a mapping, or the other way round: the keys below it tell
        if before.get(key) != after.get(key) or (key in before) != (key in after):
            yield Change(key, before.get(key), after.get(key), factor_of(key, factors))


def _noted(changes: Iterable[Change], old: BaseModel, new: BaseModel) -> list[Change]:
    """Add why a change cannot matter: a config model may have `unseen_changes(parent) -> {dotted key: reason}`."""
    known = getattr(new, "unseen_changes", None)
    reasons = known(old) if known else {}
    return [replace(change, no_effect=reasons.get(change.key, "")) for change in changes]


def _opened(key: str, leaves: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return whether `key` is null in `leaves` and a mapping with content in `others`."""
    return key in leaves and leaves[key] is None and key not in others and any(o.startswith(f"{key}.") for o in others)


def _check_figures(written: StudyFile, file: Path, variants: Mapping[str, Variant]) -> None:
    for figure in written.figures:
        for name in [*figure.variants, *(name for panel in figure.panels for name in panel.variants or [])]:
            if name not in variants:
                where = f"figures.{figure.name}.variants"
                raise ConfigError(file, where, name, "there is no such variant", suggest(name, variants))


def _load_published(
    configs: Path, written: StudyFile, file: Path, variants: Mapping[str, Variant]
) -> dict[str, Any] | None:
    if written.published is None:
        return None
    if not is_safe_name(written.published):
        raise ConfigError(file, "published", written.published, "is not a file name", "write the name without .yaml")
    path = configs / "published" / f"{written.published}.yaml"
    published = validate(PublishedFile, load_yaml(path), path)
    named = [(f"rows.{name}", name) for name in published.rows]
    named += [("deltas", name) for delta in published.deltas for name in (delta.variant, delta.against)]
    named += [("training", reading.variant) for reading in published.training]
    for key, name in named:
        if name not in variants:
            raise ConfigError(path, key, name, "there is no such variant", suggest(name, variants))
    for reading in published.training:
        if reading.stage is not None and reading.stage not in written.stages:
            remedy = suggest(reading.stage, written.stages)
            raise ConfigError(path, "training", reading.stage, "there is no such stage", remedy)
    for column in written.table.columns:
        if column.published is not None and column.published not in published.columns:
            remedy = suggest(column.published, published.columns)
            raise ConfigError(file, "table.columns", column.published, f"is not a column of {path}", remedy)
    return published.model_dump(mode="json")

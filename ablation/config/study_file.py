"""Read `_study.yaml` and the published numbers that it names, and check them against the config model and variants."""

import importlib
import os
import sys
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any

from pydantic import BaseModel

from ablation.config.base_model import model_of_base
from ablation.config.dotted import covers, get, leaves
from ablation.config.formats import formats_of
from ablation.config.names import NO_VARIANT, RESERVED_KEYS, check_name, is_safe_name, suggest
from ablation.config.published_schema import PublishedFile, load_published
from ablation.config.study_schema import ASSET_MODEL, ASSET_PREFIX, StageDefinition, StudyFile
from ablation.config.validation import check_key, known_keys, validate
from ablation.config.yaml_io import load_yaml
from ablation.contract.command import placeholders
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import counted

_BAD_NAME = "is not a valid file name", "write only the name, without a folder and without .yaml"
READERS = tuple(formats_of("collect"))
"""Names of the readers for the key `collect` of a stage."""

COLUMNS = {"items": ("item", "subset", "protocol", "name", "value", "cluster"), "metrics": ("step", "name", "value")}
"""Columns that `collect` may rename, by reader, as in `{items: {path: predictions.csv, item: id}}`."""


def read_study_file(file: Path) -> StudyFile:
    """Read `_study.yaml` and the file of stages that it may name. Raises ConfigError if one of them is not valid."""
    data = load_yaml(file)
    if isinstance(shared := data.get("stages"), str):
        if not is_safe_name(shared):
            raise ConfigError(file, "stages", shared, *_BAD_NAME)
        data["stages"] = load_yaml(file.parents[1] / f"{shared}.yaml")
    return validate(StudyFile, data, file)


def config_model(written: StudyFile, file: Path) -> type[BaseModel]:
    """Return the config model that the study file names, or else a model made from `base`.

    Raises ConfigError if the model cannot be used or made.
    """
    if written.config is not None:
        return import_model(written.config, file)
    sources = (source for stage in written.stages.values() for source in stage.inputs.values())
    assets = [source.removeprefix(ASSET_PREFIX) for source in sources if source.startswith(ASSET_PREFIX)]
    model: dict[str, type[BaseModel]] = {}
    if assets:
        module, name = ASSET_MODEL.split(":")
        try:
            model = dict.fromkeys(assets, getattr(import_beside_configs(module), name))
        except ImportError as error:
            problem = f"only the trainers in the tracker's repository can fetch assets ({error})"
            raise ConfigError(
                file,
                "base",
                assets[0],
                problem,
                "run the study in a clone of the repository, or let the stage's command fetch the files",
            ) from None
    return model_of_base(written.base, file, model)


def import_model(path: str, file: Path) -> type[BaseModel]:
    """Return the config model that `path` names as `module:Class`.

    Raises ConfigError if the import fails, or if the model allows unknown keys, has a reserved key, or has a key
    without a default.
    """
    model = imported(path, file, "config", "Class")
    if not (isinstance(model, type) and issubclass(model, BaseModel)) or model.model_config.get("extra") != "forbid":
        raise ConfigError(file, "config", path, "is not a strict pydantic model", 'use BaseModel with extra="forbid"')
    for key, info in model.model_fields.items():
        if info.is_required():
            problem = f"the key {key!r} of this model has no default"
            raise ConfigError(
                file,
                "config",
                path,
                problem,
                "give the key a default, because a stage gets only the keys that it reads",
            )
        if key in RESERVED_KEYS:
            raise ConfigError(file, "config", path, f"the key {key!r} of this model is reserved", "rename the key")
    return model


def imported(path: str, file: Path, key: str, what: str) -> Any:
    """Import what `path` names as `module:Class` or `module:function` (`what` is the part after the colon).

    Raises ConfigError, for the key `key` of the study file, if the import fails.
    """
    module, name = path.split(":")
    try:
        return getattr(import_beside_configs(module), name)
    except (ImportError, AttributeError) as error:
        raise ConfigError(file, key, path, f"cannot be imported ({error})", f"write module:{what}") from error


def import_beside_configs(name: str) -> ModuleType:
    """Import a module, such as `trainers`, which may also be in the working directory, as with `python -m`."""
    if (folder := os.getcwd()) not in sys.path:
        sys.path.append(folder)
    return importlib.import_module(name)


def check_keys(written: StudyFile, model: type[BaseModel], file: Path) -> None:
    """Raise ConfigError for keys in `_study.yaml` that the config model does not have."""
    for name, keys in written.factors.items():
        for key in keys:
            check_key(model, key, file, f"factors.{name}")
    for number, exclusion in enumerate(written.exclusions):
        for key in exclusion.named_keys():
            check_key(model, key, file, f"exclusions.{number}")
    for name, stage in written.stages.items():
        for key in stage.reads:
            problem = "is not a top-level key of the config model"
            check_name(key, sorted(model.model_fields), file, f"stages.{name}.reads", problem)
        for label, source in stage.inputs.items():
            if source.startswith(ASSET_PREFIX):
                check_key(model, source.removeprefix(ASSET_PREFIX), file, f"stages.{name}.inputs.{label}")


def check_all_read(written: StudyFile, model: type[BaseModel], file: Path) -> None:
    """Raise ConfigError for a key that no stage gets, because changing its value would have no effect."""
    model_keys, reached = known_keys(model), reached_keys(written, written.stages)
    for key in sorted(model_keys):
        if any(other.startswith(f"{key}.") for other in model_keys) or any(covers(other, key) for other in reached):
            continue
        where, value = ("config", written.config) if written.config else (f"base.{key}", get(written.base, key, None))
        problem = f"no stage reads {key if written.config else 'this key'}, so changing its value would have no effect"
        remedy = "add the key to the `reads` of a stage and, if the stage is a command, to the command ({config} or "
        remedy += "{value:KEY}), or remove the key"
        raise ConfigError(file, where, value, problem, remedy)


def check_reaches_results(overrides: Mapping[str, Any], written: StudyFile, file: Path) -> None:
    """Raise ConfigError if a variant's key reaches no stage on which the results depend."""
    leading = [next(reversed(written.stages))]
    for name in leading:
        above = written.stages[name].inputs.values()
        leading += [other for other in above if other in written.stages and other not in leading]
    reached = reached_keys(written, leading)
    for key, value in leaves(overrides):
        if not any(covers(other, key) for other in reached):
            problem = "no stage that leads to the results reads this key, so the variant would be equal to its parent"
            aside = [name for name in written.stages if any(covers(o, key) for o in reached_keys(written, [name]))]
            other = f", or add {aside[0]}, which reads the key, to the `inputs` of such a stage" if aside else ""
            remedy = (
                f"remove the line{',' if aside else ', or'} add the key to the `reads` of a stage that leads to the "
            )
            remedy += f"results{other}"
            raise ConfigError(file, key, value, problem, remedy)


def reached_keys(written: StudyFile, stages: Iterable[str]) -> set[str]:
    """Return the dotted keys whose values at least one of the stages gets."""
    reached = set()
    for stage in (written.stages[name] for name in stages):
        sources = stage.inputs.values()
        reached |= {source.removeprefix(ASSET_PREFIX) for source in sources if source.startswith(ASSET_PREFIX)}
        named = placeholders(stage.words) if stage.command is not None else []
        if stage.command is None or any(placeholder.kind in ("config", "overrides") for placeholder in named):
            reached |= set(stage.reads)
        reached |= {placeholder.name for placeholder in named if placeholder.kind == "value"}
    return reached


def check_samples(written: StudyFile, file: Path, configs: Mapping[str, Mapping[str, Any]]) -> None:
    """Raise ConfigError if a variant's number of samples is unknown, or too small for pass@k or cons@k."""
    analysis = written.analysis
    for variant, config in configs.items() if analysis.samples is not None else ():
        samples = analysis.samples_in(config)
        if samples is None:
            problem = f"a configuration key does not hold a whole number in {variant}"
            remedy = "write a number, or name configuration keys that hold whole numbers"
            raise ConfigError(file, "analysis.samples", analysis.samples, problem, remedy)
        if analysis.k > samples:
            problem = f"needs {analysis.k} samples, but items of {variant} have {counted(samples, 'sample')}"
            remedy = f"sample each item more often, or reduce {'pass_at' if analysis.pass_at else 'cons_at'}"
            raise ConfigError(file, "analysis", analysis.outcome, problem, remedy)


def read_published(configs: Path, written: StudyFile, file: Path) -> PublishedFile | None:
    """Read the published numbers that the study names, if any.

    Raises ConfigError if the file is not valid, or if its stages or columns are not those of the study.
    """
    if written.published is None:
        return None
    if not is_safe_name(written.published):
        raise ConfigError(file, "published", written.published, *_BAD_NAME)
    path = _published_path(configs, written)
    published = load_published(path)
    for reading in published.training:
        if reading.stage is not None:
            check_name(reading.stage, written.stages, path, "training", "the stage does not exist")
    for column in written.table.columns:
        if column.published is not None:
            problem = f"is not a column of {path}"
            check_name(column.published, published.columns, file, "table.columns", problem)
    return published


def _published_path(configs: Path, written: StudyFile) -> Path:
    return configs / "published" / f"{written.published}.yaml"


def check_variants(
    configs: Path, written: StudyFile, published: PublishedFile | None, file: Path, variants: Iterable[str]
) -> None:
    """Raise ConfigError if a figure, a comparison or a published number names a variant that does not exist."""
    named = [(file, f"figures.{figure.name}.variants", name) for figure in written.figures for name in figure.names()]
    if isinstance(written.analysis.comparisons, list):
        named += [(file, "analysis.comparisons", name) for pair in written.analysis.comparisons for name in pair]
    if published is not None:
        path = _published_path(configs, written)
        named += [(path, f"rows.{name}", name) for name in published.rows]
        named += [(path, "deltas", name) for delta in published.deltas for name in (delta.variant, delta.against)]
        named += [(path, "training", reading.variant) for reading in published.training]
    variant_names = list(variants)
    for place, key, name in named:
        check_name(name, variant_names, place, key, NO_VARIANT)


def check_commands(written: StudyFile, model: type[BaseModel], file: Path) -> None:
    """Raise ConfigError for a command whose placeholders, keys or readers do not fit its stage."""
    for name, stage in written.stages.items():
        if stage.command is not None:
            _check_command(stage, model, file, f"stages.{name}")
    last = next(reversed(written.stages))
    if written.stages[last].command is not None and not written.stages[last].collect:
        problem = "the last stage gives the study's results, but no reader reads the files of its command"
        raise ConfigError(file, f"stages.{last}.collect", None, problem, f"choose a reader from {', '.join(READERS)}")


def _check_command(stage: StageDefinition, model: type[BaseModel], file: Path, where: str) -> None:
    named = placeholders(stage.words)
    kinds = {placeholder.kind for placeholder in named}
    for placeholder in named:
        if placeholder.kind == "value":
            _check_value(placeholder.name, stage, model, file, f"{where}.command")
        elif placeholder.kind == "input" and placeholder.name not in stage.inputs:
            problem = "the stage has no input of this name"
            remedy = suggest(placeholder.name, stage.inputs)
            raise ConfigError(file, f"{where}.command", str(placeholder), problem, remedy)
    if stage.seeded and "seed" not in kinds:
        problem = (
            "the stage is seeded, but its command does not contain {seed}, so all seeds would give the same result"
        )
        remedy = "add {seed}, or set `seeded: false` (a stage that reads a seeded stage still runs once per seed)"
        raise ConfigError(file, f"{where}.command", stage.command, problem, remedy)
    if "seed" in kinds and not stage.seeded:
        remedy = "set `seeded: true`, or remove {seed}"
        raise ConfigError(file, f"{where}.seeded", False, "the command contains {seed}", remedy)
    if stage.reads and not kinds & {"config", "overrides", "value"}:
        problem = f"the command gets none of the keys in `reads` ({', '.join(stage.reads)})"
        remedy = "add {config}, {overrides} or {value:KEY} to the command"
        raise ConfigError(file, f"{where}.command", stage.command, problem, remedy)
    if kinds & {"config", "overrides"} and not stage.reads:
        problem = "is empty, so {config} and {overrides} would also be empty"
        raise ConfigError(file, f"{where}.reads", [], problem, "name the top-level keys that the command needs")
    if stage.steps is not None:
        _check_value(stage.steps, stage, model, file, f"{where}.steps")
    for collected in stage.collect:
        check_name(collected.reader, READERS, file, f"{where}.collect", "the reader does not exist")
        key, known = f"{where}.collect.{collected.reader}", COLUMNS.get(collected.reader, ())
        odd = [name for name in collected.columns if name not in known]
        if known and odd:
            remedy = suggest(odd[0], (*known, "path", "values"))
            raise ConfigError(file, key, odd[0], f"the reader {collected.reader} has no column of this name", remedy)
        if odd or (collected.values and not known):
            remedy = f"write {{{collected.reader}: PATH}}"
            raise ConfigError(
                file, key, (*odd, "values")[0], "files of this reader have no columns to choose from", remedy
            )


def _check_value(key: str, stage: StageDefinition, model: type[BaseModel], file: Path, where: str) -> None:
    check_key(model, key, file, where)
    top = key.partition(".")[0]
    if top not in stage.reads:
        problem = f"the stage does not read {top}"
        raise ConfigError(
            file, where, key, problem, f"add {top} to the stage's `reads`, so that a changed value runs the stage again"
        )

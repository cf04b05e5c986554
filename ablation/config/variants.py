"""Read studies and their variants: fill in the values inherited from parents, apply the scale, and check the result."""

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ablation.config import dotted, study_file
from ablation.config.names import NO_VARIANT, RESERVED_KEYS, check_name, is_safe_name
from ablation.config.scale import Scale, load_scale
from ablation.config.settings import Settings
from ablation.config.study import Change, Study, Variant, VariantFile, changes
from ablation.config.study_schema import Exclusion, StageDefinition, StudyFile
from ablation.config.validation import check_known, validate
from ablation.config.variant_tree import ancestors, in_natural_order, walk
from ablation.config.yaml_io import load_yaml
from ablation.contract.errors import ConfigError, Mistakes

_RESERVED_STUDIES = ("assets",)  # results/stages/assets holds the shared models and data sets


def load_studies(settings: Settings) -> dict[str, Study]:
    """Return the studies of the settings by name, with the variants to plan, after checking all their variants.

    Raises a ConfigError for the first mistake, which carries the others.
    """
    scale = load_scale(settings.configs, settings.scale)
    mistakes, studies = Mistakes(), {}
    for name, planned in settings.studies.items():
        with mistakes:
            studies[name] = _part(_load_study(settings.configs, name, scale.study(name)), planned)
    mistakes.refuse()
    return studies


def _part(study: Study, planned: Iterable[str]) -> Study:
    """Return the study with the planned variants and their ancestors, or with all variants if `planned` is empty."""
    parents = {name: variant.parent for name, variant in study.variants.items()}
    kept = {above for name in planned for above in (name, *ancestors(name, parents))}
    return replace(study, variants={name: each for name, each in study.variants.items() if name in kept or not kept})


def _load_study(configs: Path, name: str, scale: Scale) -> Study:
    folder = configs / "studies" / name
    file = folder / "_study.yaml"
    if not is_safe_name(name) or name in _RESERVED_STUDIES:
        remedy = "use letters, digits, '.', '-' and '_', but not the reserved name `assets`"
        raise ConfigError(folder, "", None, "is not a valid study name", remedy)
    written = study_file.read_study_file(file)
    model = study_file.config_model(written, file)
    mistakes = Mistakes()
    for check in (study_file.check_keys, study_file.check_commands, study_file.check_all_read):
        with mistakes:
            check(written, model, file)
    mistakes.refuse()
    scale.check(model, set(written.stages))
    stages = _stages(written, scale)
    base = _plain(validate(model, written.base, file, "base."))
    files = read_variants(folder, model)
    scale.refuse_overridden({variant.name: variant.overrides for variant in files})
    variants: dict[str, Variant] = {}
    for variant in files:
        if variant.parent is not None and variant.parent not in variants:
            continue  # it has a mistake of its own
        parent = None if variant.parent is None else variants[variant.parent]
        with mistakes:
            variants[variant.name] = resolve(
                variant, parent, study=name, written=written, base=base, model=model, scale=scale
            )
    mistakes.refuse()
    published = study_file.read_published(configs, written, file)
    study_file.check_variants(configs, written, published, file, variants)
    study_file.check_samples(written, file, {variant.name: variant.values for variant in variants.values()})
    parts = None if written.parts is None else study_file.imported(written.parts, file, "parts", "function")
    return Study(name, file, written, model, parts, stages, variants, published)


def resolve(
    file: VariantFile,
    parent: Variant | None,
    *,
    study: str,
    written: StudyFile,
    base: Mapping[str, Any],
    model: type[BaseModel],
    scale: Scale,
) -> Variant:
    """Return one variant with the values of all keys at the scale. Raises ConfigError for an invalid configuration."""
    above = base if parent is None else parent.declared
    as_written = validate(model, dotted.merge_into(model, above, file.overrides), file.file)
    declared = _plain(as_written)
    refuse_idle(
        file.overrides, declared, above, file.file, f"the parent {file.parent}" if parent else "the base configuration"
    )
    resolved = scale.apply(as_written, declared, file.file)
    values = declared if resolved is as_written else _plain(resolved)
    for config in (declared, values):
        changed = [key for key, _ in dotted.leaves(file.overrides)]
        check_exclusions(written.exclusions, config, file.file, changed)
    refuse_without_effect(file.overrides, resolved, file.file)
    study_file.check_reaches_results(file.overrides, written, file.file)
    own_changes: list[Change] = []
    if parent is not None:
        own_changes = changes(above, declared, parent.resolved, resolved, written.factors)
    return Variant(
        **vars(file) | {"parent": None if file.helper else file.parent},
        study=study,
        declared=declared,
        values=values,
        resolved=resolved,
        changes=tuple(own_changes),
        factors=tuple(dict.fromkeys(change.factor for change in own_changes)),
    )


def refuse_idle(
    overrides: Mapping[str, Any], declared: Mapping[str, Any], above: Mapping[str, Any], file: Path, owner: str
) -> None:
    """Raise ConfigError if an override is equal to the value of its key in `above`, the configuration of `owner`."""
    for key, value in dotted.leaves(overrides):
        if json.dumps(dotted.get(declared, key, None)) == json.dumps(dotted.get(above, key, {"no": "value"})):
            raise ConfigError(file, key, value, f"{owner} already has this value", "remove the line")


def refuse_without_effect(overrides: Mapping[str, Any], resolved: BaseModel, file: Path) -> None:
    """Raise ConfigError for an override that has no effect according to the config model's `without_effect`."""
    idle: Mapping[str, str] = getattr(resolved, "without_effect", dict)()
    for key, value in dotted.leaves(overrides):
        for other, reason in idle.items():
            if value is not None and dotted.covers(other, key):
                problem = f"has no effect because {reason}"
                remedy = "remove the line, or change the setting that makes the line ineffective"
                raise ConfigError(file, key, value, problem, remedy)


def check_exclusions(
    exclusions: Iterable[Exclusion], config: Mapping[str, Any], file: Path | str, changed: Iterable[str] = ()
) -> None:
    """Raise ConfigError if a configuration meets the condition of an exclusion and has what the exclusion forbids.

    `changed` has the dotted keys that the variant itself changes, for `forbid_change`.
    """
    changed = list(changed)
    for exclusion in exclusions:
        if _holds(exclusion.if_, config) and (offence := _offence(exclusion, config, changed)) is not None:
            causes = [f"{key} = {value!r}" for key, value in exclusion.if_.items()]
            problem = f"cannot be combined with {', '.join(causes)} ({exclusion.because})"
            raise ConfigError(
                file, offence, dotted.get(config, offence, None), problem, "change only one of these keys"
            )


def _offence(exclusion: Exclusion, config: Mapping[str, Any], changed: list[str]) -> str | None:
    """Return the key that the exclusion forbids in this configuration; None if there is none."""
    if exclusion.forbid and _holds(exclusion.forbid, config):
        return next(iter(exclusion.forbid))
    causing = [key for key in changed if any(dotted.covers(cause, key) for cause in exclusion.if_)]
    forbidden = [key for key in changed if any(dotted.covers(other, key) for other in exclusion.forbid_change)]
    return forbidden[0] if causing and forbidden else None


def _holds(condition: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return all(dotted.get(config, key) == value for key, value in condition.items())


def _plain(config: BaseModel) -> dict[str, Any]:
    """Return all values as JSON; dumping is the slowest step of loading, so dump each configuration only once."""
    return config.model_dump(mode="json")


def _stages(written: StudyFile, scale: Scale) -> dict[str, StageDefinition]:
    stages = {}
    for name, stage in written.stages.items():
        override = scale.definition.resources.get(name)
        changed = {} if override is None else override.model_dump(exclude_none=True)
        resources = stage.resources.model_copy(update=changed)
        stages[name] = stage.model_copy(update={"resources": resources})
    return stages


def read_variants(folder: Path, model: type[BaseModel]) -> list[VariantFile]:
    """Return the files of a study's variants, parents before children, siblings in natural order (v2 before v10).

    Raises ConfigError if a file is not valid, if a parent does not exist, or if the parents form a cycle.
    """
    files, mistakes = {}, Mistakes()
    for path in sorted(folder.iterdir()):
        if path.suffix.lower() in (".yml", ".yaml") and path.suffix != ".yaml":
            raise ConfigError(path, "", None, f"has the suffix {path.suffix}", "rename it to .yaml")
        if path.name.lower() == "_study.yaml" != path.name:
            remedy = "rename it to _study.yaml, or give it another name"
            raise ConfigError(path, "", None, "is not a valid variant name", remedy)
        if path.suffix == ".yaml" and path.name != "_study.yaml":
            with mistakes:
                files[path.stem] = _read_variant(path, model)
    mistakes.refuse()
    if not files:
        raise ConfigError(folder, "", None, "contains no variant", "add one, such as baseline.yaml")
    for variant in files.values():
        if variant.parent is not None:
            check_name(variant.parent, files, variant.file, "extends", NO_VARIANT)
    return list(_parents_first(files))


def _read_variant(path: Path, model: type[BaseModel]) -> VariantFile:
    if not is_safe_name(path.stem):
        remedy = "use letters, digits, '.', '-' and '_', and do not start with '.' or '-'"
        raise ConfigError(path, "", None, "is not a valid variant name", remedy)
    overrides = load_yaml(path)
    parent, why, label, gpu, between = (overrides.pop(key, None) for key in RESERVED_KEYS)
    if between is not None:
        if parent is not None:
            raise ConfigError(path, "between", between, "cannot be combined with extends", "leave one out")
        if not (isinstance(between, list) and [type(name) for name in between] == [str, str]):
            raise ConfigError(path, "between", between, "does not name two variants", "write [A, B]")
        parent = between[0]
    if parent is not None and not isinstance(parent, str):
        remedy = "write one name, in quotes if it is a number"
        raise ConfigError(path, "extends", parent, "is not the name of one variant", remedy)
    if not isinstance(why, str) or not why.strip():
        problem = "is missing" if why is None else "is not a sentence"
        raise ConfigError(path, "why", why, problem, "add a sentence that says why this variant exists")
    if label is not None and (not isinstance(label, str) or not label.strip()):
        raise ConfigError(path, "label", label, "is not text", "describe the change briefly, or remove the label")
    if gpu is not None and (not isinstance(gpu, int) or isinstance(gpu, bool) or gpu < 1):
        raise ConfigError(path, "gpu", gpu, "is not a number of devices", "write a whole number such as 1")
    check_known(model, overrides, path)
    return VariantFile(path.stem, path, parent, why.strip(), gpu, overrides, between is not None, (label or "").strip())


def _parents_first(files: Mapping[str, VariantFile]) -> Iterator[VariantFile]:
    parents = {name: file.parent for name, file in files.items()}
    reached = [place.name for place in walk(parents, in_natural_order)]
    if len(reached) < len(files):
        start = next(name for name in files if name not in reached)
        first = next(name for name in (start, *ancestors(start, parents)) if name in ancestors(name, parents))
        problem = f"the variants' parents form a cycle: {' -> '.join([first, *ancestors(first, parents)])}"
        remedy = "remove `extends` from the variant that should be the root"
        raise ConfigError(files[first].file, "extends", parents[first], problem, remedy)
    yield from (files[name] for name in reached)

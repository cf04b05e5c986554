"""Keys of stages, and the parts of a key: configuration, abort rules, code and assets."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from ablation.config import dotted
from ablation.config.study import Study, Variant
from ablation.config.study_schema import ASSET_PREFIX, Resources, StageDefinition
from ablation.contract.absent import Absent
from ablation.contract.code import Code, Sources, code_files, code_of, named_files
from ablation.contract.errors import ConfigError
from ablation.contract.reading import files_at, sha256
from ablation.plan.plan_file import ASSETS

KEY_LENGTH = 16
ASSET_STAGE = StageDefinition(
    entry="trainers.assets", seeded=False, resources=Resources(threads=1, mem_mb=6000, runtime=120, gpu=0)
)
READER = "ablation.cli.collected"  # module that reads metrics and items from a command's files
_WORDS = {"id", "stage", "severity", "diagnosis", "remedy"}  # keys of a health rule that do not affect when it trips


def canonical(value: Any) -> str:
    """Return a value as canonical JSON, which is the same text for equal values. Raises ValueError for NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def key_of(value: Any) -> str:
    """Return the key of a value: the first 16 hex digits of the sha256 of its canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:KEY_LENGTH]


def key_values(model: BaseModel, values: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return a configuration's values for a key, without fields that have the value of their mark `Absent`.

    Args:
        model: the configuration.
        values: the configuration as plain values, `model.model_dump(mode="json")`.
        names: the fields that count; by default all.
    """
    fields, counted = type(model).model_fields, {}
    for name in fields if names is None else names:
        value = _key_value(getattr(model, name), values[name])
        if not any(isinstance(mark, Absent) and _same(mark.value, value) for mark in fields[name].metadata):
            counted[name] = value
    return counted


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)  # in Python 0 == False


def _key_value(value: Any, plain: Any) -> Any:
    if isinstance(value, BaseModel):
        return key_values(value, plain)
    if isinstance(value, list | tuple):
        return [_key_value(*pair) for pair in zip(value, plain, strict=True)]
    if isinstance(value, Mapping):
        return {name: _key_value(value[name], plain[name]) for name in value}
    return plain


@cache
def config_modules(model: type[BaseModel]) -> frozenset[str]:
    """Return the modules of a config model, its bases and the models of its fields at any depth."""
    models: dict[type, None] = {}
    waiting: list[Any] = [model]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in models:
            models[kind] = None
            waiting += [*kind.__mro__, *(field.annotation for field in kind.model_fields.values())]
        else:
            waiting += get_args(kind)
    return frozenset(kind.__module__ for kind in models if kind is not BaseModel)


def file_digest(path: Path) -> str:
    """Return the sha256 of a file. Raises ConfigError if the file cannot be read."""
    try:
        return sha256(path)
    except OSError as error:
        raise ConfigError(path, "", None, f"cannot be read ({error.strerror or error})", "make it readable") from error


@dataclass(frozen=True)
class Asset:
    """Model or data set that a stage reads: its settings and code, and the key of the stage that fetches it.

    digests: {path: {file name: digest}} for the sources that are paths.
    """

    key: str
    values: dict[str, Any]
    code: Code
    digests: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Ingredients:
    """The contents of a stage's key and of its config.json, except the seed and the keys of inputs.

    config, rules: configuration and abort rules in config.json. hashed, numbers: what the key holds of `config` and of
    `rules`.
    assets: {input: asset}. inputs: {input: stage} for all other inputs. command: entry of a command in config.json.
    """

    config: dict[str, Any]
    hashed: dict[str, Any]
    rules: list[dict[str, Any]]
    numbers: list[dict[str, Any]]
    code: Code
    assets: dict[str, Asset]
    inputs: dict[str, str]
    command: dict[str, Any] | None = None


class Finder:
    """Finder of the ingredients of stages; it reads files that several stages share only once."""

    def __init__(self, root: Path, project: Path = Path(), outside: Iterable[Path] = ()) -> None:
        """Prepare to find packages below `root`, and files of commands below `project`, the folder that holds configs/.

        outside: folders that hold no code, which are those of results and reports.
        """
        self._root, self._project, self._sources, self._outside = root, project, Sources(root), tuple(outside)
        self._files: dict[tuple[tuple[str, ...], tuple[str, ...]], Code] = {}
        self._codes: dict[tuple[str, tuple[tuple[str, str], ...], frozenset[str]], Code] = {}
        self._file_digest = cache(file_digest)

    def ingredients(self, study: Study, variant: Variant, stage: str) -> Ingredients:
        """Return the ingredients of a stage of a variant. Raises ConfigError, for example if a module is missing."""
        definition = study.stages[stage]
        rules, numbers = self._abort_rules(study, stage)
        assets, inputs = {}, {}
        for name, source in definition.inputs.items():
            key = source.removeprefix(ASSET_PREFIX)
            if key == source:
                inputs[name] = source
            elif dotted.get(variant.values, key, None) is not None:  # an asset key that is null is not an input
                assets[name] = self._asset(study, variant, key, f"stages.{stage}.inputs")
        return Ingredients(
            config={name: variant.values[name] for name in definition.reads},
            hashed=key_values(variant.resolved, variant.values, definition.reads),
            rules=rules,
            numbers=numbers,
            code=self._code(study, variant, stage) if definition.entry else self._command_code(study, stage),
            assets=assets,
            inputs=inputs,
            command=None if definition.entry else command_of(definition),
        )

    def _abort_rules(self, study: Study, stage: str) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
        """Return the rules that can end a stage, and the parts of these rules that belong to the key."""
        named = [rule for rule in study.written.health if rule.stage == stage and rule.severity == "abort"]
        rules = [rule.model_dump(mode="json") for rule in named]
        kept = [key_values(rule, plain) for rule, plain in zip(named, rules, strict=True)]
        numbers = [{name: value for name, value in rule.items() if name not in _WORDS} for rule in kept]
        return rules, sorted(numbers, key=canonical)

    def _code(self, study: Study, variant: Variant, stage: str) -> Code:
        entry = study.stages[stage].module
        parts = study.parts(variant.resolved, stage) if study.parts else {}
        for slot, name in parts.items():
            if not isinstance(name, str):
                problem, remedy = f"{slot} = {name!r} is not text", "return the dotted name of a function or class"
                raise ConfigError(study.file, "parts", study.written.parts, problem, remedy)
        try:
            chooser = (study.written.parts or "").partition(":")[0]  # only its choice is part of the key
            return self._reached(entry, config_modules(study.config_model) | {chooser}, parts)
        except ConfigError as error:
            if error.value is None:  # the error is in a file, not in a name
                raise
            named = [(slot, name) for slot, name in parts.items() if dotted.covers(error.value, name)]
            file, slot, name = (variant.file, *named[0]) if named else (study.file, "entry", error.value)
            raise ConfigError(file, f"stages.{stage}.{slot}", name, error.problem, error.remedy) from None

    def _command_code(self, study: Study, stage: str) -> Code:
        """Return a command's code.

        Raises ConfigError if a pattern of `code` matches no file, or if none matches a file that the command names.
        """
        definition, where = study.stages[stage], f"stages.{stage}"
        made_of = tuple(definition.code), tuple(definition.words)
        if made_of not in self._files:
            try:
                self._files[made_of] = code_files(made_of[0], self._project, self._outside, made_of[1])
            except ConfigError as error:
                raise ConfigError(study.file, f"{where}.code", error.value, error.problem, error.remedy) from None
        code = self._files[made_of]
        if missing := [name for name in named_files(definition.words, self._project) if name not in code.files]:
            problem = f"{missing[0]!r} is a file of the project, but a change to it would not rerun the stage"
            raise ConfigError(
                study.file, f"{where}.code", definition.code, problem, f"add {', '.join(missing)} to `code`"
            )
        return code

    def _reached(self, entry: str, exclude: frozenset[str], parts: Mapping[str, str]) -> Code:
        made_of = entry, tuple(parts.items()), exclude
        if made_of not in self._codes:
            self._codes[made_of] = code_of(entry, self._root, parts=parts, exclude=exclude, sources=self._sources)
        return self._codes[made_of]

    def _asset(self, study: Study, variant: Variant, name: str, where: str) -> Asset:
        model: Any = variant.resolved
        for part in name.split("."):
            model = getattr(model, part, None)
        if not isinstance(model, BaseModel) or not getattr(model, "sources", None):
            problem, remedy = "is not the key of a model or data set", "name a key whose value has `sources`"
            raise ConfigError(study.file, where, f"asset:{name}", problem, remedy)
        values = dotted.get(variant.values, name)
        paths = [source["path"] for source in values["sources"] if source["source"] == "path"]
        digests = {
            path: {name: self._file_digest(file) for name, file in files_at(Path(path)).items()} for path in paths
        }
        code = self._reached(ASSET_STAGE.module, config_modules(type(model)), {})
        hashed = {"stage": ASSETS, "asset": key_values(model, values), "digests": digests}
        return Asset(key_of(hashed | {"code": code.digest}), values, code, digests)


def command_of(definition: StageDefinition) -> dict[str, Any]:
    """Return the entry of a command in config.json, in which `reading` is a digest of `collect`."""
    collect = [collected.model_dump() for collected in definition.collect]
    return {
        "words": definition.words,
        "collect": collect,
        "reading": key_of(collect),
        "steps": definition.steps,
        "time_limit": definition.time_limit,
        "reader": READER,
    }

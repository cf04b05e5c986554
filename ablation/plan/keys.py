"""A stage's key, and its ingredients apart from seed and inputs: values, abort rules, code, assets."""

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
from ablation.contract.code import Code, Sources, code_files, code_of, named_files
from ablation.contract.errors import ConfigError
from ablation.contract.parts import Absent
from ablation.contract.reading import files_at, sha256
from ablation.plan.plan_file import ASSETS

KEY_LENGTH = 16
ASSET_STAGE = StageDefinition(
    entry="trainers.assets", seeded=False, resources=Resources(threads=1, mem_mb=6000, runtime=120, gpu=0)
)
READER = "ablation.cli.collected"  # the module by which a command's files become metrics and items
_WORDS = {"id", "stage", "severity", "diagnosis", "remedy"}  # keys of a health rule that do not affect when it trips


def canonical(value: Any) -> str:
    """Return one text for equal values: sorted keys, no white space, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def key_of(value: Any) -> str:
    """Return the first 16 hex digits of the sha256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:KEY_LENGTH]


def key_values(model: BaseModel, values: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return a configuration's part of a key: all values except those that the absence of their field stood for.

    Args:
        model: the configuration.
        values: the same as plain values, `model.model_dump(mode="json")`.
        names: the fields that count; all by default.
    """
    fields, counted = type(model).model_fields, {}
    for name in fields if names is None else names:
        value = _key_value(getattr(model, name), values[name])
        if not any(isinstance(mark, Absent) and _same(mark.value, value) for mark in fields[name].metadata):
            counted[name] = value
    return counted


def _same(one: Any, other: Any) -> bool:
    return one == other and isinstance(one, bool) == isinstance(other, bool)  # to Python 0 is False


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
    """Return the modules that define a config model, its bases and the models of its fields, at any depth."""
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
    """Return the sha256 of a file. Raises ConfigError."""
    try:
        return sha256(path)
    except OSError as error:
        raise ConfigError(path, "", None, f"cannot be read ({error})", "make it readable") from error


@dataclass(frozen=True)
class Asset:
    """A model or data set that a stage reads: its settings, and the key of the stage that fetches it.

    digests: of the files of each source that is a path, by path and name.
    """

    key: str
    values: dict[str, Any]
    code: Code
    digests: dict[str, dict[str, str]]


@dataclass(frozen=True)
class Ingredients:
    """`config` is the content of config.json; `hashed` and `numbers` are the key's parts for config and abort rules.

    `assets` are the inputs that are assets, by name; `inputs` the others: name -> stage. `command` is what config.json
    holds of a stage that is one: its words with placeholders, and what else its runner needs.
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
    """Finds the ingredients of stages; files that several stages share are read once."""

    def __init__(self, root: Path, project: Path = Path(), outside: Iterable[Path] = ()) -> None:
        """Find packages below `root`, and the files of commands below `project`, which holds configs/.

        outside: folders that hold no code: results and reports.
        """
        self._root, self._project, self._sources, self._outside = root, project, Sources(root), tuple(outside)
        self._files: dict[tuple[tuple[str, ...], tuple[str, ...]], Code] = {}
        self._codes: dict[tuple[str, tuple[tuple[str, str], ...], frozenset[str]], Code] = {}
        self._file_digest = cache(file_digest)

    def ingredients(self, study: Study, variant: Variant, stage: str) -> Ingredients:
        """Return the ingredients of one stage of one variant. Raises ConfigError, such as for a missing module."""
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
        """Return the rules that can end a stage, and the part of each rule that decides when it trips."""
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
            chooser = (study.written.parts or "").partition(":")[0]  # its choice counts, by name
            return self._reached(entry, config_modules(study.config_model) | {chooser}, parts)
        except ConfigError as error:
            if error.value is None:  # a file that is not Python, whoever imports it
                raise
            asked = [(slot, name) for slot, name in parts.items() if dotted.covers(error.value, name)]
            file, slot, name = (variant.file, *asked[0]) if asked else (study.file, "entry", error.value)
            raise ConfigError(file, f"stages.{stage}.{slot}", name, error.problem, error.remedy) from None

    def _command_code(self, study: Study, stage: str) -> Code:
        """Return a command's code. Raises ConfigError if a pattern matches no file, or `code` lacks a file it names."""
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
        asked = entry, tuple(parts.items()), exclude
        if asked not in self._codes:
            self._codes[asked] = code_of(entry, self._root, parts=parts, exclude=exclude, sources=self._sources)
        return self._codes[asked]

    def _asset(self, study: Study, variant: Variant, name: str, where: str) -> Asset:
        model: Any = variant.resolved
        for part in name.split("."):
            model = getattr(model, part, None)
        if not isinstance(model, BaseModel) or not getattr(model, "sources", None):
            raise ConfigError(study.file, where, f"asset:{name}", "is not an asset", "name a key that holds sources")
        values = dotted.get(variant.values, name)
        paths = [source["path"] for source in values["sources"] if source["source"] == "path"]
        digests = {
            path: {name: self._file_digest(file) for name, file in files_at(Path(path)).items()} for path in paths
        }
        code = self._reached(ASSET_STAGE.module, config_modules(type(model)), {})
        hashed = {"stage": ASSETS, "asset": key_values(model, values), "digests": digests}
        return Asset(key_of(hashed | {"code": code.digest}), values, code, digests)


def command_of(definition: StageDefinition) -> dict[str, Any]:
    """Return config.json's entry for a command; `reading` identifies the way in which its files are read."""
    collect = [collected.model_dump() for collected in definition.collect]
    return {
        "words": definition.words,
        "collect": collect,
        "reading": key_of(collect),
        "steps": definition.steps,
        "time_limit": definition.time_limit,
        "reader": READER,
    }

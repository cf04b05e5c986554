"""Check configurations with pydantic, and turn each of its errors into a line with file, key, value and remedy."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from pydantic import BaseModel, ValidationError

from ablation.config import dotted
from ablation.config.names import check_name, suggest
from ablation.contract.errors import ConfigError, Mistakes

Model = TypeVar("Model", bound=BaseModel)


def validate(model: type[Model], data: Mapping[str, Any], file: Path | str, prefix: str = "") -> Model:
    """Return `data` as a model, without conversions between types ("5" is not a number, but 1 is a valid float).

    Raises a ConfigError for the first mistake, which carries the others; their keys start with `prefix`.
    """
    mistakes = Mistakes(_unknown(known_keys(model), data, "", file, prefix))
    unknown = {mistake.key for mistake in mistakes.found}
    try:
        validated = model.model_validate_json(json.dumps(data), strict=True)
    except ValidationError as error:
        refused = _mistakes(error, model, data, file, prefix)
        mistakes.found += [mistake for mistake in refused if mistake.key not in unknown]
    mistakes.refuse()
    return validated


def check_known(model: type[BaseModel], data: Mapping[str, Any], file: Path | str, prefix: str = "") -> None:
    """Raise ConfigError for keys that the model does not have, and suggest the closest key of the model for each."""
    Mistakes(_unknown(known_keys(model), data, "", file, prefix)).refuse()


known_keys = cache(dotted.model_keys)  # a thousand variants ask for a model's dotted keys


def _unknown(
    allowed_keys: set[str], data: Mapping[str, Any], above: str, file: Path | str, prefix: str
) -> Iterator[ConfigError]:
    for key, item in data.items():
        full = f"{above}{key}"
        if full not in allowed_keys:
            siblings = sorted(name for name in allowed_keys if name.startswith(above) and "." not in name[len(above) :])
            elsewhere = sorted(name for name in allowed_keys if name.rsplit(".", 1)[-1] == key)
            remedy = f"did you mean {elsewhere[0]!r}?" if elsewhere else suggest(full, siblings)
            shown = None if isinstance(item, Mapping) else item
            yield ConfigError(file, f"{prefix}{full}", shown, "is not a key of this configuration", remedy)
        elif isinstance(item, Mapping) and any(name.startswith(f"{full}.") for name in allowed_keys):
            yield from _unknown(allowed_keys, item, f"{full}.", file, prefix)


def check_key(model: type[BaseModel], key: str, file: Path | str, where: str) -> None:
    """Raise ConfigError if the model does not have the dotted key `key`, which `file` names under `where`."""
    check_name(key, sorted(known_keys(model)), file, where, "is not a key of this configuration")


def _mistakes(
    error: ValidationError, model: type[BaseModel], data: Mapping[str, Any], file: Path | str, prefix: str
) -> list[ConfigError]:
    by_key: dict[str, ConfigError] = {}
    for detail in error.errors(include_url=False, include_context=False):
        key, value = _place(detail["loc"], data, missing=detail["type"] == "missing")
        message, separator, advice = detail["msg"].removeprefix("Value error, ").rpartition("; ")
        problem = message if separator else advice
        problem = problem[:1].lower() + problem[1:]
        if detail["type"] == "missing":
            problem, value = "is missing", None
        elif detail["type"] == "extra_forbidden":
            problem = "is not a key of this configuration"
        shown = value if not isinstance(value, Mapping) and len(repr(value)) <= 120 else None
        description = _description(model, key)
        correct = "add it" if detail["type"] == "missing" else "correct the value"
        if detail["type"] == "extra_forbidden":
            *above, last = key.split(".")
            correct = suggest(last, sorted({name for each in _models_at(model, above) for name in each.model_fields}))
        remedy = f"expected: {description}" if description else advice if separator else correct
        by_key.setdefault(key, ConfigError(file, f"{prefix}{key}".rstrip("."), shown, problem, remedy))
    return list(by_key.values())


def _place(loc: Iterable[int | str], data: Any, *, missing: bool) -> tuple[str, Any]:
    """Return the dotted key and value at the path of an error, without the parts that pydantic adds for unions."""
    path: list[str] = []
    *parts, last = list(loc) or [""]
    for part in [*parts, last]:
        if (isinstance(data, Mapping) and part in data) or (
            isinstance(data, list) and isinstance(part, int) and part < len(data)
        ):
            data = data[part]  # type: ignore[index]
            path.append(str(part))
    if missing:
        path.append(str(last))
    return ".".join(path), data


def _models_at(model: type[BaseModel], parts: Iterable[str]) -> list[type[BaseModel]]:
    """Return the models allowed at a path of keys; a part that is not a field is an entry of a map or list."""
    models = [model]
    for part in parts:
        if fields := [each.model_fields[part] for each in models if part in each.model_fields]:
            models = [model for field in fields for model in dotted.models_in(field.annotation, entries=True)]
    return models


def _description(model: type[BaseModel], key: str) -> str:
    """Return the description of a key; empty if it has none, or if kinds of a union describe it differently."""
    *above, last = key.split(".")
    models = _models_at(model, above)
    descriptions = {each.model_fields[last].description or "" for each in models if last in each.model_fields}
    return descriptions.pop().rstrip(".") if len(descriptions) == 1 else ""

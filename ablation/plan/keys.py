"""Content addresses: canonical JSON and its digest, and digests of files."""

import hashlib
import json
from collections.abc import Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import Any, get_args

from pydantic import BaseModel

from ablation.contract.absent import Absent
from ablation.contract.errors import ConfigError
from ablation.contract.reading import sha256

KEY_LENGTH = 16


def canonical(value: Any) -> str:
    """Return one text for equal values: sorted keys, no white space, no NaN."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=True, allow_nan=False)


def key_of(value: Any) -> str:
    """Return the first 16 hex digits of the sha256 of the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()[:KEY_LENGTH]


def key_values(model: BaseModel, values: Mapping[str, Any], names: Iterable[str] | None = None) -> dict[str, Any]:
    """Return a key's part for a configuration: every value, except fields equal to what their absence meant.

    Args:
        model: the configuration.
        values: the same as plain values, `model.model_dump(mode="json")`.
        names: the fields that count; all by default.
    """
    fields, found = type(model).model_fields, {}
    for name in fields if names is None else names:
        value = _key_value(getattr(model, name), values[name])
        if not any(isinstance(mark, Absent) and _same(mark.value, value) for mark in fields[name].metadata):
            found[name] = value
    return found


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
    found: dict[type, None] = {}
    waiting: list[Any] = [model]
    while waiting:
        kind = waiting.pop()
        if isinstance(kind, type) and issubclass(kind, BaseModel) and kind not in found:
            found[kind] = None
            waiting += [*kind.__mro__, *(field.annotation for field in kind.model_fields.values())]
        else:
            waiting += get_args(kind)
    return frozenset(kind.__module__ for kind in found if kind is not BaseModel)


_DIGESTS: dict[Path, tuple[tuple[int, int], str]] = {}


def file_digest(path: Path) -> str:
    """Return the sha256 of a file, read again only if its time or size changed. Raises ConfigError."""
    info, key = path.stat(), path.resolve()
    stamp = (info.st_mtime_ns, info.st_size)
    if key not in _DIGESTS or _DIGESTS[key][0] != stamp:
        try:
            _DIGESTS[key] = (stamp, sha256(path))
        except OSError as error:
            raise ConfigError(path, "", None, f"cannot be read ({error})", "make it readable") from error
    return _DIGESTS[key][1]

"""Nested configurations and their dotted keys: `{a: {b: 1}}` has the key `a.b`. Lists and scalars are leaves."""

import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import BaseModel

from ablation.contract.command import leaves  # noqa: F401 - belongs to the functions on dotted keys

MISSING: Any = object()


def get(value: Any, key: str, default: Any = MISSING) -> Any:
    """Return the value at a dotted key, or `default` if the key is missing."""
    for part in key.split("."):
        if not isinstance(value, Mapping) or part not in value:
            return default
        value = value[part]
    return value


def nested(values: Mapping[str, Any], separator: str = ".") -> dict[str, Any]:
    """Return {dotted key: value} as a tree, such as `{a: {b: 1}}` for `{a.b: 1}`.

    If `a` has a value and `a.b` comes later, `a.b` stays one key. If `a` comes later, its value replaces `a.b`, so sort
    the keys if both may occur.
    """
    tree: dict[str, Any] = {}
    for key, value in values.items():
        place = tree
        *above, last = key.split(separator)
        for part in above:
            below = place.setdefault(part, {})
            if not isinstance(below, dict):
                place, last = tree, key
                break
            place = below
        place[last] = value
    return tree


def merge(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` overridden by `over`: mappings merge, lists and scalars replace. Neither argument is changed."""
    result = dict(base)
    for key, item in over.items():
        below = result.get(key)
        result[key] = merge(below if isinstance(below, Mapping) else {}, item) if isinstance(item, Mapping) else item
    return result


def merge_into(model: type[BaseModel], base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return `merge(base, over)`; if `over` changes the kind of a tagged union, drop the union's old value first."""
    result = dict(base)
    for name, field in model.model_fields.items():
        below, above = base.get(name), over.get(name)
        if not isinstance(below, Mapping) or not isinstance(above, Mapping):
            continue
        if isinstance(tag := field.discriminator, str):
            if tag in above and above[tag] != below.get(tag):
                result[name] = {}
        elif len(inner := list(models_in(field.annotation))) == 1:
            result[name] = merge_into(inner[0], below, above)
    return merge(result, over)


def covers(key: str, other: str) -> bool:
    """Return whether `other` is `key` or a key below it."""
    return other == key or other.startswith(f"{key}.")


def model_keys(model: type[BaseModel], prefix: str = "") -> set[str]:
    """Return the dotted keys of a config model, including those of all union members, but none in lists or maps."""
    keys: set[str] = set()
    for name, field in model.model_fields.items():
        keys.add(f"{prefix}{name}")
        for inner in models_in(field.annotation):
            keys |= model_keys(inner, f"{prefix}{name}.")
    return keys


def models_in(annotation: Any, *, entries: bool = False) -> Iterator[type[BaseModel]]:
    """Yield the models that an annotation allows as the value and, with `entries`, as entries of a list or map."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    elif entries or typing.get_origin(annotation) in (typing.Annotated, typing.Union, types.UnionType):
        for inner in typing.get_args(annotation):
            yield from models_in(inner, entries=entries)

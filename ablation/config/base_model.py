"""Make the config model of a study without a config class from the keys and types of `base` in `_study.yaml`."""

import warnings
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, create_model

from ablation.config import dotted
from ablation.config.names import RESERVED_KEYS
from ablation.contract.errors import ConfigError


class _FromBase(BaseModel):
    model_config = ConfigDict(extra="forbid", protected_namespaces=())


def model_of_base(base: Mapping[str, Any], file: Path, assets: Mapping[str, type[BaseModel]]) -> type[BaseModel]:
    """Return a config model with the keys of `base`; each value gives the default and the type of its key.

    Every key also accepts null. A key whose default is a whole number accepts whole numbers, a float all numbers, null
    any value. A map accepts only its own keys, but an empty map accepts any keys. A list of scalars of one type accepts
    items of this type, and any other list any items.

    Args:
        base: the values of every root variant.
        file: the study file, for errors.
        assets: the models of the assets that inputs name, by dotted key.

    Raises ConfigError if a key is not valid, or if an asset is missing from `base`.
    """
    model = _model("Base", base, "", file, assets)
    for key in assets:
        if key not in dotted.model_keys(model):
            problem = "is an asset in `inputs`, but `base` does not define it"
            remedy = "add the asset to `base` as {kind: ..., sources: [...]} or null"
            raise ConfigError(file, f"base.{key}", None, problem, remedy)
    return model


def _model(
    name: str, values: Mapping[str, Any], above: str, file: Path, assets: Mapping[str, type[BaseModel]]
) -> type[BaseModel]:
    fields: dict[str, Any] = {}
    for key, value in values.items():
        full = f"{above}{key}"
        _check_name(key, full, file, top=not above)
        if full in assets:
            kind: Any = assets[full]
        elif isinstance(value, Mapping) and value:
            kind = _model(full, value, f"{full}.", file, assets)
        else:
            kind = _kind(value)
        fields[key] = (kind if kind is Any else kind | None, Field(default=value, validate_default=True))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a key called `copy` hides a method that nobody calls
        return create_model(name, __base__=_FromBase, **fields)


def _kind(value: Any) -> Any:
    if value is None:
        return Any
    if isinstance(value, Mapping):
        return dict[str, Any]
    if isinstance(value, list):
        kinds = {type(item) for item in value}
        if kinds == {int, float}:
            kinds = {float}
        single = kinds.pop() if len(kinds) == 1 else Any
        return list[single if single in (bool, int, float, str) else Any]  # type: ignore[misc]
    return type(value)


def _check_name(key: Any, full: str, file: Path, *, top: bool) -> None:
    if not isinstance(key, str) or not key or "." in key or key.startswith("_"):
        remedy = "use text without dots that does not start with `_`"
        raise ConfigError(file, f"base.{full}", None, "is not a valid key", remedy)
    if hasattr(BaseModel, key) or (top and key in RESERVED_KEYS):
        raise ConfigError(file, f"base.{full}", None, f"the key {key!r} is reserved", "rename it")

"""Differences between two variants, those that have no effect, and those that exclude each other."""

import json
from collections.abc import Iterable, Iterator, Mapping
from functools import reduce
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from ablation.config import dotted
from ablation.config.names import suggest
from ablation.config.study import Change, Study
from ablation.config.study_schema import Exclusion
from ablation.contract.errors import ConfigError


def diff(study: Study, a: str, b: str, *, scaled: bool = False) -> list[Change]:
    """Return every leaf in which variant `b` differs from variant `a`; as declared, or at the study's scale."""
    for name in (a, b):
        if name not in study.variants:
            raise ConfigError(study.file.parent, name, None, "there is no such variant", suggest(name, study.variants))
    one, two = study.variants[a], study.variants[b]
    values = (one.values, two.values) if scaled else (one.declared, two.declared)
    return changes(*values, one.resolved, two.resolved, study.written.factors)


def changes(
    old: Mapping[str, Any],
    new: Mapping[str, Any],
    parent: BaseModel,
    child: BaseModel,
    factors: Mapping[str, list[str]],
) -> list[Change]:
    """Return the leaves in which `new`, the values of `child`, differs from `old`, the values of `parent`.

    A config model may say why a change cannot matter: `unseen_changes(parent) -> {dotted key: reason}`.
    """
    known = getattr(child, "unseen_changes", None)
    reasons = known(parent) if known else {}
    found = []
    for key, was, now in differences(old, new):
        if was is None and _other_kind(key, old, new) and now == _default(child, key):
            continue  # of a kind of its own, whose name says it
        row = {"key": key, "from": was, "to": now, "factor": factor_of(key, factors)}
        found.append(Change.model_validate(row | {"no_effect": reasons.get(key, "")}))
    return found


def differences(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[tuple[str, Any, Any]]:
    """Yield (dotted key, old, new) of each leaf in which two configurations differ; None where one has no such leaf."""
    before, after = dict(dotted.leaves(old)), dict(dotted.leaves(new))
    for key in dict.fromkeys([*before, *after]):
        if _opened(key, before, after) or _opened(key, after, before):
            continue  # null became a mapping, or the other way round: the keys below it show the change
        if key not in after and _other_kind(key, old, new):
            continue  # went with its kind
        if before.get(key) != after.get(key) or (key in before) != (key in after):
            yield key, before.get(key), after.get(key)


def _opened(key: str, leaves: Mapping[str, Any], others: Mapping[str, Any]) -> bool:
    """Return whether `key` is null in `leaves` and a mapping with content in `others`."""
    return key in leaves and leaves[key] is None and key not in others and any(o.startswith(f"{key}.") for o in others)


def _other_kind(key: str, old: Mapping[str, Any], new: Mapping[str, Any]) -> bool:
    """Return whether a map above a key has another `kind` in the two configurations: a tagged union."""
    parts = key.split(".")
    kinds = [".".join([*parts[:depth], "kind"]) for depth in range(1, len(parts))]
    both = [(dotted.get(old, kind, None), dotted.get(new, kind, None)) for kind in kinds if kind != key]
    return any(None not in pair and pair[0] != pair[1] for pair in both)


def _default(config: Any, key: str) -> Any:
    """Return a key's default in the models of this configuration."""
    above, _, last = key.rpartition(".")
    model = reduce(lambda value, part: getattr(value, part, None), above.split("."), config)
    field = type(model).model_fields.get(last) if isinstance(model, BaseModel) else None
    return field.get_default() if field else None


def refuse_idle(
    overrides: Mapping[str, Any], declared: Mapping[str, Any], above: Mapping[str, Any], file: Path, owner: str
) -> None:
    """Refuse an override equal to its value in `above`, the values of `owner`: it would mislead the reader."""
    for key, value in dotted.leaves(overrides):
        if json.dumps(dotted.get(declared, key, None)) == json.dumps(dotted.get(above, key, {"no": "value"})):
            raise ConfigError(file, key, value, f"{owner} has this value already", "remove the line")


def refuse_without_effect(overrides: Mapping[str, Any], resolved: BaseModel, file: Path) -> None:
    """Refuse an override of a key that the config model's `without_effect` says changes nothing in this variant."""
    idle: Mapping[str, str] = getattr(resolved, "without_effect", dict)()
    for key, value in dotted.leaves(overrides):
        for other, reason in idle.items():
            if value is not None and dotted.covers(other, key):
                problem = f"has no effect: {reason}"
                raise ConfigError(file, key, value, problem, "remove the line, or change what it depends on")


def check_exclusions(
    exclusions: Iterable[Exclusion], config: Mapping[str, Any], file: Path | str, changed: Iterable[str] = ()
) -> None:
    """Refuse a resolved configuration that meets an exclusion's condition and has what it forbids.

    `changed` are the dotted keys that the variant itself changes, for `forbid_change`.
    """
    changed = list(changed)
    for exclusion in exclusions:
        if _holds(exclusion.if_, config) and (offence := _offence(exclusion, config, changed)) is not None:
            causes = [f"{key} = {value!r}" for key, value in exclusion.if_.items()]
            problem = f"excluded by {', '.join(causes)} ({exclusion.because})"
            raise ConfigError(file, offence, dotted.get(config, offence, None), problem, "change one of the two")


def _offence(exclusion: Exclusion, config: Mapping[str, Any], changed: list[str]) -> str | None:
    """Return the key that is forbidden here, if there is one."""
    if exclusion.forbid and _holds(exclusion.forbid, config):
        return next(iter(exclusion.forbid))
    own = [key for key in changed if any(dotted.covers(cause, key) for cause in exclusion.if_)]
    forbidden = [key for key in changed if any(dotted.covers(other, key) for other in exclusion.forbid_change)]
    return forbidden[0] if own and forbidden else None


def _holds(condition: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return all(dotted.get(config, key) == value for key, value in condition.items())


def factor_of(key: str, factors: Mapping[str, Iterable[str]]) -> str:
    """Return the factor that a changed key belongs to: a declared group, else the key itself."""
    for name, keys in factors.items():
        if any(dotted.covers(group, key) for group in keys):
            return name
    return key

"""Constraints on a configuration beyond its types: exclusions, factors."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from ablation.config import dotted
from ablation.config.study_schema import Exclusion
from ablation.contract.errors import ConfigError


def check_exclusions(
    exclusions: Iterable[Exclusion], config: Mapping[str, Any], file: Path | str, changed: Iterable[str] = ()
) -> None:
    """Refuse a resolved configuration that meets an exclusion's condition and has what it forbids.

    `changed` are the dotted keys that the variant itself changes, for `forbid_change`.
    """
    changed = list(changed)
    for exclusion in exclusions:
        if not (_holds(exclusion.if_, config) and all(_is_set(config, key) for key in exclusion.if_set)):
            continue
        offence = _offence(exclusion, config, changed)
        if offence is not None:
            causes = [f"{key} = {value!r}" for key, value in exclusion.if_.items()]
            causes += [f"{key} = {dotted.get(config, key)!r}" for key in exclusion.if_set]
            problem = f"excluded by {', '.join(causes)} ({exclusion.because})"
            raise ConfigError(file, offence, dotted.get(config, offence, None), problem, "change one of the two")


def _offence(exclusion: Exclusion, config: Mapping[str, Any], changed: list[str]) -> str | None:
    """Return the key that is forbidden here, if there is one."""
    if exclusion.forbid and _holds(exclusion.forbid, config):
        return next(iter(exclusion.forbid))
    for key in exclusion.forbid_set:
        if _is_set(config, key):
            return key
    own = [key for key in changed if any(dotted.covers(cause, key) for cause in (*exclusion.if_, *exclusion.if_set))]
    forbidden = [key for key in changed if any(dotted.covers(other, key) for other in exclusion.forbid_change)]
    return forbidden[0] if own and forbidden else None


def _holds(condition: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return all(dotted.get(config, key) == value for key, value in condition.items())


def _is_set(config: Mapping[str, Any], key: str) -> bool:
    return dotted.get(config, key, None) not in (None, False)


def factor_of(key: str, factors: Mapping[str, Iterable[str]]) -> str:
    """Return the factor that a changed key belongs to: a declared group, else the key itself."""
    for name, keys in factors.items():
        if any(dotted.covers(group, key) for group in keys):
            return name
    return key

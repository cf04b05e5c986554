"""What a valid configuration must satisfy beyond its types: exclusions, the pool of accelerators, factors."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from tracker import dotted
from tracker.errors import ConfigError
from tracker.study_schema import Exclusion


def check_exclusions(exclusions: Iterable[Exclusion], config: Mapping[str, Any], file: Path | str) -> None:
    """Refuse a resolved configuration in which all of an exclusion's `if` and all of its `forbid` hold."""
    for exclusion in exclusions:
        if _holds(exclusion.if_, config) and _holds(exclusion.forbid, config):
            key, value = next(iter(exclusion.forbid.items()))
            cause = ", ".join(f"{name} = {wanted!r}" for name, wanted in exclusion.if_.items())
            raise ConfigError(file, key, value, f"excluded by {cause} ({exclusion.because})", "change one of the two")


def _holds(condition: Mapping[str, Any], config: Mapping[str, Any]) -> bool:
    return all(dotted.get(config, key) == value for key, value in condition.items())


def check_gpu(gpu: int, pool: int, file: Path | str, key: str = "gpu") -> None:
    """Refuse more accelerators than the pool has; Snakemake would clamp the number silently."""
    if gpu > pool:
        raise ConfigError(
            file,
            key,
            gpu,
            f"is more than the pool of {pool}",
            f"ask for at most {pool}, or run with --resources gpu={gpu}",
        )


def factor_of(key: str, factors: Mapping[str, Iterable[str]]) -> str:
    """Return the factor that a changed key belongs to: a declared group, else the key itself."""
    for name, keys in factors.items():
        if any(dotted.covers(group, key) for group in keys):
            return name
    return key

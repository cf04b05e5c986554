"""Merge two results folders: equal keys mean equal inputs, so stages from another site may be used."""

import os
import re
import shutil
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from ablation.contract.atomic import date, write_json
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.process import alone, is_locked
from ablation.contract.reading import read_json, regular, sha256
from ablation.contract.rows import OF_THE_MACHINE
from ablation.contract.status import KEPT_STATUS, STATUS, altered, left_files, read_state
from ablation.plan.keys import KEY_LENGTH
from ablation.store.analysis_history import merged_history, write_history

_KEY = re.compile(f"[0-9a-f]{{{KEY_LENGTH}}}")
_ASIDE = re.compile(rf"\.[0-9]+\.tmp\.{_KEY.pattern}")
_NOT_COPIED = (KEPT_STATUS, ".lock")
_REMEDY = "delete the wrong copy of the stage, and run non-deterministic stages at only one site"


@dataclass
class Merged:
    """Numbers of stages that were added, were in both folders, or were left out because they failed or are damaged."""

    added: int = 0
    in_both: int = 0
    left_out: int = 0


def merge(results: Path, other: Path, site: str) -> Merged:
    """Copy the stages that succeeded in `other` but not in `results`, and name the `site` in their provenance.

    Nothing is copied unless everything can be read. If a merge is killed, the stages that it has copied stay.

    Raises:
        ConfigError: `other` has no stage that succeeded; a stage succeeded in both with different results, or
            succeeded in one and diverged in the other; or a file of `other` cannot be read.
        TrackerError: a stage is running in `results`, or the folder cannot be written.
    """
    with alone(results / ".collect.lock"):
        for left in unfinished_copies(results):
            shutil.rmtree(left)
        return _merge(results, other, site)


def unfinished_copies(results: Path) -> list[Path]:
    """Return the unfinished stage folders that a killed merge left behind."""
    candidates = [*results.glob("stages/*/.*.tmp.*"), *results.glob("stages/*/*/.*.tmp.*")]
    return [path for path in candidates if _ASIDE.fullmatch(path.name) and path.is_dir() and not path.is_symlink()]


def _merge(results: Path, other: Path, site: str) -> Merged:
    merged, new = Merged(), []
    for source in _stages(other):
        target, state = results / source.relative_to(other), read_state(source, source.name)
        state_here = read_state(target, target.name).state
        if {state_here, state.state} == {"ok", "diverged"}:
            problem = f"the same stage has the state {state.state} in {source}"
            raise ConfigError(target, "state", state_here, problem, _REMEDY)
        if state.state != "ok" or altered(source, state):
            merged.left_out += 1
        elif state_here == "ok":
            if name := _differing(target, source):
                problem = f"the same stage has different content in {source / name}"
                raise ConfigError(target / name, "", None, problem, _REMEDY)
            merged.in_both += 1
        elif is_locked(target):
            raise TrackerError(f"{target}: the stage is running here; merge when it has ended")
        else:
            new.append((source, target))
    if not new and not merged.in_both:
        raise ConfigError(other, "stages", None, "contains no stage that succeeded", "name another results folder")
    history = merged_history(results, other)
    for source, _ in new:
        _check_readable(source)
    try:
        for source, target in new:
            _copy(source, target, site)
        write_history(results, history)
        # Snakemake runs again what is older than its inputs, and the sites' clocks may differ.
        date((stage / STATUS for stage in _stages(results)), time.time())
    except OSError as error:
        remedy = "free space or repair the folder, and merge again"
        raise TrackerError(f"{results}: cannot be written ({error.strerror or error}); {remedy}") from error
    merged.added = len(new)
    return merged


def _stages(results: Path) -> Iterator[Path]:
    for pattern in (f"stages/*/*/{STATUS}", f"stages/*/*/*/{STATUS}"):
        yield from (path.parent for path in sorted(results.glob(pattern)) if _KEY.fullmatch(path.parent.name))


def _differing(target: Path, source: Path) -> str:
    """Return the name of a results file that differs between two copies of a stage; empty if none differs."""
    for name in ("items.parquet", "weights.json"):
        digests = [sha256(folder / name) if (folder / name).exists() else "" for folder in (target, source)]
        if digests[0] != digests[1]:
            return name
    our_numbers, their_numbers = (_numbers(folder / "metrics.parquet") for folder in (target, source))
    return "" if our_numbers.equals(their_numbers) else "metrics.parquet"


def _numbers(file: Path) -> pd.DataFrame:
    if not file.exists():
        return pd.DataFrame(columns=["step", "name", "value"])
    rows = pd.read_parquet(file)
    return rows[~rows["name"].str.contains(OF_THE_MACHINE)].reset_index(drop=True)


def _check_readable(stage: Path) -> None:
    """Raise ConfigError if a file of a stage is not a readable regular file, or if its provenance is damaged."""
    try:
        for path in stage.rglob("*"):
            if not path.is_dir() and not path.is_symlink() and path.name not in _NOT_COPIED:
                regular(path)
        provenance = stage / "provenance.json"
        if provenance.exists() and not isinstance(read_json(provenance), dict):
            raise ValueError("provenance.json is not a JSON object")
    except (OSError, ValueError) as error:
        remedy = "repair the stage, or delete it there; nothing was copied"
        raise ConfigError(stage, "", None, f"cannot be copied ({one_line(error, 300)})", remedy) from None


def _copy(source: Path, target: Path, site: str) -> None:
    """Copy the folder of a stage completely or not at all, and name the site in its provenance."""
    aside = target.with_name(f".{os.getpid()}.tmp.{target.name}")
    shutil.rmtree(aside, ignore_errors=True)
    try:
        shutil.copytree(source, aside, symlinks=True, ignore=shutil.ignore_patterns(*_NOT_COPIED))
        provenance = aside / "provenance.json"
        recorded = read_json(provenance) if provenance.exists() else {}
        write_json(provenance, {"site": site} | recorded)  # of a third site, its name stays
        write_json(aside / STATUS, read_json(aside / STATUS) | left_files(aside))
        shutil.rmtree(target, ignore_errors=True)  # one that failed here
        aside.rename(target)
    except (shutil.Error, ValueError, TypeError) as error:
        remedy = "repair the stage, or delete it there, and merge again"
        raise TrackerError(f"{source}: cannot be copied ({one_line(error, 300)}); {remedy}") from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)

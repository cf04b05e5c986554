"""Run a commit once in a separate worktree, and read the metric that it prints, or the items that it writes."""

import hashlib
import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from ablation.campaign.repository import Repository, environment, files_below
from ablation.campaign.settings import Settings
from ablation.contract.atomic import write_text
from ablation.contract.display import one_line
from ablation.contract.errors import ConfigError, TrackerError
from ablation.contract.numbers import counted, rough
from ablation.contract.reading import read_text, sha256
from ablation.runner.devices import lease
from ablation.runner.guarded import NoResult, failure, last_words, run_guarded, tail

Run = tuple[bool, str, int]
"""A run: whether it is for a verification, the identity of its code, and its seed."""

_NUMBER = re.compile(r"[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_SHOWN = 20  # last lines of a run that has no metric


class Refused(Exception):
    """Raised for a trial that is refused, such as one that changes locked files or ends too soon to have trained."""


@dataclass(frozen=True)
class Outcome:
    """The outcome of a run: its value, or the reason why it has none, and whether its trial is refused."""

    value: float | None
    seconds: float = 0.0
    why_none: str = ""
    refused: bool = False
    log_sha256: str = ""
    memory_gb: float | None = None
    items: Mapping[str, Any] = field(default_factory=dict)

    def fields(self) -> dict[str, Any]:
        """Return the fields of the outcome for the ledger, without those that are empty."""
        kept = {name: value for name, value in vars(self).items() if value}
        return kept | {"value": self.value, "seconds": round(self.seconds, 3)}


def run_once(
    repository: Repository, settings: Settings, locked: Mapping[str, str], commit: str, run: Run, *, slot: int = 0
) -> Outcome:
    """Run the command of a campaign once, and return the outcome.

    Args:
        repository: the repository that has the commit.
        settings: the settings of the campaign.
        locked: {path: digest} of the locked files.
        commit: the commit whose code is run.
        run: identity of the run.
        slot: number of the worktree.

    Raises:
        NoResult: the run was ended from outside.
        Refused: the commit changes locked files.
        ConfigError: locked files outside the commit have changed.
    """
    place = repository.checkout(commit, slot, settings.links)
    before = _locked(place, locked)
    hidden: set[str] = set() if run[0] else {*settings.held_out} & {*locked}
    for path in hidden:
        for name in before[path]:
            (place / path / name).unlink(missing_ok=True)
    log = log_of(repository, run)
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        text = _execute(settings, place, run, log)
    except NoResult:
        raise
    except (OSError, RuntimeError, ValueError) as error:  # it failed, or its output cannot be read
        return Outcome(None, time.monotonic() - began, one_line(error, 300), log_sha256=sha256(log))
    seconds = time.monotonic() - began
    after = {path: files_below(place / path) for path in locked if path not in hidden}
    value: float | None = None
    items: dict[str, float] = {}
    if touched := [path for path, files in after.items() if not before[path].items() <= files.items()]:
        why, refused = f"the run changed {touched[0]}, which is locked; write to another path", True
    elif settings.items:
        items, why, refused = read_items(place / settings.items, settings.metric)
        value = math.fsum(items.values()) / len(items) if items else None
    else:
        value, why, refused = read_metric(text, settings.metric)
        if settings.metric_file and not text:
            why = f"the command did not write {settings.metric_file}"
    if value is not None and seconds < (settings.min_seconds or 0):
        least = f"a run must take at least {rough(settings.min_seconds or 0)} s"
        why = f"the run ended with a value after only {rough(seconds)} s, but {least}"
        value, refused = None, True
    memory = re.findall(r"^peak_vram_mb\s*[:=]\s*(\d+(?:\.\d*)?)\s*$", text, re.MULTILINE)
    gigabytes = round(float(memory[-1]) / 1024, 1) if memory else None
    kept = _keep_items(repository, run, items) if items else {}
    return Outcome(value, seconds, why, refused, sha256(log), gigabytes, kept)


def _locked(place: Path, locked: Mapping[str, str]) -> dict[str, dict[str, str]]:
    """Return the files of each locked path in a worktree. Raises Refused or ConfigError if any file has changed."""
    found = {path: files_below(place / path) for path in locked}
    for path, files in found.items():
        if digest_of(files) != locked[path]:
            if (place / path).resolve().is_relative_to(place.resolve()):
                raise Refused(f"the commit changes {path}, which is locked; undo that change")
            problem = "is locked but has changed since the campaign began"
            raise ConfigError(path, "", None, problem, "restore it, or start a new campaign")
    return found


def _execute(settings: Settings, place: Path, run: Run, log: Path) -> str:
    """Run the command in a worktree; return its output, or the content of the file with the metric.

    Raises:
        NoResult: the command was ended from outside.
        RuntimeError: the command failed.
        OSError, ValueError: the output cannot be read.
    """
    verify, _, seed = run
    file = place / name if (name := settings.items or settings.metric_file) else log
    if file != log and file.is_file():
        file.unlink()  # the commit may have it already
    devices = lease(settings.gpus)
    own = {settings.seed_env: str(seed)} if settings.seed_env else {}
    if devices.tokens:
        own |= {"CUDA_VISIBLE_DEVICES": ",".join(devices.tokens), "CUDA_DEVICE_ORDER": "PCI_BUS_ID"}
    try:
        with log.open("wb") as output:
            status = run_guarded(
                settings.words(seed, verify=verify),
                devices.descriptors,
                lambda: None,
                minutes=settings.time_limit,
                log=output,
                folder=place,
                environment=environment() | own,
            )
    finally:
        devices.release()
    if status != 0:
        raise failure(status, last_words(log, 0))
    return "" if settings.items else read_text(file) if file.exists() else ""


def digest_of(content: object) -> str:
    """Return a short digest of JSON content."""
    return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:32]


def read_metric(text: str, name: str) -> tuple[float | None, str, bool]:
    """Return the metric of a command's output or None, the reason for None, and whether the trial must be refused.

    The metric is printed once: on a line of its own (`val_bpb:  0.9979`, `val_bpb = 0.9979`), or as JSON.
    """
    found: list[Any] = re.findall(rf"^\s*{re.escape(name)}\s*[:=]\s*(\S+)\s*$", text.replace("\r", "\n"), re.MULTILINE)
    lines = [line for line in text.splitlines() if line.lstrip().startswith("{")]
    for line in lines if len(lines) != 1 or _pairs(lines[0]) else [text[text.index("{") :]]:
        found += [value for key, value in _pairs(line) if key == name]
    if not found:
        return None, f"the command printed no {name}", False
    if len(found) > 1:
        return None, f"the command printed {name} {len(found)} times; print it once, at the end", True
    if isinstance(found[0], bool) or not _NUMBER.fullmatch(str(found[0])):
        return None, f"the command printed {name} = {one_line(found[0], 40)}, which is not a number", False
    value = float(found[0])
    problem = "" if math.isfinite(value) else f"the command printed {name} = {value}, which is not finite"
    return None if problem else value, problem, False


def _pairs(text: str) -> list[tuple[str, Any]]:
    """Return the keys and values of a JSON object, with repeated keys; an empty list for any other text."""
    try:
        pairs = json.loads(text, object_pairs_hook=list)
    except (ValueError, RecursionError):
        return []
    return pairs if isinstance(pairs, list) and all(isinstance(pair, tuple) for pair in pairs) else []


def read_items(file: Path, name: str) -> tuple[dict[str, float], str, bool]:
    """Return {item: value} of an evaluation or {}, the reason for {}, and whether the trial must be refused."""
    from ablation.readers.evaluation import reader_of  # takes half a second to import
    from ablation.readers.sheet import Wanted

    if not file.exists():
        return {}, f"the command did not write {file.name}", False
    try:
        sheets = list(reader_of(file).sheets(file, Wanted(metric=name)))
    except (OSError, ValueError, TrackerError) as error:
        return {}, one_line(str(error).replace(str(file), file.name), 300), True
    if len(sheets) != 1:
        return {}, f"the command wrote the items of {len(sheets)} runs or tasks; write the items of exactly one", True
    if unscored := sheets[0].unscored:
        items = counted(len(unscored), "item")
        return (
            {},
            f"the command wrote no number for {items} (the first is {next(iter(unscored))}); score every item",
            True,
        )
    return dict(zip(sheets[0].items, sheets[0].values.tolist(), strict=True)), "", False


def _keep_items(repository: Repository, run: Run, items: Mapping[str, float]) -> dict[str, Any]:
    """Write the items of a run to the campaign's folder; return their number and digests for the ledger."""
    ordered = dict(sorted(items.items()))
    write_text(path := items_of(repository, run), json.dumps(ordered) + "\n", sync=False)
    return {"count": len(items), "ids": digest_of([*ordered]), "sha256": sha256(path)}


def on_another_scale(value: float, known: Sequence[float]) -> bool:
    """Return whether a value seems to be a percentage among shares, or a share among percentages.

    A metric may well rise from 0.7 to 5, so values within a factor of 5 have one scale. Otherwise, they have two scales
    if one is at most 1 and the other from 10 to 100, or if a factor of 100 makes them similar.
    """
    size, low, high = abs(value), min(map(abs, known)), max(map(abs, known))
    if not 0 < high <= 3 * low or low / 5 <= size <= 5 * high:
        return False
    units = 0 < min(size, high) <= 1 and 10 < max(size, low) <= 100
    return units or any(low / 2 <= factor * size <= 2 * high for factor in (100, 0.01))


def log_of(repository: Repository, run: Run) -> Path:
    """Return the file with the output of a run."""
    verify, code, seed = run
    return repository.folder / "logs" / f"{code}-{seed}{'-verify' if verify else ''}.txt"


def items_of(repository: Repository, run: Run) -> Path:
    """Return the file with the items of a run."""
    return log_of(repository, run).with_suffix(".json")


def last_lines(log: Path) -> str:
    """Return the last lines of a run's output as text to print."""
    lines = tail(log, 0).replace("\r", "\n").splitlines()
    return "\n".join(f"  | {one_line(line, 200)}" for line in lines[-_SHOWN:]) or "  | (it printed nothing)"

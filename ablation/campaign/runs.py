"""One run of a commit in a worktree of its own, and the metric that it printed."""

import json
import math
import re
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.campaign.repository import Repository, environment
from ablation.campaign.settings import Settings
from ablation.contract.display import one_line
from ablation.contract.reading import read_text, sha256
from ablation.runner.guarded import NoResult, failure, last_words, run_guarded

_NUMBER = re.compile(r"[-+]?((\d+\.?\d*|\.\d+)(e[-+]?\d+)?|inf|infinity|nan)", re.ASCII | re.IGNORECASE)
_SHOWN = 20  # last lines of a run that has no metric


@dataclass(frozen=True)
class Outcome:
    """What a run left: its value, or why there is none. refused: the value is there and does not count."""

    value: float | None
    seconds: float
    why: str = ""
    refused: bool = False
    log: str = ""
    memory_gb: float | None = None

    def fields(self) -> dict[str, Any]:
        """Return the fields of the ledger's line that are not empty."""
        own = {"why_none": self.why, "refused": self.refused, "log_sha256": self.log, "memory_gb": self.memory_gb}
        kept = {name: value for name, value in own.items() if value}
        return {"value": self.value, "seconds": round(self.seconds, 3), **kept}


def run_once(
    repository: Repository,
    settings: Settings,
    commit: str,
    seed: int,
    *,
    verify: bool,
    log: Path,
    slot: int = 0,
    devices: Sequence[str] = (),
    locks: Sequence[int] = (),
) -> Outcome:
    """Run the command of a campaign once. Raises NoResult if it was ended from outside: the run does not count.

    Args:
        repository: with the commit.
        settings: of the campaign.
        commit: the code.
        seed: of the run.
        verify: whether it is a run of a verification.
        log: file for the output.
        slot: number of the worktree.
        devices: tokens of leased accelerators.
        locks: descriptors that stay open until nothing of the command is left.
    """
    hidden = [] if verify else repository.tracked(settings.words(seed, verify=True)) if settings.verify_run else []
    place = repository.checkout(commit, slot, settings.links, hidden)
    source = place / settings.metric_file if settings.metric_file else log
    if settings.metric_file:
        source.unlink(missing_ok=True)  # one that the commit holds was not written by the run
    words = settings.words(seed, verify=verify)
    log.parent.mkdir(parents=True, exist_ok=True)
    began = time.monotonic()
    try:
        with log.open("wb") as file:
            status = run_guarded(
                words,
                locks,
                lambda: None,
                minutes=settings.time_limit,
                log=file,
                folder=place,
                environment=environment(settings.seed_env, seed, devices),
            )
        seconds = time.monotonic() - began
        if status != 0:
            raise failure(status, last_words(log, 0))
    except NoResult:
        raise
    except RuntimeError as error:
        return Outcome(None, time.monotonic() - began, one_line(error, 300), log=sha256(log))
    try:
        text = read_text(source) if source.exists() else ""
    except (OSError, ValueError) as error:
        return Outcome(None, seconds, f"{source.name} cannot be read ({one_line(error, 200)})", log=sha256(log))
    value, why, refused = read_metric(text, settings.metric)
    if value is not None and seconds < (settings.min_seconds or 0):
        why = (
            f"ended after {seconds:.2g} s with a value, but a training takes at least {settings.min_seconds or 0:.2g} s"
        )
        value, refused = None, True
    if value is None and not refused and settings.metric_file and not text:
        why = f"did not write {settings.metric_file}"
    memory = re.findall(r"^peak_vram_mb\s*[:=]\s*([\d.]+)\s*$", text, re.MULTILINE)
    gigabytes = round(float(memory[-1]) / 1024, 1) if memory and memory[-1].count(".") < 2 else None
    return Outcome(value, seconds, why, refused, sha256(log), gigabytes)


def read_metric(text: str, name: str) -> tuple[float | None, str, bool]:
    """Return the metric in a program's output; or None, why, and whether a run that prints this is refused.

    It stands once: on a line of its own (`val_bpb:  0.9979`, `val_bpb = 0.9979`), or in a line or file of JSON.
    """
    found: list[Any] = re.findall(rf"^\s*{re.escape(name)}\s*[:=]\s*(\S+)\s*$", text.replace("\r", "\n"), re.MULTILINE)
    lines = [line for line in text.splitlines() if line.lstrip().startswith("{")]
    for line in lines if len(lines) != 1 else [text[text.index("{") :] if _json(lines[0]) is None else lines[0]]:
        record = _json(line)
        if isinstance(record, Mapping) and name in record:
            found.append(record[name])
    if not found:
        return None, f"printed no {name}", False
    if len(found) > 1:
        return None, f"printed {name} {len(found)} times; print it once, at the end", True
    if isinstance(found[0], bool) or not _NUMBER.fullmatch(str(found[0])):
        return None, f"printed {name} = {one_line(found[0], 40)}, which is not a number", False
    value = float(found[0])
    return (value, "", False) if math.isfinite(value) else (None, f"printed {name} = {value}", False)


def on_another_scale(value: float, known: Sequence[float]) -> bool:
    """Whether a value is a percentage among shares, or a share among percentages, or about a hundred times all others.

    A share is up to 1 and a percentage more than 10: a metric without an end may well rise from 0.7 to 5.
    """
    size, low, high = abs(value), min(map(abs, known)), max(map(abs, known))
    if not 0 < high <= 3 * low or low / 5 <= size <= 5 * high:
        return False
    units = 0 < min(size, high) <= 1 and 10 < max(size, low) <= 100
    return units or any(low / 2 <= factor * size <= 2 * high for factor in (100, 0.01))


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        return None


def last_lines(log: Path) -> str:
    """Return the last lines of a run's output, to be shown."""
    try:
        lines = log.read_text(encoding="utf-8", errors="replace").replace("\r", "\n").splitlines()
    except OSError:
        lines = []
    return "\n".join(f"  | {one_line(line, 200)}" for line in lines[-_SHOWN:]) or "  | (it printed nothing)"

"""Progress of a command: by the progress bar in its log, or by the files of a logger that `collect` names.

It is polled every second while the command writes. So nothing here blocks, reads more than the ends of a growing file,
or mistakes half-written text for a number.
"""

import os
import re
import stat
from collections.abc import Sequence
from pathlib import Path

from ablation.contract.reading import read_json

_TAIL = 1 << 13
_BAR = re.compile(r"(?<!\d)(\d{1,15})/(\d{1,15}) \[\d+:\d\d", re.ASCII)  # tqdm: ` 12/100 [00:03<00:25,  3.4it/s]`
_STEP = re.compile(r'"step"\s*:\s*(\d{1,15})\s*[,}]', re.ASCII)
_WHOLE = re.compile(r"\d{1,15}", re.ASCII)
_STATE = "trainer_state.json"
Place = tuple[int, int]  # steps done, and steps in all


class Follower:
    """Looks, when asked, how many steps a command has done."""

    def __init__(self, output: Path, log: Path, begin: int, readers: Sequence[str], total: int | None) -> None:
        """output: its folder. log, begin: its output, from this byte on. total: its steps, where they are known."""
        self._output, self._log, self._begin, self._total = output, log, begin, total
        self._readers = readers
        self._states: dict[Path, tuple[tuple[int, int], Place | None]] = {}  # size and time, and what they said

    def look(self) -> Place | None:
        """Return steps done and steps in all; None while nothing tells."""
        found = [place for place in (self._bar(), self._state(), self._metrics()) if place is not None]
        return max(found, default=None)

    def _bar(self) -> Place | None:
        """Return the progress of the last bar in the log; with a known total, of the last bar with that total."""
        _, text = _ends(self._log, self._begin)
        bars = [(int(done), int(of)) for done, of in _BAR.findall(text)]
        fitting = [bar for bar in bars if self._total in (None, bar[1]) and bar[0] <= bar[1] > 0]
        return fitting[-1] if fitting else None

    def _state(self) -> Place | None:
        """Return the progress that transformers' Trainer wrote next to its newest checkpoint."""
        if "trainer_state" not in self._readers:
            return None
        paths = [self._output / _STATE, *self._output.glob(f"checkpoint-*/{_STATE}")]
        self._states = {path: self._states[path] for path in paths if path in self._states}
        return max((place for place in map(self._state_of, paths) if place is not None), default=None)

    def _state_of(self, path: Path) -> Place | None:
        try:
            found = path.stat()
            version = (found.st_size, found.st_mtime_ns)
            if path not in self._states or self._states[path][0] != version:
                self._states[path] = version, _steps_of(path)
            return self._states[path][1]
        except OSError:
            return None

    def _metrics(self) -> Place | None:
        """Return the last step of `metrics.csv`, `metrics.jsonl` or verl's log, where the number of steps is known."""
        if self._total is None:
            return None
        places = [self._output / name for name in ("metrics.csv", "metrics.jsonl") if "metrics" in self._readers]
        places += self._output.glob("*.jsonl") if "verl" in self._readers else []
        for place in places:
            head, text = _ends(place)
            for line in reversed(text.split("\n")[:-1]):  # the last one may be half written
                if (step := _step(line, head, place.name)) is not None:
                    return min(step, self._total), self._total
        return None


def _steps_of(state: Path) -> Place | None:
    """Return the steps of a Trainer's state; None if it is something else, or half written."""
    try:
        content = read_json(state)
        done, total = int(content["global_step"]), int(content["max_steps"])
    except (OSError, ValueError, KeyError, TypeError, ArithmeticError):
        return None
    return (done, total) if 0 <= done <= total else None


def _ends(path: Path, begin: int = 0) -> tuple[str, str]:
    """Return the first line and the last ones after byte `begin`; nothing if it is not a regular file."""
    try:
        with open(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                return "", ""
            file.seek(begin)
            head = file.readline(_TAIL)
            file.seek(max(begin, file.seek(0, os.SEEK_END) - _TAIL))
            return head.decode(errors="replace"), file.read(_TAIL).decode(errors="replace")
    except OSError:
        return "", ""


def _step(line: str, head: str, name: str) -> int | None:
    if name.endswith(".jsonl"):
        match = _STEP.search(line)
        return int(match[1]) if match else None
    columns, cells = head.strip().split(","), line.strip().split(",")
    place = columns.index("step") if "step" in columns else len(cells)
    return int(cells[place]) if place < len(cells) and _WHOLE.fullmatch(cells[place]) else None

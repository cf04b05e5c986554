"""How far a command is: by the progress bar in its log, or by the files of a logger that `collect` names."""

import re
from collections.abc import Sequence
from pathlib import Path

from contract.reading import read_json

_TAIL = 1 << 13
_BAR = re.compile(r"(\d+)/(\d+) \[\d+:\d\d")  # tqdm: ` 12%|#2        | 12/100 [00:03<00:25,  3.4it/s]`
_STATE = "trainer_state.json"


class Follower:
    """Looks, when asked, how many steps a command has done."""

    def __init__(self, output: Path, log: Path, begin: int, readers: Sequence[str], total: int | None) -> None:
        """output: its folder. log, begin: what it says, from this byte on. total: its steps, where they are known."""
        self._output, self._log, self._begin, self._total = output, log, begin, total
        self._readers = readers

    def look(self) -> tuple[int, int] | None:
        """Return steps done and steps in all; None while nothing tells."""
        found = [place for place in (self._bar(), self._state(), self._metrics()) if place is not None]
        return max(found, default=None)

    def _bar(self) -> tuple[int, int] | None:
        """Return what the last bar in the log says; with a known total, the last one of that total."""
        try:
            with self._log.open("rb") as file:
                file.seek(max(self._begin, self._log.stat().st_size - _TAIL))
                text = file.read().decode(errors="replace")
        except OSError:
            return None
        bars = [(int(done), int(of)) for done, of in _BAR.findall(text)]
        fitting = [bar for bar in bars if self._total in (None, bar[1]) and bar[1] > 0]
        return fitting[-1] if fitting else None

    def _state(self) -> tuple[int, int] | None:
        """Return what transformers' Trainer wrote beside its newest checkpoint."""
        if "trainer_state" not in self._readers:
            return None
        found = []
        for path in [self._output / _STATE, *self._output.glob(f"checkpoint-*/{_STATE}")]:
            try:
                state = read_json(path)
                found.append((int(state["global_step"]), int(state["max_steps"])))
            except (OSError, ValueError, KeyError, TypeError):
                continue
        return max(found, default=None)

    def _metrics(self) -> tuple[int, int] | None:
        """Return the last step of `metrics.csv`, `metrics.jsonl` or verl's log, where the number of steps is known."""
        if self._total is None:
            return None
        places = [self._output / name for name in ("metrics.csv", "metrics.jsonl") if "metrics" in self._readers]
        places += self._output.glob("*.jsonl") if "verl" in self._readers else []
        for place in places:
            try:
                with place.open("rb") as file:
                    head = file.readline().decode(errors="replace")
                    file.seek(max(file.tell(), file.seek(0, 2) - _TAIL))
                    lines = file.read().decode(errors="replace").split("\n")
            except OSError:
                continue
            for line in reversed(lines[:-1]):  # the last one may be half written
                if (step := _step(line, head, place.name)) is not None:
                    return min(step, self._total), self._total
        return None


def _step(line: str, head: str, name: str) -> int | None:
    if name.endswith(".jsonl"):
        match = re.search(r'"step"\s*:\s*(\d+)', line)
        return int(match[1]) if match else None
    columns, cells = head.strip().split(","), line.strip().split(",")
    place = columns.index("step") if "step" in columns else len(cells)
    return int(cells[place]) if place < len(cells) and cells[place].isdigit() else None

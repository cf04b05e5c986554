"""The ledger of a campaign, `campaign.jsonl`: lines are only added, and each has the hash of the line before.

It is the campaign's whole state. A line that a killed process or a full disk left half-written does not count. The last
line's number and hash are also kept in a second file, so that the removal of lines at the end is noticed, too.
"""

import hashlib
import json
import os
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from ablation.contract.atomic import WriteError, write_text
from ablation.contract.errors import ConfigError
from ablation.contract.reading import read_bytes

Event = dict[str, Any]
_LIMIT = 1 << 30
_REMEDY = "restore the file, because an edited ledger supports no claims"


class Ledger:
    """The lines of a ledger. Hold the campaign's lock while you add a line.

    Attributes:
        events: the content of all lines.
        last: the hash of the last line.
    """

    def __init__(self, path: Path, seal: Path) -> None:
        """Read the ledger; `seal` is the file with the number and hash of the last line.

        Raises ConfigError if the ledger does not exist, cannot be read, or was edited.
        """
        self.path, self.seal = path, seal
        sealed = read_bytes(seal).decode(errors="replace") if seal.exists() else ""  # first: a line may be added now
        try:
            content = read_bytes(path, _LIMIT)
        except FileNotFoundError:
            if sealed:
                raise ConfigError(path, "", None, "was removed", _REMEDY) from None
            remedy = "start a campaign with `ablation campaign init --run CMD --metric NAME:min`"
            raise ConfigError(path, "", None, "the campaign has not been started", remedy) from None
        except OSError as error:
            raise ConfigError(path, "", None, f"cannot be read ({error})", "make the file readable") from None
        *lines, half = content.split(b"\n")
        self._size = len(content) - len(half)
        self.events: list[Event] = []
        hashes = [""]
        for number, line in enumerate(lines):
            try:
                event = json.loads(line)
                same = event["n"] == number and event["before"] == hashes[-1]
            except (ValueError, TypeError, KeyError):
                same = False
            if not same:
                problem = "was edited, or lines before it are missing"
                raise ConfigError(path, f"line {number + 1}", None, problem, _REMEDY)
            self.events.append(event)
            hashes.append(_digest(line))
        self.last = hashes[-1]
        count, _, known = sealed.strip().partition(" ")
        if sealed and not (count.isdigit() and int(count) < len(hashes) and hashes[int(count)] == known):
            problem = f"lines were edited or removed (number of lines when last written: {count})"
            raise ConfigError(path, "", None, problem, _REMEDY)

    def add(self, event: Mapping[str, Any]) -> Event:
        """Append a line and flush it to the disk. Raises WriteError if the line could not be added."""
        written = {"n": len(self.events), **event, "time": round(time.time(), 3), "before": self.last}
        line = json.dumps(written, ensure_ascii=False).encode(errors="replace")
        handle = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o666)
        try:
            os.ftruncate(handle, self._size)  # half a line, of a process that was killed
            os.lseek(handle, 0, os.SEEK_END)
            rest = line + b"\n"
            while rest:
                rest = rest[os.write(handle, rest) :]
            os.fsync(handle)
        except OSError as error:
            with suppress(OSError):
                os.ftruncate(handle, self._size)
            problem = f"cannot be written ({error.strerror}), so the last event was not recorded"
            raise WriteError(f"{self.path}: {problem}; free disk space, or make the file writable", error) from error
        finally:
            os.close(handle)
        self._size += len(line) + 1
        self.events.append(written)
        self.last = _digest(line)
        with suppress(OSError):  # an older seal holds as well
            write_text(self.seal, f"{len(self.events)} {self.last}\n", sync=False)
        return written


def _digest(line: bytes) -> str:
    return hashlib.sha256(line).hexdigest()[:32]

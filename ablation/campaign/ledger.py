"""The ledger of a campaign: `campaign.jsonl`, to which lines are only added, each with the hash of the one before.

It is the campaign's whole state. A line that a killed process or a full disk left half-written was never written. The
last line's number and hash are kept a second time, so that lines that were removed at the end are missed as well.
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
_REMEDY = "restore the file; claims of an edited ledger are not shown"


def digest(line: bytes) -> str:
    """Return the hash of a line, which the next one holds."""
    return hashlib.sha256(line).hexdigest()[:32]


class Ledger:
    """The lines of a ledger; hold the campaign's lock to add one.

    Attributes:
        events: the content of all lines.
        last: the hash of the last one.
    """

    def __init__(self, path: Path, seal: Path) -> None:
        """Read the ledger. `seal` is the file that keeps its last line's number and hash. Raises ConfigError."""
        self.path, self.seal = path, seal
        try:
            content = read_bytes(path, _LIMIT)
        except FileNotFoundError:
            problem, remedy = (
                "the campaign has not been started",
                "start one with: ablation campaign init --run CMD --metric NAME:min",
            )
            raise ConfigError(path, "", None, problem, remedy) from None
        except OSError as error:
            raise ConfigError(path, "", None, f"cannot be read ({error})", "make it readable") from None
        lines = content.split(b"\n")
        self._size = len(content) - len(lines.pop())
        self.events: list[Event] = []
        self.last = ""
        hashes = [""]
        for number, line in enumerate(lines):
            try:
                event = json.loads(line)
                same = event["n"] == number and event["before"] == self.last
            except (ValueError, TypeError, KeyError):
                same = False
            if not same:
                raise ConfigError(
                    path, f"line {number + 1}", None, "was edited, or lines before it are missing", _REMEDY
                )
            self.events.append(event)
            self.last = digest(line)
            hashes.append(self.last)
        self._check_seal(hashes)

    def _check_seal(self, hashes: list[str]) -> None:
        with suppress(FileNotFoundError):
            count, _, known = read_bytes(self.seal).decode(errors="replace").strip().partition(" ")
            if not (count.isdigit() and int(count) < len(hashes) and hashes[int(count)] == known):
                problem = f"had {count} lines earlier; lines were edited or removed"
                raise ConfigError(self.path, "", None, problem, _REMEDY)

    def add(self, event: Mapping[str, Any]) -> Event:
        """Append a line and flush it to the disk. Raises WriteError; then nothing was added."""
        written = {"n": len(self.events), **event, "time": round(time.time(), 3), "before": self.last}
        line = json.dumps(written, ensure_ascii=False).encode(errors="replace")
        handle = os.open(self.path, os.O_WRONLY | os.O_CLOEXEC)
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
            text = f"{self.path}: cannot be written ({error.strerror}), so this run was not recorded; free space"
            raise WriteError(text, error) from error
        finally:
            os.close(handle)
        self._size += len(line) + 1
        self.events.append(written)
        self.last = digest(line)
        with suppress(OSError):  # an older seal holds as well
            write_text(self.seal, f"{len(self.events)} {self.last}\n", sync=False)
        return written

"""The records of an event file: found and checked many at a time, so that a file of a million values takes a second.

A record is its length, a checksum of that, an `Event` of Protocol Buffers, and a checksum of it. Events of one tag
differ in time, step and value alone, so one in a few thousand is parsed, and its values are those of all like it.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablation.contract.reading import regular
from ablation.readers.run import Problem

_LARGE = 1 << 16  # bytes of an event that is read only if it is a text: others of that size are images
_AT_ONCE = 1 << 24  # bytes
_POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli), reflected
_TRIAL_VALUES = (0.5, -3.25)  # written where the value seems to be, to see whether it is read there

Bytes = NDArray[np.uint8]


@cache
def _zeros(longest: int) -> tuple[Any, Any]:
    """Return what each byte adds to a checksum, by its distance from the end and its value [longest, 256].

    Also return the checksums of zero bytes, by their number [longest + 1].
    """
    first = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        first = np.where(first & 1, (first >> 1) ^ np.uint32(_POLYNOMIAL), first >> 1).astype(np.uint32)
    table, sums = np.empty((longest, 256), np.uint32), np.empty(longest + 1, np.uint32)
    row, sums[0] = first, 0xFFFFFFFF
    for k in range(longest):
        table[k] = row
        row = (row >> np.uint32(8)) ^ first[row & np.uint32(255)]
        sums[k + 1] = (sums[k] >> np.uint32(8)) ^ first[sums[k] & np.uint32(255)]
    return table, sums


def _sums(records: Bytes) -> Any:
    """Return the masked checksums of records of one length [records, bytes]."""
    count, length = records.shape
    table, sums = _zeros(1 << max(length - 1, 255).bit_length())
    checksums = np.full(count, sums[length], np.uint32)
    if count * 8 < length:
        back = np.arange(length - 1, -1, -1)
        checksums ^= np.array([np.bitwise_xor.reduce(table[back, row]) for row in records], np.uint32)
    else:
        for at, column in enumerate(np.ascontiguousarray(records.T)):
            checksums ^= table[length - 1 - at][column[0] if (column == column[0]).all() else column]
    checksums ^= np.uint32(0xFFFFFFFF)
    return ((checksums >> np.uint32(15)) | (checksums << np.uint32(17))) + np.uint32(0xA282EAD8)


def _is_head(heads: Bytes) -> Any:
    """Return which rows of 12 bytes are a length with its checksum."""
    return _sums(heads[:, :8]) == np.ascontiguousarray(heads[:, 8:]).view("<u4")[:, 0]


def _rows(data: Bytes, places: Any, length: int) -> Bytes:
    """Return the bytes from each place on [places, length]."""
    return (
        np.lib.stride_tricks.sliding_window_view(data, length)[places]
        if len(places)
        else np.empty((0, length), np.uint8)
    )


class EventFile:
    """An open event file."""

    def __init__(self, path: Path, problem: Problem) -> None:
        self.path, self.problem = path, problem
        with regular(path).open("rb") as file:
            size = path.stat().st_size
            self._bytes: Any = mmap(file.fileno(), 0, access=ACCESS_READ) if size else b""
        self.data = np.frombuffer(self._bytes, np.uint8)
        self.places, self.sizes = self._find()

    def _find(self) -> tuple[Any, Any]:
        """Return where events start and their lengths, up to the first record that is cut off or damaged."""
        length, place, end = struct.Struct("<Q").unpack_from, 0, len(self.data)
        borders: list[int] = []
        with suppress(struct.error, OverflowError):
            while True:
                borders.append(place)
                place += length(self._bytes, place)[0] + 16  # from one length to the next, without reading events
        while borders[-1] > end:
            borders.pop()
        heads = np.array(borders, np.int64)[:-1]
        wrong = np.flatnonzero(~_is_head(_rows(self.data, heads, 12)))
        count = int(wrong[0]) if len(wrong) else len(heads)
        if (place := borders[count]) < end:
            rest = end - place
            self.problem(f"{self.path}: is cut off or damaged after byte {place}; the last {rest} bytes are not read")
        return heads[:count] + 12, np.diff(borders)[:count] - 16

    def alike(self) -> Iterator[tuple[Any, Bytes]]:
        """Yield (places among the file's events, events of one length [events, bytes]), without damaged events.

        Large events are left out, and are not even read.
        """
        small = np.flatnonzero(self.sizes < _LARGE)
        by_size = small[np.argsort(self.sizes[small], kind="stable")]
        borders = np.flatnonzero(np.diff(self.sizes[by_size])) + 1
        for group in np.split(by_size, borders) if len(by_size) else ():
            size = int(self.sizes[group[0]])
            most = max(_AT_ONCE // max(size, 1), 1)
            for start in range(0, len(group), most):
                lengths = group[start : start + most]
                rows = _rows(self.data, self.places[lengths], size + 4)
                events = rows[:, :size]
                intact = _sums(events) == np.ascontiguousarray(rows[:, size:]).view("<u4")[:, 0] if size else None
                if intact is not None and not intact.all():
                    for place in self.places[lengths[~intact]]:
                        self.problem(f"{self.path}: the record at byte {place - 12} is damaged, so it is left out")
                    lengths, events = lengths[intact], events[intact]
                yield lengths, events


def template(event: bytes, read: Callable[[bytes], tuple[str, int, float] | None]) -> tuple[int, int] | None:
    """Return (end of the step, start of the value) of an event with one number of 32 bits; None for another event.

    `read` returns tag, step and value of such an event. Time is in bytes 1 to 8, and the step, unless it is 0, from
    byte 10 on.
    """
    said = read(event)
    if said is None or event[:1] != b"\x09" or said[1] < 0 or (said[1] and event[9:10] != b"\x10"):
        return None
    tag, step, value = said
    end = 10 + (step.bit_length() + 6) // 7 if step else 9
    at = event.rfind(np.float32(value).tobytes())
    trials = [np.float32(trial).tobytes() for trial in _TRIAL_VALUES]
    tried = [read(event[:at] + trial + event[at + 4 :]) for trial in trials] if at > end else []
    return (end, at) if tried == [(tag, step, trial) for trial in _TRIAL_VALUES] else None


def same(events: Bytes, among: Any, like: int, shape: tuple[int, int], step: int) -> Any:
    """Return which of the events `among` differ from `like` only in time, step (of as many bytes) and value."""
    (end, at), model = shape, events[like]
    matching = among[events[among, at - 2] == model[at - 2]]
    for piece in (slice(0, 1), slice(end, at), slice(at + 4, None), slice(9, 10)):
        matching = matching[(events[matching, piece] == model[piece]).all(axis=1)]
    if step:
        varint = events[matching, 10:end]
        matching = matching[(varint[:, :-1] >= 128).all(axis=1) & (varint[:, -1] < 128)]
    return matching


def numbers(events: Bytes, shape: tuple[int, int], step: int) -> tuple[Any, Any, Any]:
    """Return (times, steps, values) of events of one template."""
    end, at = shape
    times = np.ascontiguousarray(events[:, 1:9]).view("<f8")[:, 0]
    values = np.ascontiguousarray(events[:, at : at + 4]).view("<f4")[:, 0].astype(float)
    steps = np.zeros(len(events), np.int64)
    if step:
        for place, column in enumerate(events[:, 10:end].T):
            steps |= (column & 127).astype(np.int64) << (7 * place)
    return times, steps, values

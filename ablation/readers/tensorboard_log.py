"""Read the records of TensorBoard's event files, and verify the checksums of many records at once.

A record consists of a length, a checksum of the length, an event of this length (a Protocol Buffers message `Event`),
and a checksum of the event.
"""

import struct
from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from mmap import ACCESS_READ, mmap
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from ablation.contract.reading import regular
from ablation.readers.run import Problem

_LARGE = 1 << 16  # bytes of an event that is skipped: nearly all of that size are images
_AT_ONCE = 1 << 24  # bytes
_RECORDS = 1 << 16  # that are verified together, before the next ones are looked for
_POLYNOMIAL = 0x82F63B78  # CRC-32C (Castagnoli), reflected

Bytes = NDArray[np.uint8]


def read_events(path: Path, problem: Problem) -> Iterator[bytes]:
    """Yield the serialised events of a file in order, skipping events of 64 KiB or more without reading them.

    Damaged records and an end that is cut off are left out and reported to `problem`.
    """
    with regular(path).open("rb") as file:
        content: Any = mmap(file.fileno(), 0, access=ACCESS_READ) if path.stat().st_size else b""
    data = np.frombuffer(content, np.uint8)
    for starts, lengths in _find(path, content, data, problem):
        small = np.flatnonzero(lengths < _LARGE)
        places, sizes = starts[small], lengths[small]
        intact = _intact(data, places, sizes)
        for place, size, whole in zip(places.tolist(), sizes.tolist(), intact.tolist(), strict=True):
            if whole:
                yield content[place : place + size]
            else:
                problem(f"{path}: the record at byte {place - 12} is damaged, so it is left out")


def _find(path: Path, content: Any, data: Bytes, problem: Problem) -> Iterator[tuple[Any, Any]]:
    """Yield the starts and lengths of events, block by block, up to the first record that is cut off or damaged."""
    length, place, end, more = struct.Struct("<Q").unpack_from, 0, len(data), True
    while more:
        borders = [place]
        with suppress(struct.error, OverflowError):
            while len(borders) <= _RECORDS:  # from one length to the next, without reading events
                borders.append(borders[-1] + length(content, borders[-1])[0] + 16)
        more = len(borders) > _RECORDS and borders[-1] <= end
        while borders[-1] > end:
            borders.pop()
        heads = np.array(borders, np.int64)
        head_bytes = _rows(data, heads[:-1], 12)
        wrong = np.flatnonzero(_sums(head_bytes[:, :8]) != _stored(head_bytes[:, 8:]))
        if len(wrong):
            heads, more = heads[: int(wrong[0]) + 1], False
        yield heads[:-1] + 12, np.diff(heads) - 16
        place = int(heads[-1])
    if place < end:
        problem(f"{path}: is cut off or damaged after byte {place} of {end}; the rest is not read")


def _intact(data: Bytes, places: Any, sizes: Any) -> Any:
    """Return a mask of the events whose checksum is right. Events of equal length are checked together."""
    intact = np.ones(len(places), bool)
    by_size = np.argsort(sizes, kind="stable")
    for group in np.split(by_size, np.flatnonzero(np.diff(sizes[by_size])) + 1) if len(by_size) else ():
        size = int(sizes[group[0]])
        most = max(_AT_ONCE // max(size, 1), 1)
        for some in (group[start : start + most] for start in range(0, len(group) if size else 0, most)):
            rows = _rows(data, places[some], size + 4)
            intact[some] = _sums(rows[:, :size]) == _stored(rows[:, size:])
    return intact


def _rows(data: Bytes, places: Any, length: int) -> Bytes:
    """Return the `length` bytes that begin at each place, as an array [places, length]."""
    if not len(places):
        return np.empty((0, length), np.uint8)
    return np.lib.stride_tricks.sliding_window_view(data, length)[places]


def _stored(sums: Bytes) -> Any:
    return np.ascontiguousarray(sums).view("<u4")[:, 0]


def _sums(records: Bytes) -> Any:
    """Return the masked checksums [records] of records [records, bytes], which all have the same length."""
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


@cache
def _zeros(longest: int) -> tuple[Any, Any]:
    """Return what a byte adds to a checksum, by its distance from the end and its value [longest, 256].

    Also return the checksum of zero bytes, by their number [longest + 1].
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

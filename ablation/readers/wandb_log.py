"""The file `run-<id>.wandb`: records of Protocol Buffers in the format of LevelDB's logs.

The wandb package dropped its reader between versions 0.25 and 0.31, and the format is simple, so both layers are read
here. Field numbers are from `wandb/proto/wandb_internal.proto`, where a number never changes its meaning.
"""

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path

from ablation.contract.reading import regular
from ablation.readers.run import Problem

OWN = ("_step", "_runtime", "_timestamp", "_wandb")  # what W&B adds to each row
HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
_BLOCK = 1 << 15
_PREFIX = struct.Struct("<IHB")  # of each fragment: checksum, length, kind
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SUMS = {kind: zlib.crc32(bytes([kind])) for kind in (_FULL, _FIRST, _MIDDLE, _LAST)}
_VARINT, _EIGHT_BYTES, _BYTES, _FOUR_BYTES = 0, 1, 2, 5


def is_wandb(path: Path) -> bool:
    """Whether a path is a file that begins as W&B's do. Raises OSError where it cannot be read."""
    if not path.is_file():
        return False
    with regular(path).open("rb") as file:
        return file.read(len(HEADER)) == HEADER


def read_records(path: Path, problem: Problem) -> Iterator[bytes]:
    """Yield the records of a file, block by block.

    A record is cut into fragments where it crosses the end of a block. If a fragment is damaged, the rest of its block
    and the record that it belongs to are left out. `problem` is called once, with the first such place.

    Raises:
        OSError: the file cannot be read.
    """
    begun: list[bytes] | None = None  # the fragments of a record that has not ended
    lost, first_lost, place = 0, 0, 0
    with regular(path).open("rb") as file:
        while block := file.read(_BLOCK):
            at = len(HEADER) if place == 0 else 0
            last_block = len(block) < _BLOCK
            while at + _PREFIX.size <= len(block):
                kind, data, size = _fragment(block, at)
                if data is None:
                    break
                at += size
                whole, begun, odd = _assembled(begun, kind, data)
                if odd:
                    lost, first_lost = lost + 1, first_lost or place + at - size
                if whole is not None:
                    yield whole
            rest = block[at:]
            if rest.strip(b"\0") if not last_block else rest:
                lost, first_lost, begun = lost + 1, first_lost or place + at, None
            place += len(block)
    if begun is not None:
        lost, first_lost = lost + 1, first_lost or place
    if lost:
        problem(f"{path}: cut off or damaged in {lost} place{'s' * (lost > 1)}, first at byte {first_lost} of {place}")


def _fragment(block: bytes, at: int) -> tuple[int, bytes | None, int]:
    """Return (kind, data, size with its prefix) of the fragment at a place; None for data that is not whole."""
    checksum, length, kind = _PREFIX.unpack_from(block, at)
    data = block[at + _PREFIX.size : at + _PREFIX.size + length]
    whole = kind in _SUMS and len(data) == length and zlib.crc32(data, _SUMS[kind]) == checksum
    return kind, data if whole else None, _PREFIX.size + length


def _assembled(begun: list[bytes] | None, kind: int, data: bytes) -> tuple[bytes | None, list[bytes] | None, bool]:
    """Return (the record that a fragment ends, the fragments that wait for more, whether some part is missing)."""
    if kind == _FULL:
        return data, None, begun is not None
    if kind == _FIRST:
        return None, [data], begun is not None
    if begun is None:
        return None, None, True
    begun.append(data)
    return (b"".join(begun), None, False) if kind == _LAST else (None, begun, False)


def fields(message: bytes) -> Iterator[tuple[int, int | bytes]]:
    """Yield (number, value) of a message of Protocol Buffers: a whole number without sign, or bytes.

    Raises:
        ValueError: the message is cut off or invalid.
    """
    place, end = 0, len(message)
    while place < end:
        tag, place = _varint(message, place)
        kind = tag & 7
        if kind == _VARINT:
            value, place = _varint(message, place)
            yield tag >> 3, value
            continue
        if kind == _BYTES:
            size, place = _varint(message, place)
        elif kind in (_EIGHT_BYTES, _FOUR_BYTES):
            size = 8 if kind == _EIGHT_BYTES else 4
        else:
            raise ValueError(f"a field of kind {kind}")
        if place + size > end:
            raise ValueError("a field is longer than its message")
        yield tag >> 3, message[place : place + size]
        place += size


def _varint(message: bytes, place: int) -> tuple[int, int]:
    value = shift = 0
    while place < len(message) and shift < 70:
        byte = message[place]
        place += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, place
        shift += 7
    raise ValueError("a number is cut off")

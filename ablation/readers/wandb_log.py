"""Read files `run-<id>.wandb`, which hold Protocol Buffers messages in the format of LevelDB's logs.

The wandb package dropped its own reader between versions 0.25 and 0.31.
"""

import struct
import zlib
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass

from ablation.contract.reading import regular
from ablation.readers.run import Problem

OWN = ("_step", "_runtime", "_timestamp", "_wandb")  # what W&B adds to each row
HEADER = struct.pack("<4sHB", b":W&B", 0xBEE1, 0)
_BLOCK = 1 << 15
_PREFIX = struct.Struct("<IHB")  # of each fragment: checksum, length, kind
_FULL, _FIRST, _MIDDLE, _LAST = 1, 2, 3, 4
_SUMS = {kind: zlib.crc32(bytes([kind])) for kind in (_FULL, _FIRST, _MIDDLE, _LAST)}


def is_wandb(path: Path) -> bool:
    """Return whether a file is a W&B file, judged by its first bytes. Raises OSError if the file cannot be read."""
    if not path.is_file():
        return False
    with regular(path).open("rb") as file:
        return file.read(len(HEADER)) == HEADER


def read_records(path: Path, problem: Problem) -> Iterator[bytes]:
    """Yield the records of a W&B file, block by block. Raises OSError if the file cannot be read.

    A record is cut into fragments where it crosses the end of a block. If a fragment is damaged, the rest of its block
    and the record to which it belongs are left out. One call of `problem` reports all such places.
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
                record, begun, odd = _assembled(begun, kind, data)
                if odd:
                    lost, first_lost = lost + 1, first_lost or place + at - size
                if record is not None:
                    yield record
            rest = block[at:]
            if rest.strip(b"\0") if not last_block else rest:
                lost, first_lost, begun = lost + 1, first_lost or place + at, None
            place += len(block)
    if begun is not None:
        lost, first_lost = lost + 1, first_lost or place
    if lost:
        places = f"{lost} place{'s' * (lost > 1)}, the first at byte {first_lost} of {place}"
        problem(f"{path}: is cut off or damaged in {places}; the records there are left out")


def _fragment(block: bytes, at: int) -> tuple[int, bytes | None, int]:
    """Return (kind, data, size with header) of the fragment at an offset in a block; data is None if it is damaged."""
    checksum, length, kind = _PREFIX.unpack_from(block, at)
    data = block[at + _PREFIX.size : at + _PREFIX.size + length]
    intact = kind in _SUMS and len(data) == length and zlib.crc32(data, _SUMS[kind]) == checksum
    return kind, data if intact else None, _PREFIX.size + length


def _assembled(begun: list[bytes] | None, kind: int, data: bytes) -> tuple[bytes | None, list[bytes] | None, bool]:
    """Return (record that a fragment completes, fragments of an incomplete record, whether a fragment is missing)."""
    if kind == _FULL:
        return data, None, begun is not None
    if kind == _FIRST:
        return None, [data], begun is not None
    if begun is None:
        return None, None, True
    begun.append(data)
    return (b"".join(begun), None, False) if kind == _LAST else (None, begun, False)


# Messages and fields of wandb/proto/wandb_internal.proto, where a number never changes its meaning: {field: (number,
# kind)}. A list holds any number of them. Texts are bytes, since Protocol Buffers would refuse what is not UTF-8.
MESSAGES: dict[str, dict[str, tuple[int, Any]]] = {
    "Item": {
        "key": (1, "bytes"),
        "nested_key": (2, ["bytes"]),
        "boolean": (4, "bool"),
        "integer": (5, "sint64"),
        "number": (6, "double"),
        "text": (7, "bytes"),
        "json": (8, "bytes"),
        "value_json": (16, "bytes"),
    },
    "Step": {"num": (1, "int64")},
    "History": {"item": (1, ["Item"]), "step": (2, "Step")},
    "Updates": {"update": (1, ["Item"]), "remove": (2, ["Item"])},
    "Metric": {"name": (1, "bytes"), "glob_name": (2, "bytes"), "step_metric": (4, "bytes")},
    "Time": {"seconds": (1, "int64"), "nanos": (2, "int32")},
    "Run": {
        "run_id": (1, "bytes"),
        "project": (3, "bytes"),
        "config": (4, "Updates"),
        "summary": (5, "Updates"),
        "display_name": (8, "bytes"),
        "start_time": (17, "Time"),
        "resume": (24, "bool"),
    },
    "Exit": {"exit_code": (1, "int32"), "not_complete": (3, "bool")},
    "Record": {
        "history": (2, "History"),
        "summary": (3, "Updates"),
        "config": (5, "Updates"),
        "metric": (12, "Metric"),
        "run": (17, "Run"),
        "exit": (18, "Exit"),
    },
}


@cache
def _record_class() -> Any:
    file = FileDescriptorProto(name="wandb.proto", package="w")
    for name, fields in MESSAGES.items():
        message = file.message_type.add(name=name)
        for field, (number, kind) in fields.items():
            [item_kind], label = (kind, "LABEL_REPEATED") if isinstance(kind, list) else ([kind], "LABEL_OPTIONAL")
            made = message.field.add(name=field, number=number, label=getattr(FieldDescriptorProto, label))
            if item_kind in MESSAGES:
                made.type, made.type_name = FieldDescriptorProto.TYPE_MESSAGE, f".w.{item_kind}"
            else:
                made.type = FieldDescriptorProto.Type.Value(f"TYPE_{item_kind.upper()}")
    pool = DescriptorPool()
    pool.Add(file)
    return GetMessageClass(pool.FindMessageTypeByName("w.Record"))


def parse(record: bytes) -> Any:
    """Return a serialised record as a message `Record`. Raises ValueError if the record is invalid."""
    try:
        return _record_class().FromString(record)
    except DecodeError as error:
        raise ValueError(str(error)) from None


def text(content: bytes) -> str:
    """Return a bytes field of a message as text; bytes that are not UTF-8 are replaced."""
    return content.decode("utf-8", "replace")

"""Tensors in safetensors files, written one after the other; several files may hold pieces of the same tensors.

A file is what `torch.distributed.checkpoint`'s HuggingFaceStorageWriter leaves of a rank: its metadata tells where in
the whole tensor a piece begins, so HuggingFaceStorageReader and `consolidate_safetensors_files` read such files too.
That writer holds all that it writes in memory twice more. Here it is one tensor at a time.
"""

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from itertools import chain
from pathlib import Path
from typing import NamedTuple, Self

import torch
from safetensors import safe_open
from torch import Tensor

_CODES = {
    torch.float64: "F64",
    torch.float32: "F32",
    torch.bfloat16: "BF16",
    torch.float16: "F16",
    torch.float8_e4m3fn: "F8_E4M3",
    torch.float8_e5m2: "F8_E5M2",
    torch.int64: "I64",
    torch.int32: "I32",
    torch.int16: "I16",
    torch.int8: "I8",
    torch.uint8: "U8",
    torch.bool: "BOOL",
}


class Piece(NamedTuple):
    """Rows of a tensor, and the number of the first; `torch.distributed.fsdp` cuts along the first dimension only."""

    tensor: Tensor
    start: int = 0


def write_tensors(path: Path, pieces: Mapping[str, Piece]) -> str:
    """Write a file of its own; return its digest (sha256). Each tensor is on the CPU only while it is written."""
    # The widest first, as safetensors' own writer has it, so that all lie on addresses that their type may have.
    order = sorted(pieces, key=lambda name: (-pieces[name].tensor.element_size(), name))
    offsets = {name: {"saved_offsets": [start, *[0] * (t.dim() - 1)][: t.dim()]} for name, (t, start) in pieces.items()}
    header: dict[str, object] = {
        "__metadata__": {"format": "pt", "DCP_VERSION": "1.0", "DCP_SHARDING_INFO": json.dumps(offsets)}
    }
    end = 0
    for name in order:
        tensor = pieces[name].tensor
        begin, end = end, end + tensor.numel() * tensor.element_size()
        header[name] = {"dtype": _CODES[tensor.dtype], "shape": list(tensor.shape), "data_offsets": [begin, end]}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    digest = hashlib.sha256()
    with path.open("wb") as file:
        content = (_bytes(pieces[name].tensor) for name in order)
        parts: Iterable[bytes | memoryview] = chain([len(text).to_bytes(8, "little"), text], content)
        for part in parts:
            file.write(part)
            digest.update(part)
    return digest.hexdigest()


def _bytes(tensor: Tensor) -> memoryview:
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


class TensorFiles(Mapping[str, Tensor]):
    """The whole tensors that files hold together, each read when it is asked for.

    Raises ValueError or SafetensorError for a file that is none, and OSError for one that cannot be read.
    """

    def __init__(self, paths: Sequence[Path]) -> None:
        self._files = ExitStack()
        self._found: dict[str, list[tuple[int, int, safe_open]]] = {}  # start, stop and file of each piece
        for path in paths:
            file = self._files.enter_context(safe_open(path, framework="pt"))
            cut = json.loads((file.metadata() or {}).get("DCP_SHARDING_INFO", "{}"))
            for name in file.keys():  # noqa: SIM118  # it is not a mapping
                start = (cut.get(name, {}).get("saved_offsets") or [0])[0]
                rows = (file.get_slice(name).get_shape() or [1])[0]
                self._found.setdefault(name, []).append((start, start + rows, file))
        for pieces in self._found.values():
            pieces.sort(key=lambda piece: piece[:2])

    def __getitem__(self, name: str) -> Tensor:
        """Return a whole tensor, on the CPU."""
        pieces = self._found[name]
        alone = len(pieces) == 1 and pieces[0][0] == 0  # and maybe without dimensions
        return pieces[0][2].get_tensor(name) if alone else self.rows(name, 0, pieces[-1][1])

    def __iter__(self) -> Iterator[str]:
        """Yield the names."""
        return iter(self._found)

    def __len__(self) -> int:
        """Return how many tensors there are."""
        return len(self._found)

    def shape(self, name: str) -> torch.Size:
        """Return the shape of a whole tensor."""
        *_, (_, stop, file) = self._found[name]
        shape = file.get_slice(name).get_shape()
        return torch.Size([stop, *shape[1:]] if shape else [])

    def rows(self, name: str, start: int, stop: int) -> Tensor:
        """Return some rows of a tensor, maybe none, on the CPU; only these are read."""
        parts = [
            file.get_slice(name)[max(start, begin) - begin : max(start, min(stop, end)) - begin]
            for begin, end, file in self._found[name]
            if begin < stop and start < end
        ]
        parts = parts or [self._found[name][0][2].get_slice(name)[0:0]]
        found = parts[0] if len(parts) == 1 else torch.cat(parts)
        if len(found) != max(0, stop - start):
            raise ValueError(f"{name}: rows {start} to {stop} are not all there")
        return found

    def close(self) -> None:
        """Close the files."""
        self._files.close()

    def __enter__(self) -> Self:
        """Close the files at the end of the block."""
        return self

    def __exit__(self, *_: object) -> None:
        """Close the files."""
        self.close()

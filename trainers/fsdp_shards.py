"""Weights that FSDP left as one file per rank, as verl's `FSDPCheckpointManager` writes them, put together again.

    actor/model_world_size_8_rank_0.pt ... actor/model_world_size_8_rank_7.pt
    actor/huggingface/config.json, tokenizer.json ...

These files are pickles. They are read by `torch.load(weights_only=True)`, whose unpickler builds tensors and nothing
but the classes of `ALLOWED`, which say how a DTensor is cut; a file that names any other is refused unread.
"""

import logging
import pickle
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, _dtensor_spec

# ShardOrderEntry is new in torch 2.10.
ALLOWED: list[Any] = [DeviceMesh, DTensor, Partial, Replicate, Shard] + [
    getattr(_dtensor_spec, name)
    for name in ("DTensorSpec", "TensorMeta", "ShardOrderEntry")
    if hasattr(_dtensor_spec, name)
]
_FILE = re.compile(r"model_world_size_(\d+)_rank_(\d+)\.pt")
_REFUSED = re.compile(r"GLOBAL ([\w.]+)|[Uu]nsupported (?:global|class):? (?:GLOBAL )?([\w.]+)")


def has_shards(folder: Path) -> bool:
    """Tell whether the folder holds weights of this form."""
    return any(_FILE.fullmatch(path.name) for path in folder.iterdir())


def merge_shards(folder: Path) -> dict[str, Tensor]:
    """Return the whole tensors by name, in the precision of the files, on the CPU.

    A tensor that is cut along a dimension is the ranks' parts one after the other, up to its whole size; with replicas
    (mesh `ddp` x `fsdp`) the ranks of the first replica come first and suffice. One that is not cut is that of rank 0.
    Raises ValueError where a rank is missing, a placement is another, or a file holds more than tensors.
    """
    whole: dict[str, Tensor] = {}
    parts: dict[str, list[Tensor]] = {}
    for file in _files(folder):
        for name, value in _load(file).items():
            if name in whole or not isinstance(value, Tensor):
                continue
            if not isinstance(value, DTensor):
                whole[name] = value
                continue
            cut = _cut(name, value, file)
            if cut is None:
                whole[name] = value.to_local()
                continue
            found = parts.setdefault(name, [])
            found.append(value.to_local())
            if sum(part.shape[cut] for part in found) == value.shape[cut]:
                whole[name] = torch.cat(parts.pop(name), cut)
        if whole and not parts:
            return whole
    raise ValueError(f"{folder}: the ranks' parts do not make up the whole of {', '.join(sorted(parts)[:3]) or 'it'}")


def _files(folder: Path) -> list[Path]:
    found = {int(m[2]): (int(m[1]), path) for path in folder.iterdir() if (m := _FILE.fullmatch(path.name))}
    sizes = {size for size, _ in found.values()}
    if len(sizes) != 1:
        raise ValueError(f"{folder}: files of runs with {sorted(sizes)} ranks side by side; keep those of one")
    missing = sorted(set(range(sizes.pop())) - set(found))
    if missing:
        raise ValueError(f"{folder}: the file of rank {missing[0]} is missing")
    return [found[rank][1] for rank in sorted(found)]


def _cut(name: str, value: DTensor, file: Path) -> int | None:
    """Return the dimension along which a tensor is cut over the ranks; None: not at all."""
    cuts = [placement.dim for placement in value.placements if type(placement) is Shard]
    others = [placement for placement in value.placements if type(placement) not in (Shard, Replicate)]
    if len(cuts) > 1 or others:
        raise ValueError(
            f"{file.name}: {name} is placed as {value.placements}: only cut along one dimension, or replicated, is read"
        )
    return cuts[0] if cuts else None


def _load(file: Path) -> dict[str, Any]:
    with _quiet(), torch.serialization.safe_globals(ALLOWED):
        try:
            content = torch.load(file, map_location="cpu", weights_only=True, mmap=True)
        except pickle.UnpicklingError as error:
            named = next((m[1] or m[2] for m in _REFUSED.finditer(str(error))), None)
            why = f"it holds {named}" if named else " ".join(str(error).split())[:200]
            raise ValueError(f"{file}: not loaded, for {why}: only tensors and DTensors are read") from None
    if not isinstance(content, dict):
        raise ValueError(f"{file}: holds a {type(content).__name__}, not tensors by name")
    if lora := [name for name in content if "lora_" in name]:
        raise ValueError(f"{file}: {lora[0]} is a LoRA adapter's; merge the adapter into the model before")
    return content


@contextmanager
def _quiet() -> Iterator[None]:
    """Silence the warning that a mesh was read without its processes, which nobody here asks to communicate."""
    logger = logging.getLogger("torch.distributed.device_mesh")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)

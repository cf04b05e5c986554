"""Checkpoints: tensors as safetensors and all other state as JSON, without pickle.

`state.json` names the tensor files and their digests. It is replaced last, so a process that is killed at any moment
leaves either the previous checkpoint or the new one. A checkpoint whose digests do not match is ignored.

    state.json
    a/1-of-2-00000.safetensors, ...      each process writes its own rows; the next checkpoint is written to b/

torch.distributed.checkpoint's HuggingFaceStorageReader reads the files, so any number of processes can resume from a
checkpoint of any other number. Its writer would need twice the memory of all tensors; the writer here needs the memory
of one file. Without tensors torch is not imported, so trainers without torch can save checkpoints too.
"""

from __future__ import annotations

import errno
import json
import logging
import shutil
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError

from ablation.contract.atomic import remove_leftovers, replacing, write_text
from ablation.contract.reading import sha256
from ablation.runner.ranks import ALONE, Ranks

if TYPE_CHECKING:
    import torch

STATE = "state.json"
FILE_SIZE = 2**27  # bytes; a larger file of tensors is closed and the next one begun
_log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    """A loaded checkpoint: the number of steps done when it was saved, tensors by name, and JSON values."""

    step: int
    tensors: Tensors
    state: dict[str, Any]


class Tensors(Mapping[str, "torch.Tensor"]):
    """Mapping of names to the tensors of a checkpoint; a tensor is read onto the CPU whenever it is accessed.

    Raises OSError or SafetensorError if a file cannot be read, RuntimeError if a tensor is missing.
    """

    def __init__(self, folder: Path | None) -> None:
        self._folder = folder
        self._stored: Mapping[str, Any] = {}
        if folder is not None:
            self._stored = self._reader().read_metadata().state_dict_metadata

    def _reader(self) -> Any:
        from torch.distributed.checkpoint import HuggingFaceStorageReader

        return HuggingFaceStorageReader(str(self._folder))

    def read(self, tensors: dict[str, torch.Tensor]) -> None:
        """Fill tensors in place with the stored values of the same names; a DTensor gets only this rank's rows."""
        from torch.distributed import checkpoint

        if not tensors:
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # ranks read separately
            try:
                checkpoint.load(tensors, storage_reader=self._reader(), no_dist=True)
            except checkpoint.CheckpointException as error:  # a BaseException, so the stage would end without status
                raise error.failures[0][0] from None

    def empty(self, name: str) -> torch.Tensor:
        """Return an uninitialised tensor with the shape and type of the stored tensor `name`."""
        import torch

        stored = self._stored[name]
        return torch.empty(stored.size, dtype=stored.properties.dtype)

    def __getitem__(self, name: str) -> torch.Tensor:
        tensor = self.empty(name)
        self.read({name: tensor})
        return tensor

    def __iter__(self) -> Iterator[str]:
        return iter(self._stored)

    def __len__(self) -> int:
        return len(self._stored)


def save(
    folder: Path, step: int, tensors: dict[str, torch.Tensor], state: dict[str, Any], ranks: Ranks = ALONE
) -> None:
    """Replace the checkpoint in `folder`. `state` must be JSON, in which floats keep all bits and NaN is allowed.

    All ranks must call it with the same names; the first rank writes `state` and the tensors that are not sharded.
    Raises TypeError or ValueError, before anything is written, if JSON would change `state` (a tuple, an integer key).
    """
    letter = "a"
    if ranks.rank == 0:
        if repr(json.loads(json.dumps(state))) != repr(state):
            raise ValueError("the state of a checkpoint must be JSON; use lists, not tuples, and only strings as keys")
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        current = _read_state(folder)
        letter = "b" if current and any(name.startswith("a/") for name in current["files"]) else "a"
        shutil.rmtree(folder / letter, ignore_errors=True)
    letter = ranks.same(letter)  # no rank writes before the first one has removed old files
    files = _write_tensors(folder / letter, tensors, ranks) if tensors else {}
    files = {f"{letter}/{name}": digest for rank_files in ranks.gather(files) for name, digest in rank_files.items()}
    if ranks.rank == 0:
        write_text(folder / STATE, json.dumps({"step": step, "files": files, "state": state}))
        for old in "ab":
            if old != letter or not files:
                shutil.rmtree(folder / old, ignore_errors=True)
    ranks.gather(None)  # no rank continues before the checkpoint is complete


def _write_tensors(folder: Path, tensors: dict[str, torch.Tensor], ranks: Ranks) -> dict[str, str]:
    """Write this rank's parts of the tensors to files; return {file name: digest}."""
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    files: dict[str, str] = {}
    waiting: dict[str, torch.Tensor] = {}  # copies on the CPU
    starts: dict[str, dict[str, list[int]]] = {}

    def write() -> None:
        path = folder / f"{ranks.rank + 1}-of-{ranks.size}-{len(files):05}.safetensors"
        with replacing(path) as temporary:
            save_file(waiting, temporary, metadata={"DCP_SHARDING_INFO": json.dumps(starts)})
        files[path.name] = sha256(path)
        waiting.clear()
        starts.clear()

    for name, tensor in tensors.items():
        if (local_part := part_of(tensor, ranks)) is None:
            continue
        part, start = local_part
        waiting[name] = part.detach().to("cpu", copy=True).contiguous()
        starts[name] = {"saved_offsets": start}
        if sum(each.nbytes for each in waiting.values()) >= FILE_SIZE:
            write()
    if waiting:
        write()
    return files


def part_of(tensor: torch.Tensor, ranks: Ranks) -> tuple[torch.Tensor, list[int]] | None:
    """Return (the part of a tensor that this rank writes, its offset in each dimension); None if it writes none.

    The first rank writes tensors that are not sharded or have no rows.
    """
    unsharded = tensor, [0] * tensor.dim()
    if ranks.size == 1:
        return unsharded
    from torch.distributed.tensor import DTensor  # imported late, because it takes most of a second

    if not isinstance(tensor, DTensor):
        return unsharded if ranks.rank == 0 else None
    local = tensor.to_local()
    (chunk,) = tensor.__create_chunk_list__()
    return (local, list(chunk.offsets)) if local.numel() or ranks.rank == 0 else None


def load(folder: Path, ranks: Ranks = ALONE) -> Checkpoint | None:
    """Return the checkpoint in `folder`, or None if there is no undamaged one. All ranks must call it.

    Each rank verifies some of the files. Raises OSError (EIO) if the ranks do not see the same checkpoint.
    """
    content = _read_state(folder)
    files = {} if content is None else content["files"]
    seen = None if content is None else (content["step"], files)
    if any(other != seen for other in ranks.gather(seen)):
        raise OSError(errno.EIO, "the ranks read different checkpoints; put the results on a shared file system")
    tensors, problem = _read_tensors(folder, files, ranks)
    problem = next(filter(None, ranks.gather(problem)), "")
    if content is None:
        return None
    if problem:
        _log.warning("the checkpoint in %s is ignored: %s", folder, problem)
        return None
    return Checkpoint(content["step"], tensors, content["state"])


def _read_tensors(folder: Path, files: dict[str, str], ranks: Ranks) -> tuple[Tensors, str]:
    """Return (tensors, problem); the problem is "" unless a file cannot be read or its digest is not as recorded."""
    try:
        for name, digest in list(files.items())[ranks.rank :: ranks.size]:
            if sha256(folder / name) != digest:
                return Tensors(None), f"the digest of {name} differs from the digest in {STATE}"
        return Tensors((folder / next(iter(files))).parent if files else None), ""
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        return Tensors(None), str(error) or type(error).__name__


def _read_state(folder: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("the checkpoint in %s is ignored: %s", folder, error)
        return None
    shape = {"step": int, "files": dict, "state": dict}
    complete = isinstance(content, dict) and all(isinstance(content.get(name), kind) for name, kind in shape.items())
    return content if complete else None

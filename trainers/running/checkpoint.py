"""Checkpoints: tensors as safetensors, the rest as JSON; never pickle.

`state.json` names the tensor files together with their digests and is replaced last, so it is the commit point: a
process killed at any moment leaves the previous checkpoint or the new one. What does not verify counts as none.

    state.json
    a/1-of-2-00000.safetensors, ...      each process writes the rows of its own; the next checkpoint goes into b/

The files are those of torch.distributed.checkpoint's HuggingFaceStorageReader, which reads them: any number of
processes goes on from what any number wrote. Its writer holds all that it writes in memory twice more; here it is one
file at a time. Without tensors there is no tensor file, and torch is not imported: a trainer that does without can
checkpoint too.
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
FILE_SIZE = 2**27  # bytes from which a file of tensors is full
_log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    """A loaded checkpoint: the step after which it was taken, tensors by name, and JSON values."""

    step: int
    tensors: Tensors
    state: dict[str, Any]


class Tensors(Mapping[str, "torch.Tensor"]):
    """The tensors of a checkpoint: each is read, whole and onto the CPU, when it is asked for.

    Raises OSError or SafetensorError for files that cannot be read, and RuntimeError for a tensor that is not there.
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
        """Read into tensors of the same names and shapes; of a DTensor, only the rows that are here."""
        from torch.distributed import checkpoint

        if not tensors:
            return
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "torch.distributed is disabled", UserWarning)  # each reads for itself
            try:
                checkpoint.load(tensors, storage_reader=self._reader(), no_dist=True)
            except checkpoint.CheckpointException as error:  # no Exception: a stage would end without a status
                raise error.failures[0][0] from None

    def empty(self, name: str) -> torch.Tensor:
        """Return a buffer into which the whole tensor can be read."""
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
    """Replace the checkpoint in `folder`. `state` must be JSON (floats keep all their bits; NaN is allowed).

    All ranks call it with the same names; of what is not sharded, and of `state`, the first rank's is kept.
    Raises TypeError or ValueError for a state that would not come back equal (a tuple, an integer key, an object),
    before anything is written.
    """
    letter = "a"
    if ranks.rank == 0:
        if repr(json.loads(json.dumps(state))) != repr(state):
            raise ValueError(
                "the state of a checkpoint must survive JSON unchanged; use no tuples, and only strings as keys"
            )
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        current = _read_state(folder)
        letter = "b" if current and any(name.startswith("a/") for name in current["files"]) else "a"
        shutil.rmtree(folder / letter, ignore_errors=True)
    letter = ranks.same(letter)  # nobody writes before the first rank has tidied up
    files = _write_tensors(folder / letter, tensors, ranks) if tensors else {}
    files = {f"{letter}/{name}": digest for rank_files in ranks.gather(files) for name, digest in rank_files.items()}
    if ranks.rank == 0:
        write_text(folder / STATE, json.dumps({"step": step, "files": files, "state": state}))
        for old in "ab":
            if old != letter or not files:
                shutil.rmtree(folder / old, ignore_errors=True)
    ranks.gather(None)  # it is there for every rank that goes on


def _write_tensors(folder: Path, tensors: dict[str, torch.Tensor], ranks: Ranks) -> dict[str, str]:
    """Write what this rank keeps of the tensors, some in each file; return the digest of each file."""
    from safetensors.torch import save_file

    folder.mkdir(exist_ok=True)
    files: dict[str, str] = {}
    waiting: dict[str, torch.Tensor] = {}  # on the CPU, each in memory of its own
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
    """Return what this rank writes of a tensor and where that begins in it; None: nothing.

    What is not sharded, and what has no rows, is the first rank's.
    """
    unsharded = tensor, [0] * tensor.dim()
    if ranks.size == 1:
        return unsharded
    from torch.distributed.tensor import DTensor  # which takes most of a second

    if not isinstance(tensor, DTensor):
        return unsharded if ranks.rank == 0 else None
    local = tensor.to_local()
    (chunk,) = tensor.__create_chunk_list__()
    return (local, list(chunk.offsets)) if local.numel() or ranks.rank == 0 else None


def load(folder: Path, ranks: Ranks = ALONE) -> Checkpoint | None:
    """Return the checkpoint in `folder`, or None if there is none that is whole. All ranks call it.

    Each verifies some of the files. Raises OSError (EIO) where they do not see the same checkpoint.
    """
    content = _read_state(folder)
    files = {} if content is None else content["files"]
    mine = None if content is None else (content["step"], files)
    if any(other != mine for other in ranks.gather(mine)):
        raise OSError(errno.EIO, "the ranks do not read the same checkpoint; check that all see the same file system")
    tensors, problem = _read_tensors(folder, files, ranks)
    problem = next(filter(None, ranks.gather(problem)), "")
    if content is None:
        return None
    if problem:
        _log.warning("checkpoint in %s ignored: %s", folder, problem)
        return None
    return Checkpoint(content["step"], tensors, content["state"])


def _read_tensors(folder: Path, files: dict[str, str], ranks: Ranks) -> tuple[Tensors, str]:
    """Return the tensors, and why they cannot be read or are not those that were written, or nothing."""
    try:
        for name, digest in list(files.items())[ranks.rank :: ranks.size]:
            if sha256(folder / name) != digest:
                return Tensors(None), f"{name} does not have the digest that {STATE} states"
        return Tensors((folder / next(iter(files))).parent if files else None), ""
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        return Tensors(None), str(error) or type(error).__name__


def _read_state(folder: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("checkpoint in %s ignored: %s", folder, error)
        return None
    shape = {"step": int, "files": dict, "state": dict}
    complete = isinstance(content, dict) and all(isinstance(content.get(name), kind) for name, kind in shape.items())
    return content if complete else None

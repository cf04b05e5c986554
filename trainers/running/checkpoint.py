"""Checkpoints: tensors as safetensors, the rest as JSON; never pickle.

`state.json` names its tensor files together with their digests and is replaced last, so it is the commit point: a
process killed at any moment leaves the previous checkpoint or the new one. What does not verify counts as none.

    tensors-a.safetensors                         of one process
    shard-b-00001-of-00002.safetensors, ...       of several: each writes the rows of its own that it keeps

Any number of processes goes on from either. Without tensors there is no tensor file, and torch is not imported: a
trainer that does without can checkpoint too.
"""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError

from ablation.contract.atomic import remove_leftovers, replacing, write_text
from ablation.contract.reading import sha256
from ablation.runner.ranks import ALONE, Ranks

if TYPE_CHECKING:
    import torch

STATE = "state.json"
_log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    """What `load` returns: the step after which it was taken, tensors by name (on the CPU), and JSON values.

    tensors: of several ranks `trainers.tensor_files.TensorFiles`, from which each reads its own rows.
    """

    step: int
    tensors: Mapping[str, torch.Tensor]
    state: dict[str, Any]


def save(
    folder: Path, step: int, tensors: dict[str, torch.Tensor], state: dict[str, Any], ranks: Ranks = ALONE
) -> None:
    """Replace the checkpoint in `folder`. `state` must be JSON (floats keep all their bits; NaN is allowed).

    All ranks call it with the same names; of what is not a part of a whole, and of `state`, the first rank's is kept.
    Raises TypeError or ValueError for a state that would not come back equal (a tuple, an integer key, an object),
    before anything is written.
    """
    letter = "a"
    if ranks.rank == 0:
        if repr(json.loads(json.dumps(state))) != repr(state):
            raise ValueError(
                "the state of a checkpoint must survive JSON unchanged: no tuples, no keys that are not strings"
            )
        folder.mkdir(parents=True, exist_ok=True)
        remove_leftovers(folder)
        current = _read_state(folder)
        letter = "b" if current and any("-a" in name for name in current["files"]) else "a"
    letter = ranks.same(letter)  # nobody writes before the first rank has tidied up
    mine = f"tensors-{letter}" if ranks.size == 1 else f"shard-{letter}-{ranks.rank + 1:05}-of-{ranks.size:05}"
    name = f"{mine}.safetensors"
    files = dict(ranks.gather((name, _write_tensors(folder / name, tensors, ranks)))) if tensors else {}
    if ranks.rank == 0:
        write_text(folder / STATE, json.dumps({"step": step, "files": files, "state": state}))
        for old in folder.glob("*.safetensors"):
            if old.name not in files:
                old.unlink()
    ranks.gather(None)  # it is there for every rank that goes on


def _write_tensors(path: Path, tensors: dict[str, torch.Tensor], ranks: Ranks) -> str:
    """Replace `path` by what this rank keeps of the tensors; return its digest."""
    from trainers.tensor_files import Piece, write_tensors

    pieces = {name: piece for name, tensor in tensors.items() if (piece := ranks.piece(tensor)) is not None}
    with replacing(path) as temporary:
        return write_tensors(temporary, {name: Piece(*piece) for name, piece in pieces.items()})


def load(folder: Path, ranks: Ranks = ALONE) -> Checkpoint | None:
    """Return the checkpoint in `folder`, or None where there is none that is whole. All ranks call it.

    Each verifies some of the files. Raises OSError (EIO) where they do not see the same checkpoint.
    """
    content = _read_state(folder)
    files = {} if content is None else content["files"]
    mine = None if content is None else (content["step"], files)
    if any(seen != mine for seen in ranks.gather(mine)):
        raise OSError(errno.EIO, "the ranks do not read the same checkpoint")
    tensors, problem = _read_tensors(folder, files, ranks)
    problem = next(filter(None, ranks.gather(problem)), "")
    if content is None:
        return None
    if problem:
        _log.warning("checkpoint in %s ignored: %s", folder, problem)
        return None
    return Checkpoint(content["step"], tensors, content["state"])


def _read_tensors(folder: Path, files: dict[str, str], ranks: Ranks) -> tuple[Mapping[str, torch.Tensor], str]:
    """Return the tensors, and why they cannot be read or are not those that were written, or nothing."""
    if not files:
        return {}, ""
    from trainers.tensor_files import TensorFiles

    try:
        for name, digest in list(files.items())[ranks.rank :: ranks.size]:
            if sha256(folder / name) != digest:
                return {}, f"{name} does not have the digest that {STATE} states"
        found = TensorFiles([folder / name for name in files])
        return dict(found) if ranks.size == 1 else found, ""
    except (OSError, ValueError, TypeError, SafetensorError) as error:
        return {}, str(error) or type(error).__name__


def _read_state(folder: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("checkpoint in %s ignored: %s", folder, error)
        return None
    shape = {"step": int, "files": dict, "state": dict}
    whole = isinstance(content, dict) and all(isinstance(content.get(name), kind) for name, kind in shape.items())
    return content if whole else None

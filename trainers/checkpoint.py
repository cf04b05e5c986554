"""Checkpoints: tensors as safetensors, the rest as JSON; never pickle.

`state.json` names its tensor file together with its digest and is replaced last, so it is the commit point: a process
killed at any moment leaves the previous checkpoint or the new one. What does not verify counts as no checkpoint.

Without tensors there is no tensor file, and torch is not imported: a trainer that does without can checkpoint too.
"""

from __future__ import annotations

import hashlib
import json
import logging
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from safetensors import SafetensorError

from contract.atomic import remove_leftovers, replacing, write_text

if TYPE_CHECKING:
    import torch

STATE = "state.json"
_log = logging.getLogger(__name__)


class Checkpoint(NamedTuple):
    """What `load` returns: the step after which it was taken, tensors by name (on the CPU), and JSON values."""

    step: int
    tensors: dict[str, torch.Tensor]
    state: dict[str, Any]


def save(folder: Path, step: int, tensors: dict[str, torch.Tensor], state: dict[str, Any]) -> None:
    """Replace the checkpoint in `folder`. `state` must be JSON (floats keep all their bits; NaN is allowed).

    Raises TypeError or ValueError for a state that would not come back equal (a tuple, an integer key, an object),
    before anything is written.
    """
    if json.loads(json.dumps(state)) != state and not _has_nan(state):
        raise ValueError(
            "the state of a checkpoint must survive JSON unchanged: no tuples, no keys that are not strings"
        )
    folder.mkdir(parents=True, exist_ok=True)
    remove_leftovers(folder)
    name = digest = None
    if tensors:
        current = _read_state(folder)
        letter = "b" if current and current["file"] == "tensors-a.safetensors" else "a"
        name = f"tensors-{letter}.safetensors"
        digest = _write_tensors(folder / name, tensors)
    write_text(folder / STATE, json.dumps({"step": step, "file": name, "sha256": digest, "state": state}))
    for old in folder.glob("*.safetensors"):
        if old.name != name:
            old.unlink()


def _write_tensors(path: Path, tensors: dict[str, torch.Tensor]) -> str:
    """Replace `path`; return its digest."""
    from safetensors.torch import save_file

    # Clones: safetensors refuses views and tensors that share memory (tied weights, slices).
    copies = {name: tensor.detach().to("cpu", copy=True).contiguous() for name, tensor in tensors.items()}
    with replacing(path) as temporary:
        save_file(copies, temporary)
        return _digest(temporary)


def load(folder: Path) -> Checkpoint | None:
    """Return the checkpoint in `folder`, or None where there is none that is whole."""
    content = _read_state(folder)
    if content is None:
        return None
    try:
        tensors = {} if content["file"] is None else _read_tensors(folder / content["file"], content["sha256"])
        return Checkpoint(int(content["step"]), tensors, content["state"])
    except (OSError, ValueError, KeyError, TypeError, SafetensorError) as error:
        _log.warning("checkpoint in %s ignored: %s", folder, error)
        return None


def _read_tensors(path: Path, digest: str) -> dict[str, torch.Tensor]:
    """Return the tensors of a file. Raises ValueError where it is not the file that was written."""
    from safetensors.torch import load_file

    if _digest(path) != digest:
        raise ValueError(f"{path.name} does not have the digest that {STATE} states")
    return load_file(path)


def _read_state(folder: Path) -> dict[str, Any] | None:
    try:
        content = json.loads((folder / STATE).read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        _log.warning("checkpoint in %s ignored: %s", folder, error)
        return None
    whole = isinstance(content, dict) and content.keys() >= {"step", "file", "sha256", "state"}
    return content if whole and isinstance(content["file"], str | None) and isinstance(content["state"], dict) else None


def _digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _has_nan(value: Any) -> bool:
    if isinstance(value, dict):
        return any(map(_has_nan, value.values()))
    if isinstance(value, list):
        return any(map(_has_nan, value))
    return isinstance(value, float) and math.isnan(value)

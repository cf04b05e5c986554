"""Summary of the change that training made to the weights: `weights.json` in a stage's folder.

    digest  sha256 of the trained tensors: equal for equal weights only
    moved   a count sketch of (trained - start): the distance of two sketches is that of the two ways from the start, to
            within about a tenth (Charikar, Chen and Farach-Colton 2002)

A stage that measures models writes the same file with a digest of all that its items' values depend on, and an empty
sketch: what two runs measured with equal digests is equal on items that nobody has seen, too.

Two variants that end with equal weights differ in nothing that training felt. Some changes leave a trace of rounding
only: Adam divides a factor of the loss out again but for its epsilon. Then digests differ, and the sketches hardly do.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

import torch
from pydantic import BaseModel
from torch import Tensor

from ablation.contract.atomic import write_json

WEIGHTS_NAME = "weights.json"
BUCKETS = 128
TEXTS = {".json", ".jinja", ".txt", ".model"}  # of a Hugging Face folder: configuration, chat template, vocabulary


def write_weights(out: Path, start: Mapping[str, Tensor], trained: Mapping[str, Tensor]) -> None:
    """Write `weights.json` for tensors of the same names and shapes before and after training."""
    sketch = torch.zeros(BUCKETS, dtype=torch.float64)
    digest = hashlib.sha256()
    for name in sorted(trained):
        tensor = trained[name].detach().cpu()
        digest.update(_bytes(name, tensor))
        moved = (tensor.double() - start[name].detach().cpu().double()).reshape(-1)
        generator = torch.Generator().manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
        bucket = torch.randint(BUCKETS, moved.shape, generator=generator)
        sign = torch.randint(2, moved.shape, generator=generator) * 2 - 1
        sketch.index_add_(0, bucket, moved * sign)
    write_json(out / WEIGHTS_NAME, {"digest": digest.hexdigest(), "moved": sketch.tolist()})


class MeasuredModels:
    """The digest of what a stage measures: its settings, the inputs that are not models, and the models."""

    def __init__(self, settings: BaseModel, inputs: Mapping[str, Path]) -> None:
        """settings: the configuration that the stage reads. inputs: by name; a folder's name is its key."""
        described = {"settings": settings.model_dump(mode="json"), "inputs": {k: v.name for k, v in inputs.items()}}
        self._digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())

    def add(self, tensors: Mapping[str, Tensor], folder: Path) -> None:
        """Add the next model: all its tensors by name, and its configuration and tokenizer, the texts in `folder`."""
        for name in sorted(tensors):
            self._digest.update(_bytes(name, tensors[name].detach().cpu()))
        for path in sorted(folder.iterdir()):
            if path.suffix in TEXTS and not path.name.endswith(".index.json"):  # which tensor is in which file
                self._digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()};".encode())
        self._digest.update(b"|")

    def write(self, out: Path) -> None:
        """Write `weights.json`."""
        write_json(out / WEIGHTS_NAME, {"digest": self._digest.hexdigest(), "moved": []})


def _bytes(name: str, tensor: Tensor) -> bytes:
    """Return a tensor on the CPU with its name, shape and type."""
    head = f"{name} {tuple(tensor.shape)} {tensor.dtype};".encode()
    return head + tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()

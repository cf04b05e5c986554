"""Summary of the effect of training on the weights: `weights.json` in a stage's folder.

    digest  sha256 of the trained tensors, which is equal only for equal weights
    moved   count sketch of (trained - start); the distance between two sketches estimates the distance between the two
            models' changes to within about a tenth (Charikar, Chen and Farach-Colton 2002)

A stage that measures models writes the same file with an empty sketch and a digest of everything that its values depend
on, so two runs with equal digests would have equal values on any items.

Variants with equal weights differ in nothing that affects training. Some changes affect only rounding: Adam cancels a
factor of the loss, except for its epsilon. Then the digests differ, but the sketches hardly do.
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
TEXTS = {".json", ".jinja", ".txt", ".model"}  # configuration, chat template and vocabulary of a Hugging Face folder


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
    """Digest of all that a stage's measurements depend on: its settings, its inputs and the measured models."""

    def __init__(self, settings: BaseModel, inputs: Mapping[str, Path]) -> None:
        """Start the digest with the stage's configuration and its inputs' keys, which are their folders' names."""
        described = {"settings": settings.model_dump(mode="json"), "inputs": {k: v.name for k, v in inputs.items()}}
        self._digest = hashlib.sha256(json.dumps(described, sort_keys=True).encode())

    def add(self, tensors: Mapping[str, Tensor], folder: Path) -> None:
        """Add a model: its tensors by name, and its configuration and tokenizer, which are text files in `folder`."""
        for name in sorted(tensors):
            self._digest.update(_bytes(name, tensors[name].detach().cpu()))
        for path in sorted(folder.iterdir()):
            if path.suffix in TEXTS and not path.name.endswith(".index.json"):  # the index only locates tensors
                self._digest.update(f"{path.name} {hashlib.sha256(path.read_bytes()).hexdigest()};".encode())
        self._digest.update(b"|")

    def write(self, out: Path) -> None:
        """Write `weights.json` to the folder `out`."""
        write_json(out / WEIGHTS_NAME, {"digest": self._digest.hexdigest(), "moved": []})


def _bytes(name: str, tensor: Tensor) -> bytes:
    """Return the bytes of a CPU tensor, preceded by its name, shape and type."""
    head = f"{name} {tuple(tensor.shape)} {tensor.dtype};".encode()
    return head + tensor.contiguous().reshape(-1).view(torch.uint8).numpy().tobytes()

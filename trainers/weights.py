"""What training made of the weights, small enough to compare two runs by: `weights.json` in a stage's folder.

    digest  sha256 of the trained tensors: equal for equal weights only
    moved   a count sketch of (trained - start): the distance of two sketches is that of the two ways from the start, to
            within about a tenth (Charikar, Chen and Farach-Colton 2002)

Two variants that end with equal weights differ in nothing that training felt. Some changes leave a trace of rounding
only: Adam divides a factor of the loss out again but for its epsilon. Then digests differ, and the sketches hardly do.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path

import torch
from torch import Tensor

from contract.atomic import write_json

WEIGHTS_NAME = "weights.json"
BUCKETS = 128


def write_weights(out: Path, start: Mapping[str, Tensor], trained: Mapping[str, Tensor]) -> None:
    """Write `weights.json` for tensors of the same names and shapes before and after training."""
    sketch = torch.zeros(BUCKETS, dtype=torch.float64)
    digest = hashlib.sha256()
    for name in sorted(trained):
        tensor = trained[name].detach().cpu().contiguous()
        digest.update(f"{name} {tuple(tensor.shape)} {tensor.dtype};".encode())
        digest.update(tensor.reshape(-1).view(torch.uint8).numpy().tobytes())
        moved = (tensor.double() - start[name].detach().cpu().double()).reshape(-1)
        generator = torch.Generator().manual_seed(int(hashlib.sha256(name.encode()).hexdigest()[:8], 16))
        bucket = torch.randint(BUCKETS, moved.shape, generator=generator)
        sign = torch.randint(2, moved.shape, generator=generator) * 2 - 1
        sketch.index_add_(0, bucket, moved * sign)
    write_json(out / WEIGHTS_NAME, {"digest": digest.hexdigest(), "moved": sketch.tolist()})

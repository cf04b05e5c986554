"""What the stages of `debias` hold in memory; see ablation/contract/footprint.py."""

import re
from collections.abc import Mapping

from ablation.contract.footprint import Footprint, ModelAsset, Work
from trainers.debias.config import DebiasConfig, ModuleRule
from trainers.footprint import FLOAT, LEARNT, Shape, shape_of, share

TOKENS = 20  # of a StereoSet sentence; the mean is 12 with GPT-2's tokenizer
SENTENCES = 3  # of an item: anti, stereo, unrelated
CHUNK = 256  # positions whose logits are in memory at once
_SIZES = {"float32": 4, "bfloat16": 2, "float64": 8}
TRIED = {"dtype": "bfloat16"}  # what makes a stage smaller


def footprint(stage: str, config: DebiasConfig, models: Mapping[str, ModelAsset], devices: int) -> Footprint | None:
    """Return what a stage holds on each device: the frozen model, and the editor once there is one."""
    shape, size = shape_of(models, "model"), _SIZES[config.dtype]
    blocks = _edited(config, shape)
    # The blocks below the first edited one are dropped after loading: they are there before anything else is.
    first = min(blocks, default=0)
    dropped = 0 if stage == "prepare" else size * first * shape.block
    held, learnt = {"model: weights": size * shape.parameters - dropped}, _editor(config, shape, len(blocks))
    if stage != "prepare":  # a training keeps the weights of the best epoch as well
        held["editor"] = learnt * (LEARNT + FLOAT if stage == "train" else FLOAT)
    edited = 2 * size * shape.feed_forward * shape.hidden * len(blocks)
    logits = CHUNK * shape.vocab * (size + (FLOAT if size < FLOAT else 0))  # those of bfloat16 once more in float32
    kept = size * shape.kept * (shape.layers - first) * SENTENCES * TOKENS
    works = (
        Work("items", share(config.edit.batch_size, None, devices), lambda n: kept * n + logits + edited),
        Work("loading", 1, lambda n: dropped),
    )
    host = devices * size * shape.parameters  # each process reads the model for itself
    return Footprint(held, works, host, (f"assumed: sentences of {TOKENS} tokens",))


def _edited(config: DebiasConfig, shape: Shape) -> list[int]:
    """Return the block of each edited module; one named by hand is taken for the end of its MLP."""
    rule = config.edit.modules
    if isinstance(rule, ModuleRule):
        return [*range(max(0, shape.layers - rule.last), shape.layers)]
    return [int(number.group(1)) for name in rule if (number := re.search(r"\.(\d+)\.", name))]


def _editor(config: DebiasConfig, shape: Shape, modules: int) -> int:
    """Return the parameters of the hypernetwork: one network for all modules, which have the same shape."""
    width = shape.feed_forward + shape.hidden
    return config.editor.n_blocks * width * (2 * config.editor.rank + 2 * modules + 1) if modules else 0

"""What the stages of `debias` hold in memory; see ablation/contract/footprint.py."""

import re
from collections.abc import Mapping

from ablation.contract.footprint import Footprint, ModelAsset, Work
from trainers.debias.config import DebiasConfig, ModuleRule
from trainers.footprint import FLOAT, Shape, Shapes, share, trained

ASSUMED_TOKENS = 20  # of a StereoSet sentence; the mean is 12 with GPT-2's tokenizer
SENTENCES = 3  # of an item: anti, stereo, unrelated
CHUNK = 256  # positions whose logits are in memory at once
_SIZES = {"float32": 4, "bfloat16": 2, "float64": 8}
TRIED = {"dtype": "bfloat16"}  # what makes a stage smaller


def footprint(stage: str, config: DebiasConfig, models: Mapping[str, ModelAsset], devices: int) -> Footprint | None:
    """Return what a stage holds on each device: the frozen model, and the editor once there is one."""
    shapes = Shapes(models)
    shape = shapes.of("model", "model")
    if shape is None:
        return Footprint(unknown=shapes.unknown)
    size, blocks = _SIZES[config.dtype], _edited(config, shape)
    edited = 2 * size * shape.feed_forward * shape.hidden * len(blocks)
    # The blocks below the first edited one are dropped after loading: they are there before anything else is.
    first = min(blocks, default=0)
    dropped = 0 if stage == "prepare" else first * shape.block
    held, logits = {"model: weights": size * (shape.parameters - dropped)}, _scratch(shape, size)
    editor = _editor(config, shape, len(blocks))
    if stage == "train":
        held |= trained("editor", editor) | {"editor: best epoch": FLOAT * editor}
    elif stage == "evaluate":
        held["editor: weights"] = FLOAT * editor
    kept = size * shape.kept * (shape.layers - first) * SENTENCES * ASSUMED_TOKENS

    works = [Work("items", share(config.edit.batch_size, None, devices), lambda n: kept * n + logits + edited)]
    if dropped:
        works.append(Work("loading", 1, lambda n: size * dropped))  # the blocks below the edit
    host = {"weights": devices * size * shape.parameters}  # each process reads the model for itself
    return Footprint(held, tuple(works), host, assumed=(f"sentences of {ASSUMED_TOKENS} tokens",))


def _scratch(shape: Shape, size: int) -> int:
    """Return the bytes that an output matrix keeps for logits: those of bfloat16 once more in float32."""
    return CHUNK * shape.vocab * (size + (FLOAT if size < FLOAT else 0))


def _edited(config: DebiasConfig, shape: Shape) -> list[int]:
    """Return the block of each edited module; one named by hand is taken for the end of its MLP."""
    rule = config.edit.modules
    if isinstance(rule, ModuleRule):
        return [*range(max(0, shape.layers - rule.last), shape.layers)]
    return [int(number.group(1)) for name in rule if (number := re.search(r"\.(\d+)\.", name))]


def _editor(config: DebiasConfig, shape: Shape, modules: int) -> int:
    """Return the parameters of the hypernetwork: one network for all modules, which have the same shape."""
    width = shape.feed_forward + shape.hidden
    of_block = 2 * width * config.editor.rank + width + 2 * modules * width
    return config.editor.n_blocks * of_block + 2 * modules if modules else 0

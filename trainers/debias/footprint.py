"""What the stages of `debias` hold in memory; see ablation/contract/footprint.py."""

import re
from collections.abc import Mapping

from ablation.contract.footprint import Footprint, Held, ModelAsset, Work
from trainers.debias.config import DebiasConfig, ModuleRule
from trainers.footprint.shapes import Shape, shape_of
from trainers.footprint.tensors import FLOAT, share, trained, work

ASSUMED_TOKENS = 20  # of a StereoSet sentence; the mean is 12 with GPT-2's tokenizer
SENTENCES = 3  # of an item: anti, stereo, unrelated
CHUNK = 256  # positions whose logits are in memory at once
_SIZES = {"float32": 4, "bfloat16": 2, "float64": 8}
TRIED = {"dtype": "bfloat16"}  # what makes a stage smaller


def footprint(stage: str, config: DebiasConfig, models: Mapping[str, ModelAsset], devices: int) -> Footprint | None:
    """Return what a stage holds on each device: the frozen model, and the editor once there is one."""
    shape = shape_of(models["model"])
    if shape is None:
        return Footprint(unknown=("the model: no configuration of it is on this machine, and its size is not listed",))
    size = _SIZES[config.dtype]
    assumed: tuple[str, ...] = (f"sentences of {ASSUMED_TOKENS} tokens",)
    edited = _edited(config, shape)
    first = min((block for block, *_ in edited), default=0)
    of_item = SENTENCES * ASSUMED_TOKENS
    logits = _scratch(shape, size)
    held: list[Held] = []
    of_head = config.lm_head_dtype or config.dtype
    if stage == "train" and of_head != config.dtype:
        held.append(Held("output matrix in lm_head_dtype", _SIZES[of_head] * shape.matrix))
        logits += _scratch(shape, _SIZES[of_head])

    def passing(n: int) -> dict[str, int]:
        activations = _kept(shape, size) * (shape.layers - first) * n * of_item
        return {
            "activations": activations,
            "logits": logits,
            "edited weights": 2 * size * sum(a * b for _, a, b in edited),
        }

    host = {"weights": devices * size * shape.parameters}  # each process reads the model for itself
    works: tuple[Work, ...] = (work("items", share(config.edit.batch_size, None, devices), passing),)
    if stage == "prepare":
        whole = (Held("model: weights", size * shape.parameters),)
        return Footprint(whole, works, host, assumed=assumed)
    # The blocks below the first edited one are dropped after loading.
    rest = shape.parameters - first * shape.block
    editor = _editor(config, edited)
    held.append(Held("model: weights", size * rest))
    if stage == "train":
        held += [*trained("editor", editor), Held("editor: best epoch", FLOAT * editor)]
    else:
        held.append(Held("editor: weights", FLOAT * editor))
    loading = size * first * shape.block  # the dropped blocks are there for a moment, before anything else is
    works = (*works, work("loading", 1, lambda n: {"blocks below the edit": loading} if loading else {}))
    return Footprint(tuple(held), works, host, assumed=assumed)


def _scratch(shape: Shape, size: int) -> int:
    """Return the bytes that an output matrix keeps for logits: those of bfloat16 once more in float32."""
    return CHUNK * shape.vocab * (size + (FLOAT if size < FLOAT else 0))


def _edited(config: DebiasConfig, shape: Shape) -> list[tuple[int, int, int]]:
    """Return (block, d_in, d_out) of each edited module; one named by hand is taken for the end of its MLP."""
    rule = config.edit.modules
    if isinstance(rule, ModuleRule):
        blocks = [*range(max(0, shape.layers - rule.last), shape.layers)]
    else:
        blocks = [int(number.group(1)) for name in rule if (number := re.search(r"\.(\d+)\.", name))]
    return [(block, shape.feed_forward, shape.hidden) for block in blocks]


def _editor(config: DebiasConfig, edited: list[tuple[int, int, int]]) -> int:
    """Return the parameters of the hypernetwork: one network for all modules of a shape."""
    total = 0
    for d_in, d_out in {(d_in, d_out) for _, d_in, d_out in edited}:
        width, modules = d_in + d_out, sum((d_in, d_out) == (a, b) for _, a, b in edited)
        total += config.editor.n_blocks * (2 * width * config.editor.rank + width + 2 * modules * width) + 2 * modules
    return total


def _kept(shape: Shape, size: int) -> int:
    """Return the bytes per token that a block keeps for the gradient of the edited weights."""
    if shape.family == "gpt2":
        return size * (8 * shape.hidden + 5 * shape.feed_forward)
    return size * (6 * shape.hidden + 2 * shape.queries + 2 * shape.keys + 4 * shape.feed_forward)

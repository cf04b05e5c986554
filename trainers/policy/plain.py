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
    hooked = any(map(_is_hooked, model.modules()))
    return not (
        not sees_everything(config)
        or hooked
        or any(type(module) is not nn.Linear for module in linear)  # adapters, quantised weights
        or model.dtype != torch.float32
        or torch.is_autocast_enabled(device.type)
        or config._attn_implementation != "sdpa"
        or body.rotary_emb.rope_type != "default"
        or getattr(config, "pretraining_tp", 1) > 1
    )


def sees_everything(config: Any) -> bool:
    """Tell whether every layer attends to all that came before: no windows, no layers of another kind."""
    layers = getattr(config, "layer_types", None) or ()
    return getattr(config, "sliding_window", None) is None and all(layer == "full_attention" for layer in layers)


def _is_hooked(module: nn.Module) -> bool:
    hooks = (module._forward_hooks, module._forward_pre_hooks, module._backward_hooks, module._backward_pre_hooks)
    return any(hooks) or "forward" in vars(module)  # so does accelerate put itself before a module


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

    def attended(self, hidden: Tensor, rotation: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor, Tensor]:
        """Return query (R, heads, D), key and value (R, key heads, D) of tokens (R, H), turned by their positions.

        rotation: of `rotations`, with dimensions (R, 1, D).
        """
        cos, sin = rotation
        both = torch.cat([functional.linear(hidden, *self.query), functional.linear(hidden, *self.key)], -1)
        both = both.view(len(hidden), -1, self.head_dim)
        both = both * cos + both.roll(self.head_dim // 2, -1) * sin
        value = functional.linear(hidden, *self.value).view(len(hidden), -1, self.head_dim)
        query, key = both.split([both.shape[1] - value.shape[1], value.shape[1]], 1)
        return query, key, value

    def feed_forward(self, hidden: Tensor) -> Tensor:
        """Return what the MLP makes of tokens (R, H), its norm included."""
        inside = self.before_mlp(hidden)
        gate = self.activation(functional.linear(inside, *self.gate))
        return functional.linear(gate * functional.linear(inside, *self.up), *self.down)


def rotations(body: Any, like: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Return cosines and sines (R, D) of rotary positions (R,): a head is x cos + x with its halves changed over sin.

    like: a tensor of the device and type.
    """
    cos, sin = (each[0] for each in body.rotary_emb(like, positions[None]))
    half = cos.shape[-1] // 2
    return cos, torch.cat([-sin[:, :half], sin[:, half:]], -1)


def norm(module: Any) -> Callable[[Tensor], Tensor]:
    """Return RMSNorm with the module's weight."""
    weight, epsilon = module.weight, module.variance_epsilon
    return lambda hidden: functional.rms_norm(hidden, weight.shape, weight, epsilon)

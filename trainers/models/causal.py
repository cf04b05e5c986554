"""Causal language models of any architecture: loading, blocks, output matrix and the modules that an editor changes.

Every decoder of transformers is supported if its blocks are in one ModuleList and its linear layers are Linear or
Conv1D.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase
from transformers.pytorch_utils import Conv1D
from transformers.utils.logging import disable_progress_bar

MLP_OUT_NAMES = frozenset({"down_proj", "c_proj", "fc2", "fc_out", "dense_4h_to_h", "w2"})
ATTENTION_MARKS = ("attn", "attention")
PICKLED_SUFFIXES = (".bin", ".pt", ".pth", ".ckpt", ".pkl", ".msgpack", ".h5")


def refuse_pickles(folder: Path) -> None:
    """Raise ValueError unless the model folder has safetensors weights, because pickled weights can run code."""
    if any(folder.glob("*.safetensors")):
        return
    pickled = sorted(path.name for path in folder.iterdir() if path.suffix in PICKLED_SUFFIXES)
    others = f" (pickled weights such as {pickled[0]} are never loaded)" if pickled else ""
    raise ValueError(
        f"{folder}: a *.safetensors file is missing{others}; "
        "write one with model.save_pretrained(folder, safe_serialization=True)"
    )


def load_model(folder: Path, *, dtype: str = "float32", device: str = "cpu") -> PreTrainedModel:
    """Return a frozen causal language model in evaluation mode.

    Raises ValueError if there are no safetensors weights.
    """
    refuse_pickles(folder)
    disable_progress_bar()
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=getattr(torch, dtype), use_safetensors=True)
    return model.to(device).eval().requires_grad_(False)


def load_tokenizer(folder: Path) -> PreTrainedTokenizerBase:
    """Return the tokenizer in a model's folder."""
    return AutoTokenizer.from_pretrained(folder)


def blocks(model: PreTrainedModel) -> tuple[str, nn.ModuleList]:
    """Return the dotted name and the ModuleList of the decoder's blocks.

    Raises ValueError unless exactly one ModuleList has num_hidden_layers modules.
    """
    n_layers = model.config.get_text_config().num_hidden_layers
    prefix = model.base_model_prefix
    candidates = [
        (name, module)
        for name, module in model.named_modules()
        if isinstance(module, nn.ModuleList) and len(module) == n_layers and name.startswith(prefix)
    ]
    outermost = [
        (n, m) for n, m in candidates if not any(n != other and n.startswith(f"{other}.") for other, _ in candidates)
    ]
    if len(outermost) != 1:
        raise ValueError(
            f"{type(model).__name__} has {len(outermost)} lists of {n_layers} blocks, but exactly one is needed; use "
            "another model"
        )
    return outermost[0]


def is_linear(module: nn.Module) -> bool:
    """Return whether a module is a Linear or GPT-2's Conv1D, which stores its weight transposed."""
    return isinstance(module, (nn.Linear, Conv1D))


def linear_shape(module: nn.Module) -> tuple[int, int]:
    """Return (d_in, d_out) of a Linear or Conv1D."""
    weight: Tensor = module.get_parameter("weight")
    rows, columns = weight.shape
    return (columns, rows) if isinstance(module, nn.Linear) else (rows, columns)


@dataclass(frozen=True)
class EditedModule:
    """Linear module that an editor changes, with its input and output sizes."""

    name: str  # dotted name within the model
    block: int  # index of its block
    d_in: int
    d_out: int

    @property
    def shape(self) -> tuple[int, int]:
        """Return the shape of the module's weight, (d_in, d_out)."""
        return (self.d_in, self.d_out)


def _mlp_out(block_name: str, block: nn.Module) -> str:
    names = [
        name
        for name, module in block.named_modules()
        if is_linear(module)
        and name.rsplit(".", 1)[-1] in MLP_OUT_NAMES
        and not any(mark in part for part in name.lower().split(".")[:-1] for mark in ATTENTION_MARKS)
    ]
    if len(names) != 1:
        raise ValueError(
            f"edit.modules: {block_name} ({type(block).__name__}) must have one MLP output layer, but has "
            f"{', '.join(names) or 'none'}; list dotted names of modules instead of `last`"
        )
    return names[0]


def find_modules(model: PreTrainedModel, rule: Any) -> list[EditedModule]:
    """Return the modules to edit, in the order of the blocks.

    rule: an object with `last`, the number of last blocks whose MLP output layer is edited, or a sequence of dotted
    names. Raises ValueError if a name is not a linear module inside the blocks, or if a block does not have exactly one
    MLP output layer.
    """
    list_name, layers = blocks(model)
    if isinstance(rule, Sequence) and not isinstance(rule, str):
        names = list(rule)
    else:
        if rule.last > len(layers):
            raise ValueError(f"edit.modules.last {rule.last} exceeds the number of blocks, {len(layers)}; lower `last`")
        indices = range(len(layers) - rule.last, len(layers))
        names = [f"{list_name}.{i}.{_mlp_out(f'{list_name}.{i}', layers[i])}" for i in indices]
    modules = dict(model.named_modules())
    edited = []
    for name in names:
        module = modules.get(name)
        if module is None or not name.startswith(f"{list_name}.") or not is_linear(module):
            raise ValueError(f"edit.modules: {name} is not a linear module in {list_name}.*; list only linear modules")
        edited.append(EditedModule(name, int(name[len(list_name) + 1 :].split(".")[0]), *linear_shape(module)))
    return sorted(edited, key=lambda module: (module.block, names.index(module.name)))


def output_matrix(model: PreTrainedModel) -> tuple[Tensor, Tensor | None]:
    """Return weight [V, d] and bias ([V] or None) with logits = weight @ (last hidden state of the base model) + bias.

    Weight and bias include a constant logit scale (Granite, Cohere). The equation is checked on two tokens. Raises
    ValueError if the logits are not linear in the last hidden state, as with Gemma's soft-capping.
    """
    head = model.get_output_embeddings()
    device = head.weight.device
    with torch.no_grad():
        ids = torch.tensor([[1, 2]], device=device)
        hidden = model.base_model(input_ids=ids, attention_mask=torch.ones_like(ids)).last_hidden_state
        logits = model(input_ids=ids, attention_mask=torch.ones_like(ids)).logits.float()
        linear = head(hidden).float()
    scale = float((logits * linear).sum() / (linear * linear).sum())
    if not torch.allclose(logits, scale * linear, rtol=1e-2, atol=1e-3 * float(logits.abs().max())):
        raise ValueError(
            f"{type(model).__name__} has logits that are not linear in the last hidden state; use another model"
        )
    if abs(scale - 1.0) < 1e-4:
        return head.weight, getattr(head, "bias", None)
    bias = getattr(head, "bias", None)
    return head.weight * scale, None if bias is None else bias * scale

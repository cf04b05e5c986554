"""The last blocks of a causal language model, run on cached hidden states.

Everything below the first edited block is frozen, so the states that enter that block are computed once. Here the
blocks below it are replaced by placeholders that pass their input on (indices, and what a model looks up by index, stay
right), and a hook puts the cached states in. The model's own forward does the rest: masks, positions, final norm.
"""

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainers.debias.head import OutputMatrix
from trainers.models.causal import EditedModule, blocks, find_modules, output_matrix


class _Passed(nn.Module):
    """Stands for a block that is not run."""

    def forward(self, hidden_states: Tensor, *args: object, **kwargs: object) -> Tensor:
        return hidden_states


class _PrefixDone(Exception):
    """Ends a forward pass where the first edited block would begin; carries the states that enter it."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden


class SuffixModel:
    """A frozen causal LM of which the blocks from the first edited one on are run.

    Attributes:
        modules: the edited modules, in order.
        matrix: the output matrix.
    """

    def __init__(self, model: PreTrainedModel, rule: object, *, prefix: bool = True) -> None:
        """Take over `model`, in evaluation mode; until `drop_prefix` its weights and its forward are untouched.

        rule: which modules are edited, see `models.find_modules`. prefix: False drops the prefix at once, before its
        weights are read from the disk.
        """
        self.model = model
        self.modules: list[EditedModule] = find_modules(model, rule)
        self.first = self.modules[0].block
        self.layers = blocks(model)[1]
        if not prefix:
            self.drop_prefix()
        self.matrix = OutputMatrix(*output_matrix(model))  # runs the model on two tokens
        self.device = self.matrix.weight.device

    def module(self, name: str) -> nn.Module:
        """Return an edited module."""
        return self.model.get_submodule(name)

    def drop_prefix(self) -> None:
        """Free the blocks below the first edited one; `prefix` can no longer be called."""
        for index in range(self.first):
            self.layers[index] = _Passed()

    def prefix(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Hidden states [B, T, d] that enter the first edited block, from ids [B, T]; the rest is as in `forward`."""

        def stop(module: nn.Module, args: tuple, kwargs: dict) -> None:
            raise _PrefixDone(args[0] if args else kwargs["hidden_states"])

        handle = self.layers[self.first].register_forward_pre_hook(stop, with_kwargs=True)
        try:
            with torch.no_grad():
                self.model.base_model(input_ids=input_ids, **self._attention(attention_mask, position_ids))
        except _PrefixDone as done:
            return done.hidden
        finally:
            handle.remove()
        raise AssertionError("the first edited block was never reached")

    def _attention(self, mask: Tensor, positions: Tensor | None) -> dict[str, object]:
        """Arguments of a base model for its attention."""
        if positions is None:
            return {"attention_mask": mask, "use_cache": False}
        dtype = self.matrix.weight.dtype
        hidden = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)
        return {"attention_mask": hidden[None, None], "position_ids": positions.unsqueeze(0), "use_cache": False}

    def forward(self, hidden: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Last hidden state [B, T, d] (after the final norm) from the states that enter the first edited block.

        attention_mask: [B, T], 1 for tokens, 0 for padding on the right. With position_ids [T], where B is 1: [T, T],
        whether the first token attends to the second. Without them positions are 0, 1, 2, ...
        """

        def replace(module: nn.Module, args: tuple, kwargs: dict) -> tuple[tuple, dict]:
            if args:
                return (hidden, *args[1:]), kwargs
            return args, {**kwargs, "hidden_states": hidden}

        skipped = [self.layers[index] for index in range(self.first)]
        self.drop_prefix()
        handle = self.layers[self.first].register_forward_pre_hook(replace, with_kwargs=True)
        try:
            output = self.model.base_model(inputs_embeds=hidden, **self._attention(attention_mask, position_ids))
        finally:
            handle.remove()
            for index, layer in enumerate(skipped):
                self.layers[index] = layer
        return output.last_hidden_state


def pad(rows: Sequence[Tensor]) -> tuple[Tensor, Tensor]:
    """Stack [L_i, ...] tensors into [B, T, ...] with zeros on the right, and the mask [B, T] of what is real."""
    padded = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    lengths = torch.tensor([len(row) for row in rows], device=padded.device)
    mask = torch.arange(padded.shape[1], device=padded.device).unsqueeze(0) < lengths.unsqueeze(1)
    return padded, mask.long()

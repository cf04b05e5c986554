"""Files that `prepare` writes once for all variants and seeds: tokenised items, and tensors of the unedited model.

Tensors are read slice by slice from a memory-mapped safetensors file. P is the number of labelled tokens (all but BOS)
in the anti and stereo sentences of all items; an item's anti sentence comes first.

    hidden            [all tokens, d]  states that enter the first edited block; anti, stereo, unrelated for each item
    keys.<i>          [P, d_in]        inputs of edited module i at the labelled tokens
    value_grads.<i>   [P, d_out]       gradients of an item's own edit loss with respect to the module's outputs there
    reference.mean    [P, d]           next-token distributions, in the form of `model.reference`, at the positions that
    reference.offset  [P]              predict the labelled tokens
    scores            [items, 3, 2]    p and logp of anti, stereo, unrelated
"""

import itertools
import json
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import Tensor

from ablation.contract.atomic import replacing, write_text
from trainers.debias.data import KINDS
from trainers.models.causal import EditedModule

ITEMS_FILE, TENSORS_FILE = "stereoset.json", "unedited.safetensors"
PAIR = ("anti", "stereo")


@dataclass(frozen=True)
class TokenisedItem:
    """An item with token ids, which begin with BOS; `sentences` and `tokens` have the keys `data.KINDS`."""

    id: str
    domain: str
    term: str
    split: str
    sentences: dict[str, str]
    tokens: dict[str, list[int]]

    @property
    def pair_labels(self) -> int:
        """Return the number of labelled tokens in the anti and stereo sentences together."""
        return sum(len(self.tokens[kind]) - 1 for kind in PAIR)


def save_prepared(
    folder: Path, items: Sequence[TokenisedItem], modules: Sequence[EditedModule], tensors: dict[str, Tensor]
) -> None:
    """Write the items and the tensors into `folder`."""
    with replacing(folder / TENSORS_FILE) as temporary:
        save_file(tensors, temporary)
    dtype = str(tensors["hidden"].dtype).removeprefix("torch.")
    content = {
        "dtype": dtype,
        "modules": [asdict(module) for module in modules],
        "items": [asdict(item) for item in items],
    }
    write_text(folder / ITEMS_FILE, json.dumps(content, ensure_ascii=False))


def _consecutive(lengths: Iterable[int]) -> list[slice]:
    return [slice(*ends) for ends in itertools.pairwise([0, *itertools.accumulate(lengths)])]


class Prepared:
    """Content of a folder that `save_prepared` wrote; indices are numbers of items."""

    def __init__(self, folder: Path, device: str = "cpu") -> None:
        content = json.loads((folder / ITEMS_FILE).read_text(encoding="utf-8"))
        self.items = [TokenisedItem(**item) for item in content["items"]]
        self.modules = [EditedModule(**module) for module in content["modules"]]
        self.dtype: str = content["dtype"]
        self.device = device
        lengths = (sum(len(item.tokens[kind]) for kind in KINDS) for item in self.items)
        self._tokens = _consecutive(lengths)  # rows of each item in `hidden`
        self._pairs = _consecutive(item.pair_labels for item in self.items)  # in the tensors of labelled tokens
        self._file = safe_open(folder / TENSORS_FILE, framework="pt")
        self._number = {module.name: i for i, module in enumerate(self.modules)}
        self.scores = self._file.get_tensor("scores")

    def _rows(self, name: str, rows: Sequence[slice]) -> Tensor:
        view = self._file.get_slice(name)
        return torch.cat([view[part] for part in rows]).to(self.device)

    def indices(self, split: str, domain: str | None = None) -> list[int]:
        """Return the numbers of a split's items, in increasing order. domain: only its items; None: all items."""
        return [
            i for i, item in enumerate(self.items) if item.split == split and (domain is None or item.domain == domain)
        ]

    def tokens(self, indices: Sequence[int]) -> list[list[int]]:
        """Return the token ids of the items' sentences: anti, stereo, unrelated for each item."""
        return [self.items[i].tokens[kind] for i in indices for kind in KINDS]

    def hidden(self, indices: Sequence[int]) -> list[Tensor]:
        """Return the states [L, d] of each sentence that enter the first edited block, in the order of `tokens`."""
        rows = self._rows("hidden", [self._tokens[i] for i in indices])
        return list(rows.split([len(sentence) for sentence in self.tokens(indices)]))

    def edit_inputs(self, name: str, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the float32 keys [N, d_in] and value gradients [N, d_out] of a module for a batch of items.

        The gradients are those of the batch's edit loss, the mean of the items' losses, so they are those of the single
        items divided by the number of items.
        """
        rows = [self._pairs[i] for i in indices]
        number = self._number[name]
        return self._rows(f"keys.{number}", rows), self._rows(f"value_grads.{number}", rows) / len(indices)

    def same_keys(self, indices: Sequence[int]) -> Tensor:
        """Return a number for each row of `edit_inputs`, [N], equal for rows of an item with equal keys.

        A key depends on a token and those before it, so an item's sentences share keys until they differ.
        """
        numbers: dict[tuple[int, tuple[int, ...]], int] = {}
        prefixes = (
            (index, tuple(self.items[index].tokens[kind][: end + 1]))
            for index in indices
            for kind in PAIR
            for end in range(1, len(self.items[index].tokens[kind]))
        )
        same = [numbers.setdefault(prefix, len(numbers)) for prefix in prefixes]
        return torch.tensor(same, device=self.device)

    def reference(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the stored mean [N, d] and offset [N] of `model.reference` for the labels of anti and stereo."""
        rows = [self._pairs[i] for i in indices]
        return self._rows("reference.mean", rows), self._rows("reference.offset", rows)

    def unedited(self, indices: Sequence[int]) -> tuple[Tensor, Tensor]:
        """Return the unedited model's scores p and logp, [B, 3] each: anti, stereo, unrelated."""
        scores = self.scores[list(indices)].to(self.device)
        return scores[..., 0], scores[..., 1]

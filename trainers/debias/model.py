"""The edited language model: its last blocks, which run on cached states, and the scores of sentences.

The blocks before the first edited one are frozen, so the states that enter the first edited block are computed once.
`SuffixModel` replaces the earlier blocks by placeholders, which keep the numbering of the blocks, and a hook inserts
the cached states. The model's own `forward` does the rest: masks, positions and the final norm.

A causal model has equal states for equal prefixes, so a prefix that sentences share is run once (`PrefixTree`). As in
BiasEdit, a BOS token is prepended, and every token but BOS is a label; the state at position t - 1 predicts token t. A
sentence's scores are means over its labels (`score`).

Scores and the KL need two numbers per position: the label's logit and the log partition function
A(h) = logsumexp(W h + b). The gradient of A is the expected row of the output matrix, m(h) = E_p[W_v], so one pass over
the vocabulary gives both, with one chunk of logits in memory. Because logits are linear in h,

    KL(p_ref || p) = A(h) - A(h_ref) - m(h_ref) . (h - h_ref)

(the Bregman divergence of A), so one vector and one number per position are enough to store the reference distribution.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any, Self

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from trainers.debias.prepared import Prepared
from trainers.models.causal import EditedModule, blocks, find_modules, output_matrix

CHUNK = 256  # positions whose logits are in memory at once
GROUP = 96  # sentences (of 32 items) that are run together


class _Passed(nn.Module):
    """Placeholder for a block that does not run."""

    def forward(self, hidden_states: Tensor, *args: object, **kwargs: object) -> Tensor:
        return hidden_states


class _PrefixDone(Exception):
    """Raised to end a forward pass at the first edited block, with the states that enter the block."""

    def __init__(self, hidden: Tensor) -> None:
        super().__init__()
        self.hidden = hidden


class SuffixModel:
    """A frozen causal LM that runs only its blocks from the first edited one on.

    Attributes:
        modules: the edited modules, in order.
        matrix: the output matrix.
    """

    def __init__(self, model: PreTrainedModel, rule: object, *, prefix: bool = True) -> None:
        """Wrap `model`, which must be in evaluation mode; only `drop_prefix` changes the model.

        rule: modules to edit (see `trainers.models.causal.find_modules`). prefix: whether to keep the blocks before the
        first edited one; if not, their weights are not even read from the disk.
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
        """Return the edited module with this name."""
        return self.model.get_submodule(name)

    def drop_prefix(self) -> None:
        """Free the blocks before the first edited one; `prefix` cannot be called afterwards."""
        for index in range(self.first):
            self.layers[index] = _Passed()

    def prefix(self, input_ids: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Return the states [B, T, d] that enter the first edited block for token ids [B, T].

        The other arguments are as in `forward`.
        """

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
        if positions is None:
            return {"attention_mask": mask, "use_cache": False}
        dtype = self.matrix.weight.dtype
        hidden = torch.zeros(mask.shape, dtype=dtype, device=mask.device).masked_fill_(~mask, torch.finfo(dtype).min)
        return {"attention_mask": hidden[None, None], "position_ids": positions.unsqueeze(0), "use_cache": False}

    def forward(self, hidden: Tensor, attention_mask: Tensor, position_ids: Tensor | None = None) -> Tensor:
        """Return the last hidden states [B, T, d], after the final norm.

        hidden: states [B, T, d] that enter the first edited block. attention_mask: [B, T], 1 for tokens, 0 for padding
        on the right; if position_ids [T] are given, B is 1 and the mask is [T, T]: whether token i attends to token j.
        position_ids: None for 0, 1, 2, ...
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
    """Return tensors [L_i, ...] stacked to [B, T, ...] with zeros on the right, and a mask [B, T], 0 at these zeros."""
    padded = nn.utils.rnn.pad_sequence(list(rows), batch_first=True)
    lengths = torch.tensor([len(row) for row in rows], device=padded.device)
    mask = torch.arange(padded.shape[1], device=padded.device).unsqueeze(0) < lengths.unsqueeze(1)
    return padded, mask.long()


@dataclass
class OutputMatrix:
    """Output layer of a language model, `logits = weight @ hidden + bias`, with weight [V, d] and bias [V] or None."""

    weight: Tensor
    bias: Tensor | None
    # Memory by dtype, which is reused because page faults of new memory take a fifth of the product's time.
    _scratch: dict[torch.dtype, Tensor] = field(default_factory=dict)

    def _memory(self, rows: int, dtype: torch.dtype) -> Tensor:
        if dtype not in self._scratch:
            self._scratch[dtype] = torch.empty(CHUNK, len(self.weight), dtype=dtype, device=self.weight.device)
        return self._scratch[dtype][:rows]

    def logits(self, hidden: Tensor) -> Tensor:
        """Return the logits [R, V] of at most CHUNK rows, in memory that the next call overwrites."""
        dtype = self.weight.dtype
        out = torch.mm(hidden, self.weight.T, out=self._memory(len(hidden), dtype))
        if self.bias is not None:
            out.add_(self.bias)
        return self._memory(len(hidden), torch.float32).copy_(out) if dtype == torch.bfloat16 else out

    def expected_rows(self, weights: Tensor) -> Tensor:
        """Return `weights @ self.weight`, [R, d], in the dtype of `self.weight`; may overwrite the last logits."""
        dtype = self.weight.dtype
        low = weights if weights.dtype == dtype else self._memory(len(weights), dtype).copy_(weights)
        return low @ self.weight


def log_partition(hidden: Tensor, matrix: OutputMatrix, *, mean: bool) -> tuple[Tensor, Tensor | None]:
    """Return the log partition function A(h) [R] of hidden [R, d] and, if `mean`, its gradient m(h) [R, d].

    Both are float32 or float64, and without gradient.
    """
    partitions, means = [], []
    with torch.no_grad():
        for chunk in hidden.tensor_split(math.ceil(len(hidden) / CHUNK)):
            logits = matrix.logits(chunk)
            top = logits.amax(-1, keepdim=True)
            weights = logits.sub_(top).exp_()
            total = weights.sum(-1, keepdim=True)
            partitions.append((top + total.log()).squeeze(-1))
            if mean:
                means.append(matrix.expected_rows(weights).to(total.dtype) / total)
    return torch.cat(partitions), torch.cat(means) if mean else None


class _LogPartition(torch.autograd.Function):
    """Differentiable A(h) [N], computed only for the distinct `rows` [R] of h; `inverse` [N] maps positions to rows."""

    @staticmethod
    def forward(ctx: Any, hidden: Tensor, rows: Tensor, inverse: Tensor, matrix: Any) -> Tensor:
        partition, mean = log_partition(hidden[rows], matrix, mean=ctx.needs_input_grad[0])
        ctx.save_for_backward(mean, inverse)
        ctx.dtype = hidden.dtype
        return partition[inverse]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, None, None, None]:  # type: ignore[override]  # torch: *any
        mean, inverse = ctx.saved_tensors
        return (gradient.unsqueeze(-1) * mean[inverse]).to(ctx.dtype), None, None, None


def label_log_probs(
    hidden: Tensor, labels: Tensor, rows: Tensor, inverse: Tensor, matrix: OutputMatrix
) -> tuple[Tensor, Tensor]:
    """Return the log-probability of each label and the log partition function, [N] each; differentiable in `hidden`.

    hidden: [N, d], last hidden states at the predicting positions. labels: [N], the tokens to predict. rows: [R], a
    position for each distinct prefix of tokens; positions with the same prefix have equal hidden states. inverse: [N],
    the index into `rows` of each position's prefix.
    """
    partition = _LogPartition.apply(hidden, rows, inverse, matrix)
    logits = (hidden * matrix.weight[labels]).sum(-1).to(partition.dtype)
    if matrix.bias is not None:
        logits = logits + matrix.bias[labels]
    return logits - partition, partition


def reference(hidden: Tensor, rows: Tensor, inverse: Tensor, matrix: OutputMatrix) -> tuple[Tensor, Tensor]:
    """Return the reference for `token_kl`: the mean m(h_ref) [N, d] and the offset `m(h_ref) . h_ref - A(h_ref)` [N].

    hidden: h_ref [N, d], last hidden states of the unedited model. rows, inverse: as in `label_log_probs`.
    """
    partition, mean = log_partition(hidden[rows], matrix, mean=True)
    assert mean is not None  # asked for
    offset = (mean.double() * hidden[rows].double()).sum(-1) - partition.double()
    return mean[inverse], offset.to(partition.dtype)[inverse]


def token_kl(hidden: Tensor, partition: Tensor, reference_mean: Tensor, reference_offset: Tensor) -> Tensor:
    """Return KL(reference || current) [N] of the next-token distributions, in nats.

    It is differentiable in `hidden` and `partition`; rounding can make a KL near 0 negative, to about -1e-6. hidden:
    [N, d], partition: [N], of the current model. reference_mean: [N, d], reference_offset: [N], from `reference`.
    """
    return reference_offset + partition - (reference_mean * hidden).sum(-1)


@dataclass(frozen=True)
class SentenceScores:
    """Scores of S sentences, and the hidden states at their N predicting positions, sentence by sentence."""

    p: Tensor  # [S], mean probability of the labelled tokens
    logp: Tensor  # [S], mean log-probability
    hidden: Tensor  # [N, d], last hidden state at the predicting positions
    partition: Tensor  # [N], log partition function there
    sentence: Tensor  # [N], which sentence a position belongs to


@dataclass(frozen=True)
class PrefixTree:
    """The R distinct prefixes of sentences with N positions; a causal model has equal states for equal prefixes.

    The three sentences of an item are equal up to the word that differs, so more than half of the positions repeat
    others. Positions are numbered sentence by sentence, and prefixes in the order of their first positions.
    """

    rows: Tensor  # [R], the first position of each prefix
    inverse: Tensor  # [N], the prefix that ends at each position
    depth: Tensor  # [R], tokens before the last one of the prefix: its position in the sentence
    attends: Tensor  # [R, R], whether the last token of prefix i attends to the last token of prefix j

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]]) -> Self:
        """Return the distinct prefixes of sentences given as token ids."""
        numbers: dict[tuple[int, int], int] = {}  # (prefix without its last token, last token) -> prefix
        rows: list[int] = []
        inverse: list[int] = []
        depth: list[int] = []
        parents: list[int] = []
        for sentence in sentences:
            node = -1
            for position, token in enumerate(sentence):
                parent, node = node, numbers.setdefault((node, token), len(rows))
                if node == len(rows):
                    rows.append(len(inverse))
                    depth.append(position)
                    parents.append(parent)
                inverse.append(node)
        attends = torch.eye(len(rows), dtype=torch.bool)
        for node, parent in enumerate(parents):
            if parent >= 0:
                attends[node] |= attends[parent]
        return cls(torch.tensor(rows), torch.tensor(inverse), torch.tensor(depth), attends)

    def to(self, device: torch.device | str) -> Self:
        """Return a copy on a device."""
        return type(self)(*(tensor.to(device) for tensor in (self.rows, self.inverse, self.depth, self.attends)))


def last_hidden(model: SuffixModel, states: Sequence[Tensor], tokens: Sequence[Sequence[int]]) -> Tensor:
    """Return the last hidden states [sum(L_i - 1), d] at all predicting positions, sentence by sentence.

    The distinct prefixes of a group of sentences are run as one row of tokens, without padding. states: [L_i, d] for
    each sentence, the states that enter the first edited block. tokens: L_i token ids of each sentence, BOS first.
    """
    outputs = []
    for begin in range(0, len(tokens), GROUP):
        chosen = [sentence[:-1] for sentence in tokens[begin : begin + GROUP]]
        tree = PrefixTree.of(chosen).to(model.device)
        entering = torch.cat([state[:-1] for state in states[begin : begin + GROUP]])
        hidden = model.forward(entering[tree.rows].unsqueeze(0), tree.attends, tree.depth)
        outputs.append(hidden[0].index_select(0, tree.inverse))
    return torch.cat(outputs)


def score(hidden: Tensor, tokens: Sequence[Sequence[int]], matrix: OutputMatrix) -> SentenceScores:
    """Return the scores of sentences from the hidden states [N, d] of `last_hidden`, with gradient.

    tokens: the token ids of each sentence, BOS first.
    """
    device = hidden.device
    tree = PrefixTree.of([sentence[:-1] for sentence in tokens]).to(device)
    labels = torch.tensor([token for sentence in tokens for token in sentence[1:]], device=device)
    lengths = torch.tensor([len(sentence) - 1 for sentence in tokens], device=device)
    sentence = torch.arange(len(tokens), device=device).repeat_interleave(lengths, output_size=len(labels))
    logp, partition = label_log_probs(hidden, labels, tree.rows, tree.inverse, matrix)

    def mean(values: Tensor) -> Tensor:
        return torch.zeros(len(tokens), dtype=values.dtype, device=device).index_add(0, sentence, values) / lengths

    return SentenceScores(mean(logp.exp()), mean(logp), hidden, partition, sentence)


def score_items(model: SuffixModel, prepared: Prepared, indices: Sequence[int]) -> SentenceScores:
    """Return the model's scores of the items' sentences, three per item, with gradient if gradients are enabled."""
    tokens = prepared.tokens(indices)
    return score(last_hidden(model, prepared.hidden(indices), tokens), tokens, model.matrix)


def detached(scores: SentenceScores) -> SentenceScores:
    """Return the scores detached from their graph, as new leaves that collect gradients."""
    named = {name: getattr(scores, name).detach().requires_grad_() for name in ("p", "logp", "hidden", "partition")}
    return SentenceScores(**named, sentence=scores.sentence)


def join(parts: Sequence[SentenceScores]) -> SentenceScores:
    """Return the scores of several groups of sentences, concatenated, with gradient."""
    starts = accumulate((len(part.p) for part in parts), initial=0)
    names = ("p", "logp", "hidden", "partition")
    return SentenceScores(
        **{name: torch.cat([getattr(part, name) for part in parts]) for name in names},
        sentence=torch.cat([part.sentence + start for part, start in zip(parts, starts, strict=False)]),
    )

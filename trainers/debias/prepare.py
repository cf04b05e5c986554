"""Stage `prepare` of study `debias`: splits, tokens, and what the editor needs of the unedited model.

All variants and seeds share its output, because nothing here depends on the objective or on the editor.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from itertools import combinations

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from trainers.assets import files, only_file
from trainers.debias.data import (
    KINDS,
    SPLITS,
    Item,
    read_items,
    read_own_splits,
    refuse_swapped,
    split_files,
    split_items,
)
from trainers.debias.model import PrefixTree, SuffixModel, last_hidden, pad, reference, score
from trainers.debias.prepared import PAIR, TokenisedItem, save_prepared
from trainers.models.causal import load_model, load_tokenizer
from trainers.objectives.debias import edit_loss
from trainers.parallel import join
from trainers.running.stage import Stage

BATCH = 16  # items of similar length per pass
RANKS = join  # several devices: a process for each, with some of the passes


def run(stage: Stage) -> None:
    """Write the files that `prepared.py` describes into the stage's folder."""
    config, device = stage.config, stage.devices[0]
    splits = _splits(stage)
    folder = files(stage.inputs["model"])
    items = [
        tokenise(item, name, tokenizer)
        for tokenizer in [load_tokenizer(folder)]
        for name in SPLITS
        for item in splits[name]
    ]
    for (name, domain), count in sorted(Counter((item.split, item.domain) for item in items).items()):
        terms = len({item.term for item in items if (item.split, item.domain) == (name, domain)})
        stage.log.info("split %s, domain %s (items: %d, target terms: %d)", name, domain, count, terms)
    model = SuffixModel(load_model(folder, dtype=config.dtype, device=device), config.edit.modules)
    stage.log.info("edited modules: %s", ", ".join(module.name for module in model.modules))
    tensors = unedited_pass(model, items, stage)
    if tensors is not None:
        save_prepared(stage.out, items, model.modules, tensors)


def _splits(stage: Stage) -> dict[str, list[Item]]:
    """Return the items of each split. Raises ValueError if a file's labels are swapped."""
    split, domains, folder = stage.config.split, stage.config.domains, files(stage.inputs["data"])
    limits = {name: getattr(split.max_items, name) for name in SPLITS}
    labels = None
    if "labels" in stage.inputs:
        labels = read_items(only_file(files(stage.inputs["labels"])), domains)
    if split.by == "file":
        splits = read_own_splits(split_files(folder, domains), limits, labels)
        for a, b in combinations(SPLITS, 2):
            shared = {item.id for item in splits[a]} & {item.id for item in splits[b]}
            if shared:
                stage.log.warning(
                    "the splits %s and %s share items (%d); remove these from one of the splits", a, b, len(shared)
                )
        return splits
    path = only_file(folder)
    items = read_items(path, domains)
    if labels is not None:
        refuse_swapped(items, labels, path)
    return split_items(items, {name: getattr(split, name) for name in SPLITS}, limits, split.seed)


def tokenise(item: Item, split: str, tokenizer: PreTrainedTokenizerBase) -> TokenisedItem:
    """Return the item with the token ids of its sentences, which begin with BOS, or EOS if the tokenizer has no BOS.

    Raises ValueError if the tokenizer has neither, or if a sentence is empty.
    """
    bos = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
    if bos is None:
        raise ValueError(f"model: {tokenizer.name_or_path} has neither a BOS nor an EOS token; use another model")
    sentences = {kind: getattr(item, kind) for kind in KINDS}
    tokens = {kind: [bos, *tokenizer.encode(text, add_special_tokens=False)] for kind, text in sentences.items()}
    if min(map(len, tokens.values())) < 2:
        raise ValueError(f"data: a sentence of {item.id} is empty; correct or remove the item")
    return TokenisedItem(item.id, item.domain, item.term, split, sentences, tokens)


@contextmanager
def _record(model: SuffixModel) -> Iterator[dict[str, tuple[Tensor, Tensor]]]:
    """Yield a dict that a forward pass fills with {module name: (input, output)}; the outputs require gradients."""
    recorded: dict[str, tuple[Tensor, Tensor]] = {}

    def hook(name: str) -> Callable[[torch.nn.Module, tuple, Tensor], None]:
        def keep(module: torch.nn.Module, args: tuple, output: Tensor) -> None:
            if not output.requires_grad:
                output.requires_grad_()
            recorded[name] = (args[0], output)

        return keep

    handles = [model.module(module.name).register_forward_hook(hook(module.name)) for module in model.modules]
    try:
        yield recorded
    finally:
        for handle in handles:
            handle.remove()


def unedited_pass(model: SuffixModel, items: Sequence[TokenisedItem], stage: Stage) -> dict[str, Tensor] | None:
    """Return all tensors that `prepared.py` lists, on the CPU; None on ranks after the first.

    model: the whole unedited model. Each of n ranks makes every n-th pass. Passes are ordered by the length of their
    items, so passes that run at the same time take about equally long.
    """
    _refuse_if_packing_matters(model, [items[0].tokens[kind] for kind in KINDS])
    ranks = stage.ranks
    order = sorted(range(len(items)), key=lambda i: len(items[i].tokens["stereo"]))
    passes = [order[begin : begin + BATCH] for begin in range(0, len(order), BATCH)]
    tensors: dict[str, list[Tensor]] = {}  # by name and item
    for begin in range(0, len(passes), ranks.size):
        rank_passes = passes[begin + ranks.rank : begin + ranks.rank + 1]  # none in the last round of some ranks
        everyone = ranks.gather([_rows(model, items, chosen) for chosen in rank_passes])
        results = [columns for rank_results in everyone for columns in rank_results]
        for chosen, columns in zip(passes[begin : begin + ranks.size], results, strict=True):
            for name, rows in columns.items() if ranks.rank == 0 else ():
                for index, part in zip(chosen, rows, strict=True):
                    tensors.setdefault(name, [part] * len(items))[index] = part
        stage.progress(min((begin + ranks.size) * BATCH, len(order)), len(order), "items")
    return {name: torch.cat(tensors.pop(name)) for name in list(tensors)} if ranks.rank == 0 else None


def _rows(model: SuffixModel, items: Sequence[TokenisedItem], chosen: Sequence[int]) -> dict[str, Sequence[Tensor]]:
    """Return {tensor name: the rows of each chosen item}, on the CPU, from one pass."""
    columns = _prefix_and_unrelated(model, items, chosen)
    pairs = _pairs(model, items, chosen, columns["hidden"])
    lengths = [sum(len(items[i].tokens[kind]) for kind in KINDS) for i in chosen]
    rows: dict[str, Sequence[Tensor]] = {"hidden": columns["hidden"].split(lengths)}
    rows["scores"] = torch.cat([pairs.pop("scores"), columns["scores"]], 1).split(1)
    return rows | {name: values.split([items[i].pair_labels for i in chosen]) for name, values in pairs.items()}


def _packed_prefix(model: SuffixModel, sentences: Sequence[Sequence[int]]) -> Tensor:
    """Return the states [N, d] that enter the first edited block at all tokens; equal prefixes are run once."""
    tree = PrefixTree.of(sentences).to(model.device)
    ids = torch.tensor([token for tokens in sentences for token in tokens], device=model.device)
    return model.prefix(ids[tree.rows].unsqueeze(0), tree.attends, tree.depth)[0, tree.inverse]


@torch.no_grad()
def _refuse_if_packing_matters(model: SuffixModel, sentences: Sequence[Sequence[int]]) -> None:
    """Raise ValueError if sentences have different states when a shared prefix is run only once."""
    lengths = [len(tokens) for tokens in sentences]
    packed = last_hidden(model, _packed_prefix(model, sentences).split(lengths), sentences)
    ids, mask = pad([torch.tensor(tokens, device=model.device) for tokens in sentences])
    alone = model.model.base_model(input_ids=ids, attention_mask=mask, use_cache=False).last_hidden_state
    alone = alone[:, :-1][mask[:, 1:].bool()]
    error = float((packed - alone).norm() / alone.norm())
    if not error < torch.finfo(alone.dtype).eps ** 0.5:
        name = type(model.model).__name__
        raise ValueError(
            f"model: {name} computes different states when sentences share a prefix than when each runs alone "
            f"(relative deviation {error:.2g}), so it seems to ignore the attention mask or the positions; "
            "use another model"
        )


def _prefix_and_unrelated(
    model: SuffixModel, items: Sequence[TokenisedItem], chosen: Sequence[int]
) -> dict[str, Tensor]:
    """Return the tensor `hidden` for the chosen items, and the scores [items, 1, 2] of their unrelated sentences."""
    sentences = [items[i].tokens[kind] for i in chosen for kind in KINDS]
    hidden = _packed_prefix(model, sentences)
    per_sentence = hidden.split([len(tokens) for tokens in sentences])
    unrelated = [items[i].tokens["unrelated"] for i in chosen]
    with torch.no_grad():
        scored = score(last_hidden(model, per_sentence[2::3], unrelated), unrelated, model.matrix)
    return {"hidden": hidden.cpu(), "scores": torch.stack((scored.p, scored.logp), -1).unsqueeze(1).cpu()}


def _pairs(
    model: SuffixModel, items: Sequence[TokenisedItem], chosen: Sequence[int], entering: Tensor
) -> dict[str, Tensor]:
    """Return the tensors of the chosen items except `hidden`, with scores [items, 2, 2] of anti and stereo sentences.

    entering: the tensor `hidden` for the chosen items.
    """
    sentences = [items[i].tokens[kind] for i in chosen for kind in PAIR]
    lengths = [len(items[i].tokens[kind]) for i in chosen for kind in KINDS]
    states = [state for n, state in enumerate(entering.to(model.device).split(lengths)) if n % len(KINDS) < len(PAIR)]
    hidden, mask = pad(states)
    with _record(model) as recorded:
        final = model.forward(hidden, mask)[:, :-1][mask[:, 1:].bool()]
        scored = score(final, sentences, model.matrix)
    p, logp = scored.p.view(-1, 2), scored.logp.view(-1, 2)
    # The loss is a mean over items, so multiplied by their number it is the sum of the items' own losses.
    loss = edit_loss(p[:, 0], logp[:, 0], p[:, 1], logp[:, 1]) * len(chosen)
    gradients = torch.autograd.grad(loss, [output for _, output in recorded.values()])
    tree = PrefixTree.of([tokens[:-1] for tokens in sentences]).to(model.device)
    mean, offset = reference(final.detach(), tree.rows, tree.inverse, model.matrix)

    labelled = mask.bool()
    labelled[:, 0] = False
    columns = {"reference.mean": mean, "reference.offset": offset}
    for i, (module, gradient) in enumerate(zip(model.modules, gradients, strict=True)):
        columns[f"keys.{i}"] = recorded[module.name][0].detach()[labelled].float()
        columns[f"value_grads.{i}"] = gradient[labelled].float()
    columns["scores"] = torch.stack((p, logp), -1)
    return {name: values.detach().cpu() for name, values in columns.items()}

"""Measurement of an edited or unedited model: scores per item, and SS, LMS and ICAT per domain."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from trainers.debias.editor import Hypernetwork, applied, micro_batches, predict
from trainers.debias.model import SuffixModel, score_items
from trainers.debias.prepared import PAIR, Prepared
from trainers.models.causal import load_model
from trainers.objectives.debias import (
    edit_loss,
    icat,
    language_modelling,
    retention_loss,
    stereotype_preferred,
    stereotype_probability,
)


@dataclass(frozen=True)
class ItemScores:
    """Scores p and logp [B, 3] (anti, stereo, unrelated) of a batch of items."""

    p: Tensor
    logp: Tensor

    @property
    def ss(self) -> Tensor:
        """Return a mask [B], 1 for items whose stereotype has the higher mean log-probability."""
        return stereotype_preferred(self.logp[:, 1], self.logp[:, 0])

    @property
    def ss_probability(self) -> Tensor:
        """Return a mask [B], 1 for items whose stereotype has the higher mean probability.

        This is BiasEdit's comparison (`_edit_causal_loss_fn` in its editor/base.py).
        """
        return stereotype_preferred(self.p[:, 1], self.p[:, 0])

    @property
    def lms(self) -> Tensor:
        """Return the share [B] of the two meaningful sentences that are likelier than the unrelated one."""
        return language_modelling(*self.logp.unbind(1))

    def losses(self, unedited: "ItemScores") -> tuple[float, float]:
        """Return the edit loss and the retention loss of the batch. unedited: the unedited model's scores."""
        edit = edit_loss(self.p[:, 0], self.logp[:, 0], self.p[:, 1], self.logp[:, 1])
        return edit.item(), retention_loss(self.logp[:, 2], unedited.p[:, 2]).item()


def load_suffix(folder: Path, prepared: Prepared) -> SuffixModel:
    """Return the model in `folder` without the blocks before the first edited one; `prepared` lists edited modules."""
    model = load_model(folder, dtype=prepared.dtype, device=prepared.device)
    return SuffixModel(model, [module.name for module in prepared.modules], prefix=False)


@torch.no_grad()
def measure(
    model: SuffixModel, prepared: Prepared, shifts: Mapping[str, Tensor], batches: Sequence[Sequence[int]]
) -> list[ItemScores]:
    """Return the scores of micro-batches of items, with the shifts added to the model's weights."""
    with applied(model, shifts):
        scored = [score_items(model, prepared, batch) for batch in batches]
    return [ItemScores(s.p.view(-1, 3), s.logp.view(-1, 3)) for s in scored]


def measure_edited(
    model: SuffixModel,
    prepared: Prepared,
    hypernetwork: Hypernetwork,
    indices: Sequence[int],
    *,
    batch_size: int,
    chunk: int,
) -> list[ItemScores]:
    """Return the scores of an edit batch, micro-batch by micro-batch, after the model is edited on this batch."""
    batches = micro_batches(indices, batch_size)
    edits = predict(hypernetwork, prepared, batches, chunk=chunk, update_normaliser=False)
    return measure(model, prepared, {name: edit.shift for name, edit in edits.items()}, batches)


def unedited(prepared: Prepared, indices: Sequence[int]) -> ItemScores:
    """Return the unedited model's scores, which the stage `prepare` stored."""
    return ItemScores(*prepared.unedited(indices))


def batch_mean(batches: Sequence[Sequence[ItemScores]], value: str) -> float:
    """Return the mean of `value` over micro-batches, then over edit batches, each with equal weight, as in BiasEdit.

    value: property of `ItemScores`, such as `ss`.
    """
    means = [torch.stack([getattr(part, value).mean() for part in passes]).mean() for passes in batches]
    return float(torch.stack(means).mean())


def batch_shares(batches: Sequence[Sequence[ItemScores]]) -> Tensor:
    """Return a value per item, [items], such that the mean of the values is `ss_batch_mean`.

    The values are 0.5 + n w (ss_probability - 0.5) for n items, where w is the item's weight in `batch_mean`. They are
    0 or 1 if w is 1 / n, and further from 0.5 for items of a small last micro-batch, whose weight is larger.
    """
    passes = [(part.ss_probability, len(batches) * len(batch)) for batch in batches for part in batch]
    items = sum(len(ss) for ss, _ in passes)
    return torch.cat([0.5 + items / (number * len(ss)) * (ss - 0.5) for ss, number in passes])


def graded_ss(prepared: Prepared, indices: Sequence[int], passes: Sequence[ItemScores]) -> Tensor:
    """Return the probability [items] that the model chooses the stereotype over the anti-stereotype."""
    logp = torch.cat([part.logp for part in passes])
    lengths = torch.tensor([prepared.items[i].pair_labels / len(PAIR) for i in indices], device=logp.device)
    return stereotype_probability(logp[:, 1], logp[:, 0], lengths)


def summarise(passes: Sequence[ItemScores], value: str = "ss") -> dict[str, float]:
    """Return the metrics of one domain: ss and lms (means over items), ss_distance, and icat in percent.

    value: how SS compares sentences, by mean log-probability (`ss`) or by mean probability (`ss_probability`).
    """
    ss = float(torch.cat([getattr(part, value) for part in passes]).mean())
    lms = float(torch.cat([part.lms for part in passes]).mean())
    return {"ss": ss, "ss_distance": abs(ss - 0.5), "lms": lms, "icat": icat(ss, lms)}


def reported(batches: Sequence[Sequence[ItemScores]]) -> dict[str, float]:
    """Return one domain's SS by mean probabilities, averaged over items and as in BiasEdit, each with |SS - 0.5|.

    batches: scores of the micro-batches of each edit batch.
    """
    ss = float(torch.cat([part.ss_probability for passes in batches for part in passes]).mean())
    mean = batch_mean(batches, "ss_probability")
    distances = {"ss_probability_distance": abs(ss - 0.5), "ss_batch_mean_distance": abs(mean - 0.5)}
    return {"ss_probability": ss, "ss_batch_mean": mean} | distances


def term_means(terms: Sequence[str], passes: Sequence[ItemScores]) -> dict[str, float]:
    """Return SS, LMS and ICAT as StereoSet's official script does: as means over target terms of each term's mean.

    terms: the target term of each item, in the order of `passes`.
    """
    ss, lms = (torch.cat([getattr(part, name) for part in passes]).tolist() for name in ("ss", "lms"))
    by_term: dict[str, list[tuple[float, float]]] = {}
    for term, pair in zip(terms, zip(ss, lms, strict=True), strict=True):
        by_term.setdefault(term, []).append(pair)
    means = [[sum(column) / len(pairs) for column in zip(*pairs, strict=True)] for pairs in by_term.values()]
    ss_mean, lms_mean = (sum(column) / len(means) for column in zip(*means, strict=True))
    return {"ss_term_mean": ss_mean, "lms_term_mean": lms_mean, "icat_term_mean": icat(ss_mean, lms_mean)}

"""What stages `rce` and `grpo` share: their data, the loop over epochs with exact resume, and the selectors' files."""

from collections.abc import Callable
from dataclasses import dataclass
from importlib import import_module
from pathlib import Path

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from trainers.atomic import replacing
from trainers.demonstrations.config import OBJECTIVES
from trainers.demonstrations.offline import FILE, OfflineData, read_candidates
from trainers.demonstrations.prepared import load_prepared
from trainers.demonstrations.selector import PointerSelector, build_selector
from trainers.stage import Stage
from trainers.state import pack, unpack

Figures = dict[str, float]


@dataclass(frozen=True)
class TrainingData:
    """Scored sequences of the training queries with the embeddings that selectors read."""

    offline: OfflineData
    query: Tensor  # (Q, d)
    candidates: Tensor  # (Q, K, d)

    def __len__(self) -> int:
        return len(self.query)


def load_training_data(stage: Stage) -> TrainingData:
    """Read the inputs `embed` and `candidates`, onto the stage's first device."""
    prepared = load_prepared(stage.inputs["embed"])
    offline = read_candidates(stage.inputs["candidates"] / FILE, prepared.candidates, stage.config.shots)
    numbers = {name: number for number, name in enumerate(prepared.names)}
    query, candidates = prepared.scaled(torch.tensor([numbers[name] for name in offline.queries]))
    device = stage.devices[0]
    moved = {name: getattr(offline, name).to(device) for name in ("pointers", "correct", "acc_score", "info_score")}
    offline = OfflineData(offline.queries, beam_logprob=offline.beam_logprob.to(device), **moved)
    return TrainingData(offline, query.to(device), candidates.to(device))


def rewards_of(offline: OfflineData, reward: object) -> Tensor:
    """Return the rewards (Q, N) of a mode; only its module is imported."""
    module = import_module(f"{OBJECTIVES}.selection_reward_{reward.mode}")
    return module.rewards(offline.correct, offline.acc_score, offline.info_score, reward)


def fit(
    stage: Stage,
    model: PointerSelector,
    epoch_loss: Callable[[int], Callable[[Tensor, int], tuple[Tensor, Figures]]],
    *,
    queries: int,
    settings: object,
    place: int,
    places: int,
) -> None:
    """Train `model` for `settings.epochs` epochs; continue after a kill with the same bits.

    Args:
        stage: for checkpoints, metrics and progress. Metrics are means over an epoch, named after the stage.
        model: trained in place.
        epoch_loss: called with the epoch; returns the loss of (rows (B,), step) and its figures.
        queries: number of training queries.
        settings: epochs, batch_size, lr.
        place: which of `places` selectors that the stage trains one after the other.
        places: their number.
    """
    optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.01)
    generator = torch.Generator().manual_seed(1_000_003 * ((stage.seed or 0) + 1))
    parts = {"model": model}, {"optimizer": optimizer}, {"generator": generator}
    first = 0
    if (found := stage.load_checkpoint()) is not None and found.state["place"] == place:
        unpack(found.tensors, *parts)
        first = found.step % settings.epochs
    prefix, total = stage.id.rpartition(".")[2], places * settings.epochs
    per_epoch = -(-queries // settings.batch_size)
    for epoch in range(first, settings.epochs):
        loss_of, sums = epoch_loss(epoch), {}
        order = torch.randperm(queries, generator=generator)
        for number, rows in enumerate(order.split(settings.batch_size)):
            loss, figures = loss_of(rows.to(stage.devices[0]), epoch * per_epoch + number)
            optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(model.parameters(), getattr(settings, "max_grad_norm", 1.0))
            optimizer.step()
            figures |= {"loss": float(loss.detach()), "grad_norm": float(norm)}
            for name, value in figures.items():
                sums[name] = sums.get(name, 0.0) + float(value) * len(rows) / queries
        done = place * settings.epochs + epoch + 1
        stage.log_metrics(done, {f"{prefix}/{name}": value for name, value in sums.items()})
        stage.progress(done, total, "epochs")
        if (epoch + 1) % stage.config.checkpoint_every == 0 and epoch + 1 < settings.epochs:
            stage.save_checkpoint(done, pack(*parts), {"place": place})


def selector_file(folder: Path, mode: str) -> Path:
    """Return the file of the selector that was trained with a reward mode."""
    return folder / f"selector-{mode}.safetensors"


def save_selector(folder: Path, mode: str, model: PointerSelector) -> None:
    """Write a selector's weights."""
    with replacing(selector_file(folder, mode)) as temporary:
        save_file({name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}, temporary)


def load_selector(folder: Path, mode: str, settings: object, d_embedding: int, device: str) -> PointerSelector:
    """Return a trained selector in evaluation mode."""
    model = build_selector(settings, d_embedding, seed=0)
    model.load_state_dict(load_file(selector_file(folder, mode)))
    return model.to(device).eval()

"""What stages `rce` and `grpo` share: their data, the loop over epochs with exact resume, and the selectors' files."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ablation.contract.atomic import replacing
from trainers.checkpoint import Checkpoint
from trainers.demonstrations.config import DemonstrationsConfig, Grpo, Rce, Reward, Selector
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
    length = stage.config.train_shots or stage.config.shots
    offline = read_candidates(stage.inputs["candidates"] / FILE, prepared.candidates, length)
    numbers = {name: number for number, name in enumerate(prepared.names)}
    query, candidates = prepared.scaled(torch.tensor([numbers[name] for name in offline.queries]))
    device = stage.devices[0]
    moved = {name: value.to(device) for name, value in vars(offline).items() if isinstance(value, Tensor)}
    return TrainingData(OfflineData(offline.queries, **moved), query.to(device), candidates.to(device))


def trained_on(config: DemonstrationsConfig) -> list[Reward]:
    """Return the rewards of which each trains a selector: one, or those of `per_shot`."""
    return [config.reward.model_copy(update={"mode": mode}) for mode in config.per_shot] or [config.reward]


def rewards_of(parts: Mapping[str, Any], offline: OfflineData, reward: Reward) -> Tensor:
    """Return the rewards (Q, N) of a mode.

    Raises ValueError where all sequences have the same: there is nothing to learn.
    """
    gain = offline.info_score if reward.gain == "probability" else offline.logp_gain
    rewards = parts[f"reward_{reward.mode}"](offline.correct, offline.acc_score, gain, reward)
    filled = rewards[offline.present]
    if (filled == filled[0]).all():
        raise ValueError(
            f"reward.mode = {reward.mode}: all {len(filled)} sequences have the same reward, {float(filled[0]):g}; "
            "the scores that it needs are missing or equal in the offline data: choose another mode, or add them"
        )
    return rewards


def train_selectors(
    stage: Stage,
    rewards: Sequence[Reward],
    start: Callable[[Reward], tuple[PointerSelector, "Loss"]],
    *,
    queries: int,
    settings: Rce | Grpo,
) -> None:
    """Train a selector for each reward, one after the other, and save it; after a kill go on with the same bits.

    Args:
        stage: for checkpoints, metrics and progress. Metrics are means over an epoch, named after the stage.
        rewards: the modes.
        start: returns the initial selector of a reward and its loss.
        queries: number of training queries.
        settings: epochs, batch_size, lr, max_grad_norm.
    """
    found = stage.load_checkpoint()
    for place, reward in enumerate(rewards):
        if found is not None and place < found.state["place"]:
            continue
        model, loss = start(reward)
        trainer = _Trainer(stage, model, loss, queries=queries, settings=settings)
        trainer.run(place, len(rewards), found if found is not None and found.state["place"] == place else None)
        save_selector(stage.out, reward.mode, model)
        if place + 1 < len(rewards):  # nothing of the next one yet
            stage.save_checkpoint((place + 1) * settings.epochs, {"begun": torch.zeros(())}, {"place": place + 1})


class Loss(Protocol):
    """What a training stage minimises."""

    def begin_epoch(self, epoch: int) -> None:
        """Take note of the policy before the epoch; before epoch 0 it is the one that the loss began with."""
        ...

    def __call__(self, rows: Tensor, step: int) -> tuple[Tensor, Figures]:
        """Return the loss of queries (B,) at a step, and figures to log."""
        ...


class _Trainer:
    """One selector, its optimiser and the order of its queries."""

    def __init__(self, stage: Stage, model: PointerSelector, loss: Loss, *, queries: int, settings: Rce | Grpo) -> None:
        self.stage, self.model, self.loss, self.queries, self.settings = stage, model, loss, queries, settings
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.01, fused=True)
        self.generator = torch.Generator().manual_seed(1_000_003 * ((stage.seed or 0) + 1))
        self.parts = {"model": model}, {"optimizer": self.optimizer}, {"generator": self.generator}

    def run(self, place: int, places: int, found: Checkpoint | None) -> None:
        """Train for all epochs, or for those that are left after the checkpoint."""
        settings, stage, first = self.settings, self.stage, 0
        if found is not None and "begun" not in found.tensors:
            unpack(found.tensors, *self.parts)
            first = found.step - place * settings.epochs
        prefix = stage.id.rpartition(".")[2]
        for epoch in range(first, settings.epochs):
            figures = self._epoch(epoch)
            done = place * settings.epochs + epoch + 1
            stage.log_metrics(done, {f"{prefix}/{name}": value for name, value in figures.items()})
            stage.progress(done, places * settings.epochs, "epochs")
            if (epoch + 1) % stage.config.checkpoint_every == 0 and epoch + 1 < settings.epochs:
                stage.save_checkpoint(done, pack(*self.parts), {"place": place})

    def _epoch(self, epoch: int) -> Figures:
        """Go through all queries once; return the means of loss, gradient norm and the loss's figures."""
        self.loss.begin_epoch(epoch)
        sums: Figures = {}
        order = torch.randperm(self.queries, generator=self.generator)
        batches = order.split(self.settings.batch_size)
        for number, rows in enumerate(batches):
            loss, figures = self.loss(rows.to(self.stage.devices[0]), epoch * len(batches) + number)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
            self.optimizer.step()
            figures = figures | {"loss": float(loss.detach()), "grad_norm": float(norm)}
            for name, value in figures.items():
                sums[name] = sums.get(name, 0.0) + value * len(rows) / self.queries
        return sums


def selector_file(folder: Path, mode: str) -> Path:
    """Return the file of the selector that was trained with a reward mode."""
    return folder / f"selector-{mode}.safetensors"


def save_selector(folder: Path, mode: str, model: PointerSelector) -> None:
    """Write a selector's weights."""
    with replacing(selector_file(folder, mode)) as temporary:
        save_file({name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}, temporary)


def load_selector(folder: Path, mode: str, settings: Selector, d_embedding: int, device: str) -> PointerSelector:
    """Return a trained selector in evaluation mode."""
    model = build_selector(settings, d_embedding, seed=0)
    model.load_state_dict(load_file(selector_file(folder, mode)))
    return model.to(device).eval()

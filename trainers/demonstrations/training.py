"""Code shared by stages `rce` and `grpo`: data, the loop over epochs with exact resume, and the selectors' files."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import load_file, save_file
from torch import Tensor

from ablation.contract.atomic import replacing
from trainers.demonstrations.config import DemonstrationsConfig, Grpo, Rce, Reward, Selector
from trainers.demonstrations.prepared import OfflineData, load_prepared, read_candidates
from trainers.demonstrations.selector import PointerSelector, build_selector
from trainers.running.checkpoint import Checkpoint
from trainers.running.stage import Stage
from trainers.running.state import State

Figures = dict[str, float]
Loss = Callable[[Tensor, int], tuple[Tensor, Figures]]  # of queries (B,) at a step: the loss, and figures to log


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
    prepared, offline = load_prepared(stage.inputs["embed"]), read_candidates(stage.inputs["candidates"])
    numbers = {name: number for number, name in enumerate(prepared.names)}
    query, candidates = prepared.scaled(torch.tensor([numbers[name] for name in offline.queries]))
    device = stage.devices[0]
    moved = {name: value.to(device) for name, value in vars(offline).items() if isinstance(value, Tensor)}
    return TrainingData(OfflineData(offline.queries, **moved), query.to(device), candidates.to(device))


def trained_on(config: DemonstrationsConfig) -> list[Reward]:
    """Return the rewards that each train a selector: a single one, those of `per_shot`, or none for a baseline."""
    if config.selector.kind != "pointer":
        return []
    return [config.reward.model_copy(update={"mode": mode}) for mode in config.per_shot] or [config.reward]


def rewards_of(parts: Mapping[str, Callable[..., Any]], offline: OfflineData, reward: Reward) -> Tensor:
    """Return the rewards (Q, N) of a mode; parts: the stage's.

    Raises ValueError if all sequences have the same: there is nothing to learn.
    """
    gain = offline.info_score if reward.gain == "probability" else offline.logp_gain
    rewards: Tensor = parts[f"{reward.mode}_rewards"](offline.correct, offline.acc_score, gain, reward)
    if (rewards == rewards[0, 0]).all():
        raise ValueError(
            f"reward.mode = {reward.mode}: all {rewards.numel()} sequences have the same reward, "
            f"{float(rewards[0, 0]):g}; choose another mode, or propose other sequences"
        )
    return rewards


def train_selectors(
    stage: Stage,
    data: TrainingData,
    settings: Rce | Grpo,
    start: Callable[[Reward, Tensor], tuple[PointerSelector, Loss]],
    *,
    epochs: int,
) -> None:
    """Train and save a selector for each reward, one after the other; resumed training gives the same bits.

    start: returns the initial selector of a reward and its loss, given the rewards (Q, N) too. Metrics are means over
    an epoch, named after the stage.
    """
    rewards, saved = trained_on(stage.config), stage.load_checkpoint()

    # A checkpoint is of one selector; those before it are saved whole, and those after it are still to come.
    done = 0 if saved is None else saved.state["place"]
    for place, reward in enumerate(rewards[done:], done):
        model, loss = start(reward, rewards_of(stage.parts, data.offline, reward))
        trainer = _Trainer(stage, model, loss, queries=len(data), settings=settings, epochs=epochs)
        trainer.run(place, len(rewards), saved if place == done else None)
        save_selector(stage.out, reward.mode, model)


@dataclass
class Progress:
    """A checkpoint's place in the series of selectors, which are trained one after the other."""

    place: int = 0


class _Trainer:
    """One selector, its optimiser and the order of its queries."""

    def __init__(
        self, stage: Stage, model: PointerSelector, loss: Loss, *, queries: int, settings: Rce | Grpo, epochs: int
    ) -> None:
        self.stage, self.model, self.loss, self.queries, self.settings = stage, model, loss, queries, settings
        self.epochs = epochs
        self.optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.01, fused=True)
        self.generator = torch.Generator().manual_seed(1_000_003 * ((stage.seed or 0) + 1))
        self.progress, generators = Progress(), {"generator": self.generator}
        self.state = State({"model": model}, {"optimizer": self.optimizer}, generators, self.progress)

    def run(self, place: int, places: int, saved: Checkpoint | None) -> None:
        """Train for all epochs, or for those that are left after the checkpoint."""
        stage, before = self.stage, place * self.epochs
        self.progress.place = place
        if saved is not None:
            self.state.load(saved)
        prefix = stage.id.rpartition(".")[2]
        for epoch in range(0 if saved is None else saved.step - before, self.epochs):
            figures = self._epoch(epoch)
            done = before + epoch + 1
            stage.log_metrics(done, {f"{prefix}/{name}": value for name, value in figures.items()})
            stage.progress(done, places * self.epochs, "epochs")
            if (epoch + 1) % stage.config.checkpoint_every == 0 and done < places * self.epochs:
                self.state.save(stage, done)

    def _epoch(self, epoch: int) -> Figures:
        """Go through all queries once; return the means of loss, gradient norm and the loss's figures."""
        sums: Figures = {}

        # The order is of this selector's generator, which the checkpoint holds.
        order = torch.randperm(self.queries, generator=self.generator)
        batches = order.split(self.settings.batch_size)
        for number, rows in enumerate(batches):
            loss, figures = self.loss(rows.to(self.stage.devices[0]), epoch * len(batches) + number)
            self.optimizer.zero_grad(set_to_none=True)
            loss.backward()
            norm = torch.nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.max_grad_norm)
            self.optimizer.step()

            # Weighed by the queries of a batch, as the last one may have fewer.
            figures = figures | {"loss": float(loss.detach()), "grad_norm": float(norm)}
            for name, value in figures.items():
                sums[name] = sums.get(name, 0.0) + value * len(rows) / self.queries
        return sums


def save_sequences(stage: Stage, data: TrainingData, name: str, values: Tensor, subsets: list[list[str]]) -> None:
    """Write a value (Q, N) of every sequence as items of protocol `data`, with their subsets."""
    rows = [
        (f"{query}/{number}", subset, "data", name, value)
        for query, row, row_subsets in zip(data.offline.queries, values.tolist(), subsets, strict=True)
        for number, (value, subset) in enumerate(zip(row, row_subsets, strict=True))
    ]
    stage.save_items(rows)


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

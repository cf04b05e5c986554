"""Training of selectors in the stages `rce` and `grpo`: their data, the loop over epochs, and the selectors' files."""

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
from trainers.running.stage import Stage
from trainers.running.state import State

Figures = dict[str, float]
Loss = Callable[[Tensor, int], tuple[Tensor, Figures]]  # (query numbers (B,), step) -> loss, figures to log


@dataclass(frozen=True)
class TrainingData:
    """Scored sequences of the training queries, with the embeddings of queries and candidates."""

    offline: OfflineData
    query: Tensor  # (Q, d)
    candidates: Tensor  # (Q, K, d)

    def __len__(self) -> int:
        return len(self.query)


def load_training_data(stage: Stage) -> TrainingData:
    """Return the data in the stage's inputs `embed` and `candidates`, on the stage's first device."""
    prepared, offline = load_prepared(stage.inputs["embed"]), read_candidates(stage.inputs["candidates"])
    numbers = {name: number for number, name in enumerate(prepared.names)}
    query, candidates = prepared.scaled(torch.tensor([numbers[name] for name in offline.queries]))
    device = stage.devices[0]
    moved = {name: value.to(device) for name, value in vars(offline).items() if isinstance(value, Tensor)}
    return TrainingData(OfflineData(offline.queries, **moved), query.to(device), candidates.to(device))


def trained_on(config: DemonstrationsConfig) -> list[Reward]:
    """Return the settings of the rewards, each of which trains a selector; none if the selector is a baseline."""
    if config.selector.kind != "pointer":
        return []
    return [config.reward.model_copy(update={"mode": mode}) for mode in config.per_shot] or [config.reward]


def rewards_of(parts: Mapping[str, Callable[..., Any]], offline: OfflineData, reward: Reward) -> Tensor:
    """Return the rewards (Q, N) of all sequences, by the formula in the stage's `parts`.

    Raises ValueError if all sequences have the same reward, because nothing can be learnt from it.
    """
    gain = offline.info_score if reward.gain == "probability" else offline.logp_gain
    rewards: Tensor = parts[f"{reward.mode}_rewards"](offline.correct, offline.acc_score, gain, reward)
    if (rewards == rewards[0, 0]).all():
        raise ValueError(
            f"reward.mode {reward.mode} gives all {rewards.numel()} sequences the reward {float(rewards[0, 0]):g}; "
            "set another reward.mode, or change proposals"
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
    """Train and save one selector for each reward; a resumed stage gives bit-identical selectors.

    start: takes the settings of a reward and the rewards (Q, N), and returns the initial selector and its loss.
    """
    rewards, saved = trained_on(stage.config), stage.load_checkpoint()
    prefix, total = stage.id.rpartition(".")[2], len(rewards) * epochs

    # A checkpoint holds one selector; earlier ones are saved already, and later ones have not begun.
    done = 0 if saved is None else saved.state["place"]
    for place, reward in enumerate(rewards[done:], done):
        model, loss = start(reward, rewards_of(stage.parts, data.offline, reward))
        optimizer = torch.optim.AdamW(model.parameters(), lr=settings.lr, weight_decay=0.01, fused=True)
        generator = torch.Generator().manual_seed(1_000_003 * ((stage.seed or 0) + 1))
        state = State({"model": model}, {"optimizer": optimizer}, {"generator": generator}, {"place": place})
        first = place * epochs
        if saved is not None and place == done:
            state.load(saved)
            first = saved.step

        # Metrics are means over an epoch, and are named after the stage.
        for epoch in range(first, (place + 1) * epochs):
            order = torch.randperm(len(data), generator=generator)
            figures = _epoch(model, loss, optimizer, order, settings=settings, epoch=epoch - place * epochs)
            stage.log_metrics(epoch + 1, {f"{prefix}/{name}": value for name, value in figures.items()})
            stage.progress(epoch + 1, total, "epochs")
            if (epoch - place * epochs + 1) % stage.config.checkpoint_every == 0 and epoch + 1 < total:
                state.save(stage, epoch + 1)
        save_selector(stage.out, reward.mode, model)


def _epoch(
    model: PointerSelector,
    loss_of: Loss,
    optimizer: torch.optim.Optimizer,
    order: Tensor,
    *,
    settings: Rce | Grpo,
    epoch: int,
) -> Figures:
    """Take a step on each batch of queries in the given order, and return the means of all metrics."""
    sums: Figures = {}
    batches = order.split(settings.batch_size)
    for number, rows in enumerate(batches):
        loss, figures = loss_of(rows.to(next(model.parameters()).device), epoch * len(batches) + number)
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        norm = torch.nn.utils.clip_grad_norm_(model.parameters(), settings.max_grad_norm)
        optimizer.step()

        # Batches are weighted by their numbers of queries, because the last one may have fewer.
        figures = figures | {"loss": float(loss.detach()), "grad_norm": float(norm)}
        for name, value in figures.items():
            sums[name] = sums.get(name, 0.0) + value * len(rows) / len(order)
    return sums


def save_sequences(stage: Stage, data: TrainingData, name: str, values: Tensor, subsets: list[list[str]]) -> None:
    """Write `values` (Q, N) of sequences as items of the protocol `data`. subsets: the items' subsets, Q lists of N."""
    rows = [
        (f"{query}/{number}", subset, "data", name, value)
        for query, row, row_subsets in zip(data.offline.queries, values.tolist(), subsets, strict=True)
        for number, (value, subset) in enumerate(zip(row, row_subsets, strict=True))
    ]
    stage.save_items(rows)


def selector_file(folder: Path, mode: str) -> Path:
    """Return the path of the selector of a reward mode."""
    return folder / f"selector-{mode}.safetensors"


def save_selector(folder: Path, mode: str, model: PointerSelector) -> None:
    """Write the weights of the selector of a reward mode."""
    with replacing(selector_file(folder, mode)) as temporary:
        save_file({name: tensor.cpu().contiguous() for name, tensor in model.state_dict().items()}, temporary)


def load_selector(folder: Path, mode: str, settings: Selector, d_embedding: int, device: str) -> PointerSelector:
    """Return the selector that `save_selector` wrote, in evaluation mode on `device`."""
    model = build_selector(settings, d_embedding, seed=0)
    model.load_state_dict(load_file(selector_file(folder, mode)))
    return model.to(device).eval()

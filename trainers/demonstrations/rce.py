"""Stage `rce` of study `demonstrations`: imitate scored sequences, weighted by their rewards."""

import torch
from torch import Tensor

from trainers.demonstrations.config import Reward
from trainers.demonstrations.selector import PointerSelector, build_selector
from trainers.demonstrations.training import (
    Figures,
    TrainingData,
    load_training_data,
    rewards_of,
    save_sequences,
    train_selectors,
    trained_on,
)
from trainers.objectives.selection import (
    best_only,
    position_normalised,
    rce_loss,
    rce_weights,
    smoothed_cross_entropy,
    tau_at,
)
from trainers.running.stage import Stage


def run(stage: Stage) -> None:
    """Train a selector for each reward mode of the variant; do nothing if the selector is a baseline."""
    config, modes = stage.config, trained_on(stage.config)
    if not modes:
        stage.log.info("selector.kind is %s, a baseline, so nothing is trained", config.selector.kind)
        return
    data = load_training_data(stage)

    def start(reward: Reward, rewards: Tensor) -> tuple[PointerSelector, _Loss]:
        model = build_selector(config.selector, data.query.shape[1], stage.seed or 0).to(stage.devices[0])
        return model, _Loss(stage, model, data, rewards)

    train_selectors(stage, data, config.rce, start, epochs=config.rce.best_epochs + config.rce.epochs)
    if len(modes) == 1:
        rewards = rewards_of(stage.parts, data.offline, modes[0])
        subsets = [["positive" if value >= 1 else "negative" for value in row] for row in data.offline.correct.tolist()]
        save_sequences(stage, data, "reward", rewards, subsets)


def free_candidates(pointers: Tensor, candidates: int) -> Tensor:
    """Return a mask (Q, N, S, K) of the candidates that are not chosen before a step of `pointers` (Q, N, S)."""
    chosen = torch.nn.functional.one_hot(pointers, candidates).bool()
    before = chosen.long().cumsum(2) - chosen.long()
    return before == 0


class _Loss:
    """RCE loss of a batch of queries, whose temperature depends on the step."""

    def __init__(self, stage: Stage, model: PointerSelector, data: TrainingData, rewards: Tensor) -> None:
        self.settings, self.model, self.data = stage.config.rce, model, data
        self.best = best_only(rewards)
        self.rewards = position_normalised(rewards) if self.settings.weights == "position" else rewards
        self.free = free_candidates(data.offline.pointers, data.candidates.shape[1])
        batches = -(-len(data) // self.settings.batch_size)
        self.steps, self.first = self.settings.epochs * batches, self.settings.best_epochs * batches

    def __call__(self, rows: Tensor, step: int) -> tuple[Tensor, Figures]:
        settings, data = self.settings, self.data
        pointers = data.offline.pointers[rows]
        logps = self.model(data.query[rows], data.candidates[rows], pointers)
        losses = smoothed_cross_entropy(logps, pointers, self.free[rows], settings.label_smoothing)
        if settings.weights == "best" or step < self.first:
            return rce_loss(self.best[rows], losses), {}
        tau = tau_at(step - self.first, self.steps, settings.tau_start, settings.tau_end)
        weights = rce_weights(self.rewards[rows], tau)
        return rce_loss(weights, losses), {"tau": tau, "max_weight": float(weights.amax(-1).mean())}

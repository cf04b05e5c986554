"""Stage `rce` of study `demonstrations`: imitate scored sequences, the better ones more. No transformers here."""

import torch
from torch import Tensor

from trainers.demonstrations.config import Reward
from trainers.demonstrations.selector import PointerSelector, build_selector
from trainers.demonstrations.training import TrainingData, load_training_data, rewards_of, train_selectors, trained_on
from trainers.objectives.selection import best_only, rce_loss, rce_weights, smoothed_cross_entropy, tau_at
from trainers.stage import Stage


def run(stage: Stage) -> None:
    """Train a selector for each reward mode that the variant asks for; the baselines have none."""
    config = stage.config
    if config.selector.kind != "pointer":
        stage.log.info("selector %s is not trained", config.selector.kind)
        return
    data, rewards = load_training_data(stage), trained_on(config)

    def start(reward: Reward) -> tuple[PointerSelector, _Loss]:
        model = build_selector(config.selector, data.query.shape[1], stage.seed or 0).to(stage.devices[0])
        return model, _Loss(stage, model, data, rewards_of(stage.parts, data.offline, reward))

    settings = config.rce.model_copy(update={"epochs": config.rce.best_epochs + config.rce.epochs})
    train_selectors(stage, rewards, start, queries=len(data), settings=settings)
    if len(rewards) == 1:
        save_rewards(stage, data, rewards_of(stage.parts, data.offline, rewards[0]))


def free_candidates(pointers: Tensor, candidates: int) -> Tensor:
    """Return whether a candidate is still free before each step, (Q, N, S, K) bool, of pointers (Q, N, S)."""
    chosen = torch.nn.functional.one_hot(pointers, candidates).bool()
    before = chosen.long().cumsum(2) - chosen.long()
    return before == 0


class _Loss:
    """The loss of a batch of queries at a step."""

    def __init__(self, stage: Stage, model: PointerSelector, data: TrainingData, rewards: Tensor) -> None:
        self.settings, self.model, self.data, self.rewards = stage.config.rce, model, data, rewards
        self.present = data.offline.present
        self.best = best_only(rewards, self.present)
        if "normalised" in stage.parts:
            self.rewards = stage.parts["normalised"](rewards, self.present)
        self.free = free_candidates(data.offline.pointers, data.candidates.shape[1])
        batches = -(-len(data) // self.settings.batch_size)
        self.steps, self.first = self.settings.epochs * batches, self.settings.best_epochs * batches

    def begin_epoch(self, epoch: int) -> None:
        """Nothing to note: the loss depends on the current policy only."""

    def __call__(self, rows: Tensor, step: int) -> tuple[Tensor, dict[str, float]]:
        settings, data = self.settings, self.data
        pointers = data.offline.pointers[rows]
        logps = self.model(data.query[rows], data.candidates[rows], pointers)
        losses = smoothed_cross_entropy(logps, pointers, self.free[rows], settings.label_smoothing)
        if settings.weights == "best" or step < self.first:
            return rce_loss(self.best[rows], losses), {}
        tau = tau_at(step - self.first, self.steps, settings.tau_start, settings.tau_end)
        weights = rce_weights(self.rewards[rows], tau, self.present[rows])
        figures = {"tau": tau, "max_weight": float(weights.amax(-1).mean())}
        return rce_loss(weights, losses), figures


def save_rewards(stage: Stage, data: TrainingData, rewards: Tensor) -> None:
    """Write every sequence's reward as items of protocol `data`, subsets `positive` and `negative`."""
    rows, offline = [], data.offline
    correct, rewards = offline.correct.cpu(), rewards.cpu()
    for place, number in offline.present.nonzero().tolist():
        subset = "positive" if correct[place, number] >= 1 else "negative"
        rows.append((f"{offline.queries[place]}/{number}", subset, "data", "reward", float(rewards[place, number])))
    stage.save_items(rows)

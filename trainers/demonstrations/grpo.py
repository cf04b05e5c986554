"""Stage `grpo` of study `demonstrations`: train the RCE policy further on the same sequences."""

import torch
from torch import Tensor

from trainers.demonstrations.config import Reward
from trainers.demonstrations.selector import PointerSelector, sequence_logps
from trainers.demonstrations.training import (
    Figures,
    TrainingData,
    load_selector,
    load_training_data,
    rewards_of,
    save_selector,
    save_sequences,
    train_selectors,
    trained_on,
)
from trainers.objectives.selection_grpo import grpo_loss
from trainers.running.stage import Stage


def run(stage: Stage) -> None:
    """Train the selectors of the stage `rce` further, or copy them unchanged if GRPO is not enabled."""
    config, modes = stage.config, trained_on(stage.config)
    if not modes:
        stage.log.info("selector.kind is %s, a baseline, so nothing is trained", config.selector.kind)
        return
    data = load_training_data(stage)

    def selector(reward: Reward) -> PointerSelector:
        return load_selector(stage.inputs["rce"], reward.mode, config.selector, data.query.shape[1], stage.devices[0])

    def start(reward: Reward, rewards: Tensor) -> tuple[PointerSelector, _Loss]:
        model = selector(reward)
        return model, _Loss(stage, model, data, rewards)

    if not config.grpo.enabled:
        for reward in modes:
            save_selector(stage.out, reward.mode, selector(reward))
        return
    train_selectors(stage, data, config.grpo, start, epochs=config.grpo.epochs)
    if len(modes) == 1:
        advantages = _advantages(stage, rewards_of(stage.parts, data.offline, modes[0]))
        right, total = (data.offline.correct >= 1).sum(1).tolist(), advantages.shape[1]
        named = ["all_wrong" if count == 0 else "all_right" if count == total else "mixed" for count in right]
        save_sequences(stage, data, "advantage", advantages, [[name] * total for name in named])


def _advantages(stage: Stage, rewards: Tensor) -> Tensor:
    bound = stage.config.grpo.advantage_clip
    advantages: Tensor = stage.parts["advantages"](rewards)
    return advantages.clamp(-bound, bound)


class _Loss:
    """GRPO loss of a batch of queries; the reference is the RCE policy, the old policy the one before the epoch."""

    def __init__(self, stage: Stage, model: PointerSelector, data: TrainingData, rewards: Tensor) -> None:
        self.settings, self.model, self.data = stage.config.grpo, model, data
        self.advantages = _advantages(stage, rewards)
        self.trained = torch.ones(len(data), dtype=torch.bool, device=rewards.device)
        if self.settings.min_positive_ratio is not None:
            positive = stage.parts["positives"](rewards, data.offline.correct, self.settings.positive_threshold)
            self.trained = stage.parts["trained_queries"](positive, self.settings.min_positive_ratio)
        self.batches = -(-len(data) // self.settings.batch_size)
        self.reference = self.old = self._logps(model)  # `model` is the RCE policy until a checkpoint is loaded

    @torch.no_grad()
    def _logps(self, model: PointerSelector) -> Tensor:
        data, size = self.data, self.settings.batch_size
        tensors = (data.query, data.candidates, data.offline.pointers)
        chunks = zip(*(tensor.split(size) for tensor in tensors), strict=True)
        return torch.cat([sequence_logps(model(*part), part[2]) for part in chunks])

    def __call__(self, rows: Tensor, step: int) -> tuple[Tensor, Figures]:
        settings, data = self.settings, self.data
        if step > 0 and step % self.batches == 0:  # an epoch begins; in the first one the old policy is the reference
            self.old = self._logps(self.model)
        kept = rows[self.trained[rows]]
        share = len(kept) / len(rows)
        if not len(kept):  # a batch without trained queries has a loss of 0 and zero gradients
            zero = torch.stack([parameter.sum() for parameter in self.model.parameters()]).sum() * 0.0
            return zero, {"trained_queries": 0.0}
        pointers = data.offline.pointers[kept]
        logps = sequence_logps(self.model(data.query[kept], data.candidates[kept], pointers), pointers)
        loss, diagnostics = grpo_loss(
            logps,
            self.old[kept],
            self.reference[kept],
            self.advantages[kept],
            clip_low=settings.clip_low,
            clip_high=settings.clip_high,
            kl_coef=settings.kl_coef,
        )
        return loss, {name: float(value) for name, value in diagnostics.items()} | {"trained_queries": share}

"""Stage `grpo` of study `demonstrations`: improve the RCE policy on the same sequences. No transformers here."""

import torch
from torch import Tensor

from trainers.demonstrations.config import Reward
from trainers.demonstrations.selector import PointerSelector, sequence_logps
from trainers.demonstrations.training import (
    TrainingData,
    load_selector,
    load_training_data,
    rewards_of,
    save_selector,
    train_selectors,
    trained_on,
)
from trainers.objectives.selection import grpo_loss
from trainers.stage import Stage


def run(stage: Stage) -> None:
    """Train on from each selector of stage `rce`; where GRPO is off, hand it on as it is."""
    config, earlier = stage.config, stage.inputs["rce"]
    if config.selector.kind != "pointer":
        stage.log.info("selector %s is not trained", config.selector.kind)
        return
    data, rewards = load_training_data(stage), trained_on(config)

    def selector(reward: Reward) -> PointerSelector:
        return load_selector(earlier, reward.mode, config.selector, data.query.shape[1], stage.devices[0])

    def start(reward: Reward) -> tuple[PointerSelector, _Loss]:
        model = selector(reward)
        return model, _Loss(stage, model, data, rewards_of(stage.parts, data.offline, reward))

    if not config.grpo.enabled:
        for reward in rewards:
            save_selector(stage.out, reward.mode, selector(reward))
        return
    train_selectors(stage, rewards, start, queries=len(data), settings=config.grpo)
    if len(rewards) == 1:
        advantages = _advantages(stage, rewards_of(stage.parts, data.offline, rewards[0]), data.offline.present)
        save_advantages(stage, data, advantages)


def _advantages(stage: Stage, rewards: Tensor, present: Tensor) -> Tensor:
    """Return every sequence's advantage (Q, N), clipped."""
    bound, found = stage.config.grpo.advantage_clip, stage.parts["advantages"](rewards, present)
    clipped: Tensor = found.clamp(-bound, bound)
    return clipped


class _Loss:
    """The loss of a batch of queries; the reference is the RCE policy, the old policy that before the epoch."""

    def __init__(self, stage: Stage, model: PointerSelector, data: TrainingData, rewards: Tensor) -> None:
        self.settings, self.model, self.data = stage.config.grpo, model, data
        self.present = data.offline.present
        self.advantages = _advantages(stage, rewards, self.present)
        self.trained = torch.ones(len(data), dtype=torch.bool, device=rewards.device)
        if self.settings.min_positive_ratio is not None:
            positive = stage.parts["positives"](rewards, data.offline.correct, self.settings.positive_threshold)
            least = self.settings.min_positive_ratio
            self.trained = stage.parts["trained_queries"](positive, least, self.present)
        self.reference = self.old = self._logps(model)  # the RCE policy, also where training goes on from a checkpoint

    @torch.no_grad()
    def _logps(self, model: PointerSelector) -> Tensor:
        """Return the log-probabilities (Q, N, S) of all sequences' choices."""
        data, chunk = self.data, self.settings.batch_size
        parts = zip(*(each.split(chunk) for each in (data.query, data.candidates, data.offline.pointers)), strict=True)
        return torch.cat([sequence_logps(model(*part), part[2]) for part in parts])

    def begin_epoch(self, epoch: int) -> None:
        """Take the current policy as the old one of the ratio."""
        if epoch > 0:  # before the first it is the reference
            self.old = self._logps(self.model)

    def __call__(self, rows: Tensor, step: int) -> tuple[Tensor, dict[str, float]]:
        settings, data = self.settings, self.data
        kept = rows[self.trained[rows]]
        share = len(kept) / len(rows)
        if not len(kept):  # no query of the batch gives a loss: a zero with a (zero) gradient
            nothing = torch.stack([parameter.sum() for parameter in self.model.parameters()]).sum() * 0.0
            return nothing, {"trained_queries": 0.0}
        pointers = data.offline.pointers[kept]
        logps = sequence_logps(self.model(data.query[kept], data.candidates[kept], pointers), pointers)
        loss, diagnostics = grpo_loss(
            logps,
            self.old[kept],
            self.reference[kept],
            self.advantages[kept],
            clip=settings.clip,
            beta=settings.beta,
            present=self.present[kept],
        )
        figures = {name: float(value) for name, value in diagnostics.items()} | {"trained_queries": share}
        return loss, figures


def save_advantages(stage: Stage, data: TrainingData, advantages: Tensor) -> None:
    """Write every sequence's advantage as items of protocol `data`.

    Subset `all_wrong` holds the queries without a right sequence, `mixed` those with both, `all_right` the rest.
    """
    rows, offline = [], data.offline
    right = ((offline.correct >= 1) & offline.present).sum(1).tolist()
    total, advantages = offline.present.sum(1).tolist(), advantages.cpu()
    for place, number in offline.present.nonzero().tolist():
        subset = "all_wrong" if right[place] == 0 else "all_right" if right[place] == total[place] else "mixed"
        rows.append(
            (f"{offline.queries[place]}/{number}", subset, "data", "advantage", float(advantages[place, number]))
        )
    stage.save_items(rows)

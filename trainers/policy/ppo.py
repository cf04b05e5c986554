"""A step of PPO (arXiv 1707.06347): that of `grpo.py`, with the advantages of a critic in place of a group's.

The critic's V(x, y_<t) is the value before token t.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor, nn

from trainers.objectives.policy import Diagnostics, StepMetrics, Sum, loss_denominator
from trainers.objectives.ppo import gae, value_loss, whiten
from trainers.policy.batch import Sequences
from trainers.policy.config import Critic as Settings
from trainers.policy.config import Memory, UpdateSettings
from trainers.policy.grpo import Run, add_to_last_token, sample_rollout, update_policy
from trainers.policy.learner import Learner, learner_of, minibatches
from trainers.policy.models import Placement
from trainers.policy.value_model import ValueModel
from trainers.running.stage import Stage


@dataclass(frozen=True)
class PpoRun(Run):
    """A training with a critic."""

    critic: "Critic"


def with_critic(run: Run, critic: "Critic") -> PpoRun:
    """Return a run with its critic."""
    return PpoRun(**vars(run), critic=critic)


def step(run: PpoRun, number: int) -> dict[str, float]:
    """Sample, reward, update critic and policy; return the step's metrics."""
    update = run.config.update
    for learner in (run.actor.learner, run.critic.learner):
        learner.warm_up(number, update.warmup_steps)
    rollout = sample_rollout(run)
    sequences = rollout.sequences

    # The critic's values are those before it learns from these responses.
    rewards = rollout.rewards if rollout.token_rewards is None else rollout.token_rewards  # (N,), or (N, T)
    estimate = run.critic.estimate(sequences, rewards)
    orders = run.generators.critic_minibatches  # its own, so that GRPO's minibatches are the same without a critic
    metrics = run.critic.learn(sequences, estimate, update=update, generator=orders)

    # The policy's update is GRPO's; only the advantages differ.
    return rollout.metrics | metrics | update_policy(run, rollout, estimate.advantages)


def build_critic(folder: Path, placement: Placement, memory_settings: Memory, seed: int | None) -> ValueModel:
    """Return the value model that starts from the body of the policy in `folder`."""

    def make() -> ValueModel:
        return ValueModel.from_causal(folder, placement, sees_token=False).with_adapters(memory_settings, seed)

    return placement.shard(placement.ranks.build(make))


def new_critic(
    stage: Stage, settings: Settings, update: UpdateSettings, policy: Path, placement: Placement
) -> "Critic":
    """Return the critic that learns, which starts from the policy's body."""
    model = build_critic(policy, placement, stage.config.memory, stage.seed)
    return Critic(learner_of(stage, model, settings.lr, update), settings)


class Estimate(NamedTuple):
    """Whitened advantages, returns, and the values that they are based on, each (N, T), on the critic's device."""

    advantages: Tensor
    returns: Tensor
    values: Tensor


@dataclass(frozen=True)
class Critic:
    """The value model with its optimiser and settings."""

    learner: Learner
    settings: Settings

    @torch.no_grad()
    def estimate(self, sequences: Sequences, rewards: Tensor) -> Estimate:
        """Return GAE's estimate for the rewards of responses (N,), or of tokens (N, T); the rewards are on the CPU."""
        settings, mask = self.settings, sequences.completion_mask

        def evaluate(rows: Tensor) -> Tensor:
            values = self.learner.model(sequences.select(rows))
            return nn.functional.pad(values, (0, mask.shape[1] - values.shape[1]))

        values = torch.cat(self.learner.micro_batch.run(torch.arange(len(sequences)), evaluate))

        # The reward of a whole response is given at its last token, and GAE carries it back to those before.
        if rewards.dim() == 1:
            rewards = add_to_last_token(rewards.new_zeros(mask.shape), rewards, mask)
        advantages, returns = gae(rewards.to(values), values, mask, gamma=settings.gamma, lam=settings.lam)
        return Estimate(whiten(advantages, mask), returns, values)

    def learn(
        self, sequences: Sequences, estimate: Estimate, *, update: UpdateSettings, generator: torch.Generator
    ) -> dict[str, float]:
        """Fit the values to the returns over as many minibatches as the policy's; return the means of diagnostics."""
        step_metrics, (_, returns, old_values) = StepMetrics(), estimate
        with self.learner.training():
            for rows in minibatches(len(sequences), update, generator):
                # Of the whole minibatch, so that micro-batches add up to its gradient.
                denominator = loss_denominator(sequences.completion_mask[rows], "token_mean")

                def backward(part: Tensor, denominator: float = denominator) -> Diagnostics:
                    chosen = sequences.select(part)
                    width = chosen.completion_mask.shape[1]
                    loss, diagnostics = value_loss(
                        self.learner.model(chosen),
                        old_values[part, :width],
                        returns[part, :width],
                        chosen.completion_mask,
                        clip=self.settings.clip,
                        denominator=denominator,
                    )
                    self.learner.micro_batch.backward(loss)
                    return diagnostics | {"value/loss": Sum(loss.detach())}

                figures, norm = self.learner.step(rows, backward)
                step_metrics.close_minibatch(*figures, {"value/grad_norm": Sum(norm)})
        return step_metrics.compute()

"""One step of PPO (arXiv 1707.06347): the step of `grpo.py` with advantages from a critic instead of from groups.

The critic estimates V(x, y_<t), the value before token t.
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
    """Training of one variant with one seed and a critic."""

    critic: "Critic"


def with_critic(run: Run, critic: "Critic") -> PpoRun:
    """Return the run extended by its critic."""
    return PpoRun(**vars(run), critic=critic)


def step(run: PpoRun, number: int) -> dict[str, float]:
    """Sample responses, reward them and update critic and policy; return the step's metrics."""
    update = run.config.update
    for learner in (run.actor.learner, run.critic.learner):
        learner.warm_up(number, update.warmup_steps)
    rollout = sample_rollout(run)
    sequences = rollout.sequences

    # Advantages use the critic's values from before it learns from these responses.
    rewards = rollout.rewards if rollout.token_rewards is None else rollout.token_rewards  # (N,), or (N, T)
    estimate = run.critic.estimate(sequences, rewards)

    # The critic has its own generator, so that the policy's minibatches are the same without a critic.
    metrics = run.critic.learn(sequences, estimate, update=update, generator=run.generators.critic_minibatches)

    # The policy is updated as in GRPO; only the advantages differ.
    return rollout.metrics | metrics | update_policy(run, rollout, estimate.advantages)


def build_critic(folder: Path, placement: Placement, memory_settings: Memory, seed: int | None) -> ValueModel:
    """Return a value model with a new head on the body of the policy in `folder`."""

    def make() -> ValueModel:
        return ValueModel.from_causal(folder, placement, sees_token=False).with_adapters(memory_settings, seed)

    return placement.shard(placement.ranks.build(make))


def new_critic(
    stage: Stage, settings: Settings, update: UpdateSettings, policy: Path, placement: Placement
) -> "Critic":
    """Return a critic with the body of the policy in the folder `policy`, ready to learn."""
    model = build_critic(policy, placement, stage.config.memory, stage.seed)
    return Critic(learner_of(stage, model, settings.lr, update), settings)


class Estimate(NamedTuple):
    """Whitened advantages, returns and values, (N, T) each, on the critic's device."""

    advantages: Tensor
    returns: Tensor
    values: Tensor


@dataclass(frozen=True)
class Critic:
    """Value model with its optimiser and settings."""

    learner: Learner
    settings: Settings

    @torch.no_grad()
    def estimate(self, sequences: Sequences, rewards: Tensor) -> Estimate:
        """Return the GAE estimate for rewards on the CPU, of whole responses (N,) or of tokens (N, T)."""
        settings, mask = self.settings, sequences.completion_mask

        def evaluate(rows: Tensor) -> Tensor:
            values = self.learner.model(sequences.select(rows))
            return nn.functional.pad(values, (0, mask.shape[1] - values.shape[1]))

        values = torch.cat(self.learner.micro_batch.run(torch.arange(len(sequences)), evaluate))

        # The reward of a whole response belongs to its last token; GAE distributes it over earlier tokens.
        if rewards.dim() == 1:
            rewards = add_to_last_token(rewards.new_zeros(mask.shape), rewards, mask)
        advantages, returns = gae(rewards.to(values), values, mask, gamma=settings.gamma, lam=settings.lam)
        return Estimate(whiten(advantages, mask), returns, values)

    def learn(
        self, sequences: Sequences, estimate: Estimate, *, update: UpdateSettings, generator: torch.Generator
    ) -> dict[str, float]:
        """Fit the values to the returns in as many minibatches as the policy has; return the mean diagnostics."""
        step_metrics, (_, returns, old_values) = StepMetrics(), estimate
        with self.learner.training():
            for rows in minibatches(len(sequences), update, generator):
                # The whole minibatch counts, so that the gradients of its micro-batches add up to its own.
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

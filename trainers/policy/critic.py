"""PPO's critic: a copy of the policy's body with a value head; V(x, y_<t) is the value before token t."""

from pathlib import Path

import torch
from torch import Tensor, nn

from trainers.micro_batch import MicroBatch
from trainers.objectives.advantage_gae import gae, terminal_rewards, whiten
from trainers.objectives.aggregation import loss_units
from trainers.objectives.statistics import Diagnostics, Sum
from trainers.objectives.value_loss import value_loss
from trainers.policy.batch import Sequences
from trainers.policy.config import Critic as Settings
from trainers.policy.config import Update
from trainers.policy.minibatches import Averages, minibatches
from trainers.policy.placement import Placement
from trainers.policy.value_model import ValueModel


def build_critic(folder: Path, placement: Placement) -> ValueModel:
    """Return the critic of the policy in `folder`."""
    return ValueModel.from_causal(folder, placement, sees_token=False)


@torch.no_grad()
def estimate(
    critic: ValueModel, sequences: Sequences, rewards: Tensor, settings: Settings, memory: MicroBatch
) -> tuple[Tensor, Tensor, Tensor]:
    """Return advantages, returns and the values that they are based on, each (N, T).

    rewards: of responses (N,), or of tokens (N, T).
    """
    width = sequences.mask.shape[1]

    def evaluate(rows: Tensor) -> Tensor:
        values = critic(sequences.select(rows))
        return nn.functional.pad(values, (0, width - values.shape[1]))

    values = torch.cat(memory.run(torch.arange(len(sequences)), evaluate))
    rewards = rewards.to(values)
    tokens = terminal_rewards(rewards, sequences.mask) if rewards.dim() == 1 else rewards
    advantages, returns = gae(tokens, values, sequences.mask, gamma=settings.gamma, lam=settings.lam)
    return (whiten(advantages, sequences.mask) if settings.whiten else advantages), returns, values


def update_critic(
    critic: ValueModel,
    optimizer: torch.optim.Optimizer,
    sequences: Sequences,
    returns: Tensor,
    old_values: Tensor,
    *,
    settings: Settings,
    update: Update,
    generator: torch.Generator,
    memory: MicroBatch,
) -> dict[str, float]:
    """Fit the values to the returns over the same minibatches as the policy's; return the means of the diagnostics."""
    averages = Averages()
    critic.train()  # activation checkpointing is active in training mode only; dropout is off
    for rows in minibatches(len(sequences), update, generator):
        units = loss_units(sequences.mask[rows], "token_mean")

        def backward(part: Tensor, units: float = units) -> Diagnostics:
            chosen = sequences.select(part)
            width = chosen.mask.shape[1]
            loss, diagnostics = value_loss(
                critic(chosen),
                old_values[part, :width],
                returns[part, :width],
                chosen.mask,
                clip=settings.clip,
                units=units,
            )
            loss.backward()
            return diagnostics | {"value/loss": Sum(loss.detach())}

        for part in memory.run(rows, backward, lambda: optimizer.zero_grad(set_to_none=True)):
            averages.add(part)
        norm = nn.utils.clip_grad_norm_(critic.parameters(), update.max_grad_norm)
        averages.add({"value/grad_norm": Sum(norm)})
        averages.close_minibatch()
        optimizer.step()
    critic.eval()
    return averages.means()

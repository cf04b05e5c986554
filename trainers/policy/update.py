"""Updates of the policy on one step's responses: epochs of minibatches, each possibly in micro-batches."""

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from trainers.micro_batch import MicroBatch
from trainers.objectives.aggregation import aggregate, loss_units
from trainers.objectives.kl import k3
from trainers.objectives.statistics import Diagnostics, Mean, Sum
from trainers.policy.batch import Sequences, batched_logps, token_logps
from trainers.policy.config import Update
from trainers.policy.minibatches import Averages, minibatches
from trainers.policy.objective import Objective
from trainers.policy.placement import Placement


@dataclass(frozen=True)
class Batch:
    """N responses with advantages (N,) or (N, T), log-probabilities (N, T) before the update, and the reference's.

    `needed`: (N,), true where a response has a term in the loss; None: everywhere. The others are not forwarded.
    """

    sequences: Sequences
    advantages: Tensor
    old_logps: Tensor
    reference_logps: Tensor | None
    needed: Tensor | None = None

    def select(self, rows: Tensor) -> "Batch":
        """Return the rows, without columns that are padding in all of them."""
        sequences = self.sequences.select(rows)
        width = sequences.mask.shape[1]
        per_token = self.advantages.dim() == 2
        return Batch(
            sequences,
            self.advantages[rows, :width] if per_token else self.advantages[rows],
            self.old_logps[rows, :width],
            None if self.reference_logps is None else self.reference_logps[rows, :width],
            None if self.needed is None else self.needed[rows],
        )


def with_advantage(advantages: Tensor) -> Tensor:
    """Return where the responses of advantages (N,) or (N, T) have one that is not 0: (N,), bool."""
    return (advantages != 0).view(len(advantages), -1).any(1)


def prepare(
    policy: nn.Module,
    reference: nn.Module | None,
    sequences: Sequences,
    advantages: Tensor,
    *,
    temperature: float,
    recompute_logps: bool,
    update: Update,
    placement: Placement,
    memory: MicroBatch | None = None,
) -> Batch:
    """Return what the update needs of all responses.

    A response without advantage has no policy term, but its KL and its entropy count (seed 004): only where there is
    neither can `drop_zero_advantage` leave it out.
    memory: keeps the size of the micro-batches between steps; by default `update.micro_batch`, anew.
    """
    memory = memory or MicroBatch(update.micro_batch)
    needed = None
    if update.drop_zero_advantage and reference is None and update.entropy_coef == 0:
        needed = with_advantage(advantages).to(sequences.mask.device)
    old_logps = sequences.logps
    if recompute_logps or old_logps is None:
        with placement.autocast(placement.policy):
            old_logps = _logps_of(policy, sequences, needed, temperature, memory)
    reference_logps = None
    if reference is not None:
        with placement.autocast(placement.reference):
            there = sequences.to(placement.reference)
            reference_logps = batched_logps(reference, there, temperature, memory)
        reference_logps = reference_logps.to(placement.policy)
    return Batch(sequences, advantages.to(placement.policy), old_logps, reference_logps, needed)


def _logps_of(
    policy: nn.Module, sequences: Sequences, needed: Tensor | None, temperature: float, memory: MicroBatch
) -> Tensor:
    """Return the log-probabilities (N, T) of the responses that are needed (None: of all), 0 of the others."""
    if needed is None:
        return batched_logps(policy, sequences, temperature, memory)
    logps = torch.zeros(sequences.mask.shape, device=sequences.mask.device)
    if needed.any():
        found = batched_logps(policy, sequences.select(needed.nonzero()[:, 0]), temperature, memory)
        logps = logps.to(found.dtype)
        logps[needed, : found.shape[1]] = found
    return logps


def update_policy(
    policy: nn.Module,
    optimizer: torch.optim.Optimizer,
    objective: Objective,
    batch: Batch,
    *,
    update: Update,
    temperature: float,
    kl_coef: float,
    placement: Placement,
    generator: torch.Generator,
    memory: MicroBatch | None = None,
) -> dict[str, float]:
    """Minimise policy loss + kl_coef * KL - entropy_coef * entropy; return the step's losses and diagnostics.

    Losses of micro-batches are divided by the tokens or responses of their minibatch, so that accumulation does not
    change the gradient; those that are not needed count too, so that leaving them out does not change it either.
    memory: keeps the size of the micro-batches between steps; by default `update.micro_batch`, anew.
    """
    averages, memory = Averages(), memory or MicroBatch(update.micro_batch)
    policy.train()  # activation checkpointing is active in training mode only; dropout is off

    def backward(part: Batch, units: float) -> Diagnostics:
        """Add the gradient of some responses; return the parts of the losses and the diagnostics."""
        mask = part.sequences.mask
        with placement.autocast(placement.policy):
            logps, entropy = token_logps(policy, part.sequences, temperature)
        policy_loss, diagnostics = objective(logps, part.old_logps, part.advantages, mask, units=units)
        entropy_loss = -update.entropy_coef * aggregate(entropy, mask, update.aggregation, units=units)
        losses = {"policy/loss": policy_loss, "policy/entropy_loss": entropy_loss}
        diagnostics["policy/entropy"] = Mean.of(entropy, mask)
        if part.reference_logps is not None:
            divergence = k3(logps, part.reference_logps)
            losses["policy/kl_loss"] = kl_coef * aggregate(divergence, mask, update.aggregation, units=units)
            diagnostics["kl/divergence"] = Mean.of(divergence, mask)
        sum(losses.values()).backward()
        return diagnostics | {name: Sum(loss.detach()) for name, loss in losses.items()}

    for everything in minibatches(len(batch.sequences), update, generator):
        units = loss_units(batch.sequences.mask[everything], update.aggregation)
        rows = everything if batch.needed is None else everything[batch.needed.cpu()[everything]]

        def work(part: Tensor, units: float = units) -> Diagnostics:
            return backward(batch.select(part), units)

        for part in memory.run(rows, work, lambda: optimizer.zero_grad(set_to_none=True)):
            averages.add(part)
        if len(rows) == 0:
            _zero_gradients(policy)
        norm = nn.utils.clip_grad_norm_(policy.parameters(), update.max_grad_norm)
        # A loss of 0 is added for the minibatch in which no response is needed.
        averages.add({"policy/grad_norm": Sum(norm), "policy/loss": Sum(norm.new_zeros(()))})
        averages.close_minibatch()
        optimizer.step()
    policy.eval()
    return averages.means()


def _zero_gradients(policy: nn.Module) -> None:
    """Set all gradients to 0, not None: AdamW goes on with its momentum where no response adds to the loss."""
    for parameter in policy.parameters():
        if parameter.requires_grad:
            parameter.grad = torch.zeros_like(parameter)

"""The policy that learns: its objective, what its loss needs of a step's responses, and epochs of minibatches."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial, reduce
from typing import Any, Literal

import torch
from torch import Tensor, nn

from trainers.objectives.aggregation import Aggregation, aggregate, loss_units, masked_mean
from trainers.objectives.diagnostics import Diagnostics, Mean, Sum
from trainers.objectives.losses import ESTIMATORS, policy_loss
from trainers.policy.batch import Sequences, batched_logps, token_logps
from trainers.policy.config import ClipRange, PolicyConfig, UpdateOf
from trainers.policy.learner import Averages, Learner, minibatches
from trainers.policy.models import Placement

Objective = Callable[..., tuple[Tensor, Diagnostics]]


def build_objective(parts: Mapping[str, Any], config: PolicyConfig) -> Objective:
    """Return `policy_loss` with the variant's parts; call it with logps, old_logps, advantages, mask and `units`."""

    def with_settings(*names: str) -> list[Callable[..., Any]]:
        return [partial(parts[name], **getattr(config, name).model_dump()) for name in names if name in parts]

    return partial(
        policy_loss,
        ratio=parts["ratio"],
        transforms=with_settings("ema_smoothing") + [parts[name] for name in ("one_ratio",) if name in parts],
        weights=with_settings("gradient_adaptive", "temporal_decay"),
        surrogate=partial(parts["surrogate"], **config.surrogate.model_dump(exclude={"kind"})),
        weight_on=config.weight_on,
        aggregation=config.update.aggregation,
    )


def clipped_objective(formulas: Any, clip: ClipRange, aggregation: Aggregation) -> Objective:
    """Return `policy_loss` with a ratio and PPO's clipping, and nothing else of what `build_objective` may add."""
    surrogate = partial(formulas.clip, **clip.model_dump())
    return partial(policy_loss, ratio=formulas.ratio, surrogate=surrogate, aggregation=aggregation)


@dataclass(frozen=True)
class Batch:
    """N responses with advantages (N,) or (N, T), log-probabilities (N, T) before the update, and the reference's.

    `needed`: (N,), true where a response has a term in the loss; None: everywhere. The others have no backward pass.
    """

    sequences: Sequences
    advantages: Tensor
    old_logps: Tensor
    reference_logps: Tensor | None
    needed: Tensor | None = None

    def select(self, rows: Tensor) -> "Batch":
        """Return the rows, without columns that are padding in all of them."""
        rows = rows.to(self.sequences.mask.device)
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


@dataclass(frozen=True)
class Actor:
    """A policy with its optimiser, and what its loss is made of: objective, KL to the reference, entropy bonus.

    temperature: of sampling, and so of all log-probabilities. recompute_logps: take the old log-probabilities from a
    forward pass before the update, not from the sampler. reference: None: there is no KL. kl_per_response: the loss has
    the sum over a response's tokens, not their mean.
    """

    learner: Learner
    objective: Objective
    update: UpdateOf
    placement: Placement
    reference: nn.Module | None = None
    temperature: float = 1.0
    recompute_logps: bool = False
    kl_estimator: str = "k3"
    kl_per_response: bool = False

    def batch(self, sequences: Sequences, advantages: Tensor) -> Batch:
        """Return what the update needs of all responses, with advantages (N,) or (N, T).

        A response without advantage has no policy term, but its KL and its entropy count (GSPO notes): only where there
        is neither is it left out.
        """
        needed = None
        if self.reference is None and self.update.entropy_coef == 0:
            needed = with_advantage(advantages).to(sequences.mask.device)
        old_logps = sequences.logps
        if self.recompute_logps or old_logps is None:
            old_logps = self.logps(sequences)
        reference_logps = None if self.reference is None else self.logps(sequences, self.reference)
        return Batch(sequences, advantages.to(self.placement.device), old_logps, reference_logps, needed)

    def logps(self, sequences: Sequences, model: nn.Module | None = None) -> Tensor:
        """Return the log-probabilities (N, T) of the responses under the policy, or under another model."""
        model = self.learner.model if model is None else model
        with self.placement.autocast():
            return batched_logps(model, sequences, self.temperature, self.learner.memory)

    def learn(self, batch: Batch, *, kl_coef: float, generator: torch.Generator) -> dict[str, float]:
        """Minimise policy loss + kl_coef * KL - entropy_coef * entropy; return the step's losses and diagnostics.

        Losses of micro-batches are divided by the tokens or responses of their minibatch, so that accumulation does not
        change the gradient; those that are not needed count too, so that leaving them out does not change it either.
        """
        averages, aggregation = Averages(), self.update.aggregation
        with self.learner.training():
            for everything in minibatches(len(batch.sequences), self.update, generator):
                units = loss_units(batch.sequences.mask[everything], aggregation)
                rows, others = everything, everything[:0]
                if batch.needed is not None:
                    needed = batch.needed.cpu()[everything]
                    rows, others = everything[needed], everything[~needed]

                def backward(part: Tensor, units: float = units) -> Diagnostics:
                    losses, diagnostics = self._losses(batch.select(part), units, kl_coef)
                    self.learner.memory.backward(reduce(torch.add, losses.values()))
                    return diagnostics | {name: Sum(loss.detach()) for name, loss in losses.items()}

                @torch.no_grad()
                def look(part: Tensor, units: float = units) -> Diagnostics:
                    return self._losses(batch.select(part), units, kl_coef)[1]

                # Entropy and ratios are of all responses, so that they do not depend on what is left out.
                looks = self.learner.memory.run(others, look) if len(others) else []
                parts, norm = self.learner.step(rows, backward)
                # Losses of 0 are added for the minibatch in which no response is needed.
                nothing = Sum(norm.new_zeros(()))
                whole = {"policy/grad_norm": Sum(norm), "policy/loss": nothing, "policy/entropy_loss": nothing}
                averages.close_minibatch(*looks, *parts, whole)
        return averages.means()

    def _losses(self, batch: Batch, units: float, kl_coef: float) -> tuple[dict[str, Tensor], Diagnostics]:
        """Return the parts of the loss of some responses, as shares of `units`, and diagnostics."""
        mask, update = batch.sequences.mask, self.update
        with self.placement.autocast():
            logps, entropy = token_logps(
                self.learner.model, batch.sequences, self.temperature, entropy_gradient=update.entropy_coef > 0
            )
        policy_loss, diagnostics = self.objective(logps, batch.old_logps, batch.advantages, mask, units=units)
        entropy_loss = -update.entropy_coef * aggregate(entropy, mask, update.aggregation, units=units)
        losses = {"policy/loss": policy_loss, "policy/entropy_loss": entropy_loss}
        diagnostics["policy/entropy"] = Mean.of(entropy, mask)
        if batch.reference_logps is not None:
            divergence = ESTIMATORS[self.kl_estimator](logps, batch.reference_logps)
            diagnostics["kl/divergence"] = Mean.of(divergence, mask)
            if self.kl_per_response:
                wholes = (divergence * mask).sum(1)
                diagnostics["kl/response"] = Mean.of(wholes)
                divergence = wholes[:, None].expand_as(divergence)
            losses["policy/kl_loss"] = kl_coef * aggregate(divergence, mask, update.aggregation, units=units)
        return losses, diagnostics


def with_advantage(advantages: Tensor) -> Tensor:
    """Return where the responses of advantages (N,) or (N, T) have one that is not 0: (N,), bool."""
    return (advantages != 0).view(len(advantages), -1).any(1)


# How far the sampler's log-probabilities are from the policy's: rounding, unless the sampler's weights, cache or
# precision differ. Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training".
COMPARED = 8  # responses, spread evenly over the step's, so over all prompts and over all processes that sample
# Nats. Between two ways through the same model float32 rounds to 1e-5, bfloat16 to 1e-2.
LIMITS: dict[str, float] = {"float32": 1e-3, "tf32": 0.02, "bfloat16": 0.05}  # TF32 has 3 bits more than bfloat16


def sampler_gap(actor: Actor, batch: Batch, sampled_in: Literal["float32", "tf32", "bfloat16"]) -> dict[str, float]:
    """Return `rollout/logp_gap`, nats, and what it may be, before the update.

    The gap is the mean over tokens of |log p of the sampler - log p of the policy|. Where the old log-probabilities
    were recomputed it is of all responses, else of `COMPARED` ones.
    """
    sequences, sampled = batch.sequences, batch.sequences.logps
    if sampled is None:
        raise ValueError("responses that nobody sampled have no log-probabilities to compare with")
    if actor.recompute_logps:
        gap = masked_mean((batch.old_logps - sampled).abs(), sequences.mask)
    else:
        some = sequences.select(_spread(len(sequences)).to(sequences.mask.device))
        assert some.logps is not None
        gap = masked_mean((actor.logps(some) - some.logps).abs(), some.mask)
    return {"rollout/logp_gap": gap.item(), "rollout/logp_gap_limit": LIMITS[sampled_in]}


def _spread(count: int) -> Tensor:
    """Return the numbers of `COMPARED` rows of `count`, evenly spread; of all where there are no more."""
    some = min(COMPARED, count)
    return torch.arange(some) * count // some

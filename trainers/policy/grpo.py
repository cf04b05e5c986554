"""A step of GRPO (arXiv 2402.03300) and of its variants, which the stage `reinforce` repeats: prompts to optimiser.

    rollout = sample_rollout(run)                     responses with rewards
    advantages = run.advantages(...)                  of each group
    update_policy(run, rollout, advantages)           old and reference log-probabilities, losses, AdamW

Shapes, here and in all that a step calls: B prompts with G responses each, N = B * G, those of a prompt side by side; P
tokens of the longest prompt, T of the longest response; V tokens in the vocabulary. A `completion_mask` (N, T) is 1 at
tokens. Log-probabilities are in nats, at the temperature of sampling.

`build.py` makes what a step works with; `parts.py` says which formulas a variant uses; PPO's step is in `ppo.py`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

import torch
from torch import Tensor, nn

from trainers.objectives.policy import (
    Aggregation,
    Diagnostics,
    Maximum,
    Mean,
    StepMetrics,
    Sum,
    Variance,
    VarianceReduction,
    adapt_coefficient,
    aggregate,
    group_metrics,
    k3,
    loss_denominator,
    masked_mean,
)
from trainers.policy.batch import Sequences
from trainers.policy.config import PolicyConfig, Reward, UpdateSettings
from trainers.policy.learner import Learner, batched_logps, minibatches, per_token_logps
from trainers.policy.models import Placement
from trainers.policy.responses import Sampler
from trainers.policy.text import token_lists
from trainers.running.state import State
from trainers.tasks.interface import Problem, Task, bucket, by_rule


@dataclass
class Progress:
    """State that a run carries from step to step, beside weights, optimisers and random generators."""

    kl_coef: float
    elapsed: float = 0.0  # seconds of all steps
    asked: int = 0  # prompts of all steps


@dataclass(frozen=True)
class Generators:
    """One for each purpose: a variant that draws more from one leaves the streams of the others unchanged."""

    prompts: torch.Generator
    sampling: torch.Generator
    minibatches: torch.Generator
    critic_minibatches: torch.Generator


@dataclass(frozen=True)
class Rollout:
    """N scored responses: rewards (N,) and correctness (N,) as 0 or 1, on the CPU, and means over all responses.

    correct: 0 if there is no answer. token_rewards: (N, T), which add up to the rewards; None if whole responses
    are rewarded.
    """

    sequences: Sequences
    rewards: Tensor
    correct: Tensor
    metrics: dict[str, float]
    token_rewards: Tensor | None = None


@dataclass(frozen=True)
class Run:
    """A training of one variant with one seed: models, formulas, random numbers, and where it stands."""

    config: PolicyConfig
    seed: int | None
    take_step: Callable[..., dict[str, float]]  # `step`, or that of ppo.py
    problems: list[Problem]
    sampler: Sampler
    rewards: "Rewards"
    actor: "Actor"
    advantages: Callable[[Tensor, int], Tensor] | None  # of rewards (N,) and G; None: a critic's
    token_advantages: Callable[..., Tensor] | None  # of rewards and mask (N, T), and G; None: responses are rewarded
    dynamic_sampling: Callable[[Callable[[], Rollout]], Rollout] | None  # of `sample_groups`
    generators: Generators
    progress: Progress
    state: State  # what a checkpoint holds of all this


def step(run: Run, number: int) -> dict[str, float]:
    """Sample, reward, update; return the step's metrics."""
    run.actor.learner.warm_up(number, run.config.update.warmup_steps)
    rollout = sample_rollout(run)

    # How much better a response is than the others to its prompt: (N,), or (N, T) where tokens are rewarded.
    group_size = run.config.rollout.group_size
    if rollout.token_rewards is None:
        assert run.advantages is not None
        advantages = run.advantages(rollout.rewards, group_size)
    else:
        assert run.token_advantages is not None
        mask, scale = rollout.sequences.completion_mask.cpu(), run.config.advantage.kind == "normalized"
        advantages = run.token_advantages(rollout.token_rewards, mask, group_size, scale=scale)

    return rollout.metrics | update_policy(run, rollout, advantages)


def sample_rollout(run: Run) -> Rollout:
    """Return N responses to learn from; with dynamic sampling only groups that have right and wrong answers."""
    started, resample = time.monotonic(), run.dynamic_sampling
    rollout = sample_groups(run) if resample is None else resample(lambda: sample_groups(run))
    rollout.metrics["time/sampling_s"] = time.monotonic() - started
    return rollout


def sample_groups(run: Run) -> Rollout:
    """Sample G responses to each of B problems with the policy as it is now, and reward them."""
    problems, group_size = next_problems(run), run.config.rollout.group_size  # B
    sequences, texts = run.sampler.responses(problems, group_size=group_size, generator=run.generators.sampling)
    rollout = run.rewards.score([each for each in problems for _ in range(group_size)], sequences, texts)

    # A group whose rewards are all equal teaches nothing, and a response that was cut has no answer: both are logged.
    metrics = {name: value.item() for name, value in group_metrics(rollout.rewards, group_size).items()}
    metrics["response/length"] = sequences.lengths.float().mean().item()
    metrics["response/ended"] = sequences.ended(run.rewards.eos).float().mean().item()
    if all(problem.answer for problem in problems):
        metrics["reward/accuracy"] = rollout.correct.mean().item()
    return replace(rollout, metrics=rollout.metrics | metrics)


def next_problems(run: Run) -> list[Problem]:
    """Return the B problems of the next rollout."""
    rollout, total = run.config.rollout, len(run.problems)
    count = rollout.responses // rollout.group_size
    if rollout.order == "drawn":
        rows = draw(total, count, run.generators.prompts)
    else:
        rows = in_passes(total, run.progress.asked, count, run.seed)
    run.progress.asked += count
    return [run.problems[row] for row in rows]


def update_policy(run: Run, rollout: Rollout, advantages: Tensor) -> dict[str, float]:
    """Update the policy on all responses, with advantages (N,) or (N, T); adapt the coefficient of the KL."""
    config, progress, actor = run.config, run.progress, run.actor

    # Padding has no advantage, so token advantages are averaged over the tokens.
    per_token = advantages.dim() == 2
    mask = rollout.sequences.completion_mask.to(advantages.device) if per_token else torch.ones_like(advantages)
    metrics = {
        "advantage/mean": masked_mean(advantages, mask).item(),
        "advantage/mean_abs": masked_mean(advantages.abs(), mask).item(),
        "update/used_responses": with_advantage(advantages).float().mean().item(),
        "kl/coef": progress.kl_coef,
    }

    # The old and the reference log-probabilities are those before the first minibatch of this step.
    batch = actor.batch(rollout.sequences, advantages)
    metrics |= sampler_gap(actor, batch, config.precision.compute)
    metrics |= actor.learn(batch, kl_coef=progress.kl_coef, generator=run.generators.minibatches)

    # Adaptive: the next step weighs the KL more if this one went too far from the reference, and less if not far.
    divergence = metrics.get("kl/response" if config.kl.per == "response" else "kl/divergence")
    if config.kl.adaptive and divergence is not None:
        progress.kl_coef = adapt_coefficient(progress.kl_coef, divergence, target=config.kl.target)
    return metrics


@dataclass(frozen=True)
class Rewards:
    """Rewards of a training's responses: the task's rule, and what the settings add to it.

    model: of N prompts and their responses, rewards (N,). token_model: of sequences, their prompts and the
    end-of-sequence token, rewards (N, T); in place of `model`. function: of the user, called as TRL calls one.
    overlong_penalty: of lengths (N,), what is added, 0 or less.
    """

    task: Task
    settings: Reward
    placement: Placement
    eos: int  # the policy's
    model: Callable[[Sequence[str], Sequence[str]], Tensor] | None = None
    token_model: Callable[[Sequences, Sequence[str], int], Tensor] | None = None
    function: Callable[..., Sequence[float]] | None = None
    overlong_penalty: Callable[[Tensor], Tensor] | None = None

    def score(self, problems: Sequence[Problem], sequences: Sequences, texts: Sequence[str]) -> Rollout:
        """Return N responses with their rewards; response i answers problem i. All ranks use those of rank 0."""
        prompts = [problem.prompt for problem in problems]
        rewards, correct, metrics = torch.zeros(len(problems)), torch.zeros(len(problems)), {}

        # The task's rule, where all problems have an answer; a response that did not end has none.
        if all(problem.answer for problem in problems):
            ended = sequences.ended(self.eos).tolist()
            rule, correct = map(torch.tensor, by_rule(self.task, problems, texts, ended))
            rewards, metrics["reward/rule"] = self.settings.rule * rule, rule.mean().item()

        # What the user's function adds.
        if self.function is not None:
            ids = token_lists(sequences.completion_ids, sequences.completion_mask)
            added = by_function(self.function, problems, texts, ids)
            rewards, metrics["reward/function"] = rewards + added, added.mean().item()

        # What a reward model adds: of whole responses, or of each token.
        token_rewards = modelled = None
        if self.token_model is not None:
            modelled_tokens = self.token_model(sequences, prompts, self.eos)  # (N, T)
            modelled, token_rewards = modelled_tokens.sum(1), self.settings.model * modelled_tokens
        elif self.model is not None:
            modelled = self.model(prompts, texts)
        if modelled is not None:
            rewards, metrics["reward/model"] = rewards + self.settings.model * modelled, modelled.mean().item()

        # DAPO takes off a little for a response that comes near the limit.
        if self.overlong_penalty is not None:
            penalty = self.overlong_penalty(sequences.lengths.cpu())
            rewards, metrics["reward/overlong_penalty"] = rewards + penalty, penalty.mean().item()

        # Rewards of tokens add up to the response's: what is of the whole response is given at its last token.
        if token_rewards is not None:
            rest = rewards - token_rewards.sum(1)
            token_rewards = add_to_last_token(token_rewards, rest, sequences.completion_mask)
        return Rollout(sequences, *self.placement.ranks.same((rewards, correct, metrics, token_rewards)))


def by_function(
    function: Callable[..., Sequence[float]],
    problems: Sequence[Problem],
    responses: Sequence[str],
    completion_ids: Sequence[Sequence[int]],
) -> Tensor:
    """Return the rewards (N,) by a function that is called as TRL calls one.

    Raises ValueError if it returns another number of rewards, or something that is not a number for a response.
    """
    prompts, answer = [problem.prompt for problem in problems], [problem.answer for problem in problems]
    returned = function(prompts=prompts, completions=list(responses), completion_ids=completion_ids, answer=answer)
    rewards = [] if returned is None else list(returned)
    if len(rewards) != len(problems):
        raise ValueError(
            f"reward.function returned {len(rewards)} rewards for {len(problems)} responses; return one for each"
        )
    for at, reward in enumerate(rewards):
        try:
            float(reward)
        except (TypeError, ValueError):
            said = f"reward.function returned {reward!r} for response {at + 1} of {len(rewards)}"
            raise ValueError(f"{said}; return a number for each response, 0.0 if the reward does not apply") from None
    return torch.tensor(rewards, dtype=torch.float32)


def add_to_last_token(token_rewards: Tensor, response_rewards: Tensor, completion_mask: Tensor) -> Tensor:
    """Return the rewards (N, T) of tokens with those of responses (N,) added at each one's last token."""
    last = completion_mask.cpu().sum(1).clamp(min=1) - 1
    return token_rewards.scatter_add(1, last[:, None], response_rewards[:, None].to(token_rewards))


@dataclass(frozen=True)
class Objective:
    """The policy loss of a variant: its formulas, with their settings. None: the variant does without.

    All are of shape (N, T); `completion_mask` is the mask. Those with a star also return diagnostics.
    """

    ratio: Callable[[Tensor, Tensor, Tensor], Tensor]  # of logps, old logps, mask: the importance ratio
    surrogate: Callable[..., tuple[Tensor, Diagnostics]]  # * of ratio, advantages, mask: the loss of a token
    ema_smoothing: Callable[..., tuple[Tensor, Diagnostics]] | None = None  # * of ratio, mask (2.1)
    sequence_ratio: Callable[..., tuple[Tensor, Diagnostics]] | None = None  # * of ratio, mask: one per response (2.3)
    gradient_adaptive: Callable[..., tuple[Tensor, Diagnostics]] | None = None  # * of logps, mask: weights (2.2)
    temporal_decay: Callable[..., tuple[Tensor, Diagnostics]] | None = None  # * of logps, mask: weights (2.5)
    response_mean: Callable[..., tuple[Tensor, Diagnostics]] | None = None  # * of weighted ratio, mask: their mean
    weight_on: Literal["advantage", "ratio", "response_ratio"] = "advantage"  # what weights multiply; before clipping
    aggregation: Aggregation = "sequence_mean"  # how tokens become one number

    def __call__(
        self,
        logps: Tensor,
        old_logps: Tensor,
        advantages: Tensor,
        completion_mask: Tensor,
        *,
        denominator: float | None = None,
    ) -> tuple[Tensor, Diagnostics]:
        """Return the loss to minimise (a scalar with gradient) and diagnostics that join with those of other parts.

        logps, old_logps: (N, T), under the policy now and, without gradient, before the update.
        advantages: (N,) or (N, T). denominator: of the minibatch of which this batch is a part; see `aggregate`.

        Diagnostics of every variant: `ratio/mean`, `ratio/max`; `ratio/token_variance` (of w_t), `ratio/used_variance`
        (of what the surrogate gets) and `ratio/variance_reduction` = 1 - used / token (undefined while w is 1
        everywhere); `policy/approx_kl`, the mean of old_logps - logps (the k1 estimator of KL(old || new)).
        """
        mask = completion_mask
        diagnostics: Diagnostics = {}
        advantages = advantages[:, None].expand_as(logps) if advantages.dim() == 1 else advantages

        # How much likelier each token, or its whole response, has become since it was sampled.
        ratio = self.ratio(logps, old_logps, mask)
        for transform in filter(None, (self.ema_smoothing, self.sequence_ratio)):
            ratio, figures = transform(ratio, mask)
            diagnostics |= figures

        # Weights of tokens. They have no gradient: the policy must not learn to move the weights.
        for weigh in filter(None, (self.gradient_adaptive, self.temporal_decay)):
            weights, figures = weigh(logps, mask)
            diagnostics |= figures
            if self.weight_on == "advantage":
                advantages = advantages * weights.detach()
            else:
                ratio = ratio * weights.detach()

        # In place of its tokens' ratios a response gets their weighted mean.
        if self.response_mean is not None:
            ratio, _ = self.response_mean(ratio, mask)

        # What the innovations claim to lower is the variance of the ratio: before all of this, and as it is used.
        token_variance, used_variance = (Variance.of(each, mask) for each in ((logps - old_logps).exp(), ratio))
        diagnostics |= {
            "ratio/mean": Mean.of(ratio, mask),
            "ratio/max": Maximum.of(ratio, mask),
            "ratio/token_variance": token_variance,
            "ratio/used_variance": used_variance,
            "ratio/variance_reduction": VarianceReduction(token_variance, used_variance),
            "policy/approx_kl": Mean.of(old_logps - logps, mask),
        }

        # The surrogate clips, or weighs down, what has moved too far from the old policy.
        losses, figures = self.surrogate(ratio, advantages, mask)
        return aggregate(losses, mask, self.aggregation, denominator=denominator), diagnostics | figures


@dataclass(frozen=True)
class Batch:
    """N responses with advantages (N,) or (N, T), log-probabilities (N, T) before the update, and the reference's.

    `needed`: (N,), true where a response has a term in the loss; None: everywhere. The others have no backward pass.
    """

    sequences: Sequences
    advantages: Tensor
    old_per_token_logps: Tensor
    ref_per_token_logps: Tensor | None
    needed: Tensor | None = None

    def select(self, rows: Tensor) -> "Batch":
        """Return the rows, without columns that are padding in all of them."""
        rows = rows.to(self.sequences.completion_mask.device)
        sequences = self.sequences.select(rows)
        width = sequences.completion_mask.shape[1]
        per_token = self.advantages.dim() == 2
        return Batch(
            sequences,
            self.advantages[rows, :width] if per_token else self.advantages[rows],
            self.old_per_token_logps[rows, :width],
            None if self.ref_per_token_logps is None else self.ref_per_token_logps[rows, :width],
            None if self.needed is None else self.needed[rows],
        )


@dataclass(frozen=True)
class Actor:
    """A policy with its optimiser, and what its loss is made of: objective, KL to the reference, entropy bonus.

    temperature: of sampling, and so of all log-probabilities. recompute_logps: take the old log-probabilities from a
    forward pass before the update, not from the sampler. reference: None: there is no KL. kl: its estimate (N, T), of
    log-probabilities and the reference's. kl_per_response: each token's KL is the sum over its response's tokens.
    """

    learner: Learner
    objective: Objective
    update: UpdateSettings
    placement: Placement
    kl: Callable[[Tensor, Tensor], Tensor] = k3
    reference: nn.Module | None = None
    temperature: float = 1.0
    recompute_logps: bool = False
    kl_per_response: bool = False

    def batch(self, sequences: Sequences, advantages: Tensor) -> Batch:
        """Return what the update needs of all responses, with advantages (N,) or (N, T).

        A response without advantage has no policy term, but its KL and its entropy count (GSPO notes): only where there
        is neither is it left out.
        """
        needed = None  # all
        if self.reference is None and self.update.entropy_coef == 0:
            needed = with_advantage(advantages).to(sequences.completion_mask.device)

        # The sampler's own log-probabilities are the old ones, unless it computes in another way than the update.
        old_logps = sequences.logps
        if self.recompute_logps or old_logps is None:
            old_logps = self.logps(sequences)
        ref_logps = None if self.reference is None else self.logps(sequences, self.reference)
        return Batch(sequences, advantages.to(self.placement.device), old_logps, ref_logps, needed)

    def logps(self, sequences: Sequences, model: nn.Module | None = None) -> Tensor:
        """Return the log-probabilities (N, T) of the responses under the policy, or under another model."""
        model = self.learner.model if model is None else model
        with self.placement.autocast():
            return batched_logps(model, sequences, self.temperature, self.learner.micro_batch)

    def learn(self, batch: Batch, *, kl_coef: float, generator: torch.Generator) -> dict[str, float]:
        """Minimise policy loss + kl_coef * KL - entropy_coef * entropy; return the step's losses and diagnostics.

        Losses of micro-batches are divided by the tokens or responses of their minibatch, so that accumulation does not
        change the gradient; those that are not needed count too, so that leaving them out does not change it either.
        """
        step_metrics = StepMetrics()
        with self.learner.training():
            for minibatch in minibatches(len(batch.sequences), self.update, generator):
                denominator = loss_denominator(batch.sequences.completion_mask[minibatch], self.update.aggregation)

                # Only responses with a gradient go through the backward pass; the others are only measured.
                learnt, measured = minibatch, minibatch[:0]
                if batch.needed is not None:
                    needed = batch.needed.cpu()[minibatch]
                    learnt, measured = minibatch[needed], minibatch[~needed]

                def backward(rows: Tensor, denominator: float = denominator) -> Diagnostics:
                    losses, diagnostics = self.losses(batch.select(rows), denominator, kl_coef)
                    self.learner.micro_batch.backward(reduce(torch.add, losses.values()))
                    return diagnostics | {name: Sum(loss.detach()) for name, loss in losses.items()}

                @torch.no_grad()
                def measure(rows: Tensor, denominator: float = denominator) -> Diagnostics:
                    return self.losses(batch.select(rows), denominator, kl_coef)[1]

                # Entropy and ratios are of all responses, so that they do not depend on what is left out.
                figures = self.learner.micro_batch.run(measured, measure) if len(measured) else []
                learnt_figures, norm = self.learner.step(learnt, backward)

                # Losses of 0 are added for the minibatch in which no response is needed.
                nothing = Sum(norm.new_zeros(()))
                totals = {"policy/grad_norm": Sum(norm), "policy/loss": nothing, "policy/entropy_loss": nothing}
                step_metrics.close_minibatch(*figures, *learnt_figures, totals)
        return step_metrics.compute()

    def losses(self, batch: Batch, denominator: float, kl_coef: float) -> tuple[dict[str, Tensor], Diagnostics]:
        """Return the parts of the loss of some responses, over their minibatch's `denominator`, and diagnostics."""
        mask, update = batch.sequences.completion_mask, self.update

        # One forward pass gives all that the losses need.
        with self.placement.autocast():
            logps, entropy = per_token_logps(  # (N, T) each
                self.learner.model, batch.sequences, self.temperature, entropy_gradient=update.entropy_coef > 0
            )

        # The policy loss of the variant, and the entropy bonus as a loss.
        policy_loss, diagnostics = self.objective(
            logps, batch.old_per_token_logps, batch.advantages, mask, denominator=denominator
        )
        entropy_loss = -update.entropy_coef * aggregate(entropy, mask, update.aggregation, denominator=denominator)
        losses = {"policy/loss": policy_loss, "policy/entropy_loss": entropy_loss}
        diagnostics["policy/entropy"] = Mean.of(entropy, mask)

        # The KL to the reference keeps the policy near the model that it started from.
        if batch.ref_per_token_logps is not None:
            divergence = self.kl(logps, batch.ref_per_token_logps)  # (N, T)
            diagnostics["kl/divergence"] = Mean.of(divergence, mask)
            if self.kl_per_response:
                response_kl = (divergence * mask).sum(1)  # (N,)
                diagnostics["kl/response"] = Mean.of(response_kl)
                divergence = response_kl[:, None].expand_as(divergence)
            losses["policy/kl_loss"] = kl_coef * aggregate(
                divergence, mask, update.aggregation, denominator=denominator
            )
        return losses, diagnostics


def with_advantage(advantages: Tensor) -> Tensor:
    """Return a mask (N,) of the responses with an advantage that is not 0, from advantages (N,) or (N, T)."""
    return (advantages != 0).view(len(advantages), -1).any(1)


# How far the sampler's log-probabilities are from the policy's: rounding, unless the sampler's weights, cache or
# precision differ. Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training".
COMPARED = 8  # responses, at even distances over the step's, so over all prompts and over all processes that sample
# Nats. Between two ways through the same model float32 rounds to 1e-5, bfloat16 to 1e-2.
LIMITS: dict[str, float] = {"float32": 1e-3, "tf32": 0.02, "bfloat16": 0.05}  # TF32 has 3 bits more than bfloat16


def sampler_gap(actor: Actor, batch: Batch, sampled_in: Literal["float32", "tf32", "bfloat16"]) -> dict[str, float]:
    """Return `rollout/logp_gap`, in nats, and its bound before the update.

    The gap is the mean over tokens of |log p of the sampler - log p of the policy|. Where the old log-probabilities
    were recomputed it is of all responses, else of `COMPARED` ones.
    """
    sequences, sampled = batch.sequences, batch.sequences.logps
    if sampled is None:
        raise ValueError("responses that were not sampled have no log-probabilities to compare with")
    if actor.recompute_logps:
        gap = masked_mean((batch.old_per_token_logps - sampled).abs(), sequences.completion_mask)
    else:
        count = min(COMPARED, len(sequences))
        some = sequences.select(torch.arange(count) * len(sequences) // count)
        assert some.logps is not None
        gap = masked_mean((actor.logps(some) - some.logps).abs(), some.completion_mask)
    return {"rollout/logp_gap": gap.item(), "rollout/logp_gap_limit": LIMITS[sampled_in]}


def draw(problems: int, count: int, generator: torch.Generator) -> list[int]:
    """Return `count` numbers below `problems`; how often each is drawn differs by at most one."""
    rounds = [torch.randperm(problems, generator=generator) for _ in range(-(-count // problems))]
    return torch.cat(rounds)[:count].tolist()


def in_passes(problems: int, start: int, count: int, seed: int | None) -> list[int]:
    """Return the numbers `start` to `start + count` of epochs over `problems`, each in an order of its own."""
    first, last = start // problems, (start + count - 1) // problems
    orders = [
        torch.randperm(problems, generator=torch.Generator().manual_seed(bucket(f"pass {number} {seed}", 2**62)))
        for number in range(first, last + 1)
    ]
    return torch.cat(orders)[start - first * problems :][:count].tolist()

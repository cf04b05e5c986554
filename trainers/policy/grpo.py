"""One step of GRPO (arXiv 2402.03300) and its variants, from prompts to optimiser; the stage `reinforce` repeats it.

    rollout = sample_rollout(run)                     sample responses and reward them
    advantages = run.advantages(...)                  compare each response with its group
    update_policy(run, rollout, advantages)           old and reference log-probabilities, losses, AdamW

Shapes in this file and in everything a step calls: B prompts with G responses each, so N = B * G responses, stored
group by group; P tokens in the longest prompt, T in the longest response, V in the vocabulary. A `completion_mask`
(N, T) is 1 at tokens. Log-probabilities are in nats, at the sampling temperature.

`build.py` builds the `Run`; `parts.py` chooses the formulas of a variant; PPO's step is in `ppo.py`.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, reduce
from typing import Literal

import torch
from torch import Tensor, nn

from ablation.contract.numbers import counted
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
    """State of a run between steps, in addition to weights, optimisers and random generators."""

    kl_coef: float
    elapsed: float = 0.0  # seconds of all steps
    prompts: int = 0  # number of prompts of all steps


@dataclass(frozen=True)
class Generators:
    """Random generators, one per purpose, so that a variant that draws more from one does not change the others."""

    prompts: torch.Generator
    sampling: torch.Generator
    minibatches: torch.Generator
    critic_minibatches: torch.Generator


@dataclass(frozen=True)
class Rollout:
    """N sampled responses with rewards (N,) and correctness (N,), 0 or 1, both on the CPU, and their mean metrics.

    correct: 0 if the problem has no answer. token_rewards: (N, T), which add up to `rewards` over tokens; None if only
    whole responses are rewarded.
    """

    sequences: Sequences
    rewards: Tensor
    correct: Tensor
    metrics: dict[str, float]
    token_rewards: Tensor | None = None


@dataclass(frozen=True)
class Run:
    """Training of one variant with one seed: models, formulas, random generators and progress."""

    config: PolicyConfig
    seed: int | None
    take_step: Callable[..., dict[str, float]]  # `step`, or that of ppo.py
    problems: list[Problem]
    sampler: Sampler
    rewards: "Rewards"
    actor: "Actor"
    advantages: Callable[[Tensor, int], Tensor] | None  # from rewards (N,) and G; None: a critic estimates them
    token_advantages: Callable[..., Tensor] | None  # from token rewards and mask (N, T) and G; None: no token rewards
    dynamic_sampling: Callable[[Callable[[], Rollout]], Rollout] | None  # takes a function that samples one rollout
    generators: Generators
    progress: Progress
    state: State  # content of a checkpoint


def step(run: Run, number: int) -> dict[str, float]:
    """Sample responses, reward them and update the policy; return the step's metrics."""
    run.actor.learner.warm_up(number, run.config.update.warmup_steps)
    rollout = sample_rollout(run)

    # An advantage says how much better a response is than its group: (N,), or (N, T) if tokens are rewarded.
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
    """Return N rewarded responses; dynamic sampling prefers groups that have both right and wrong answers."""
    started, resample = time.monotonic(), run.dynamic_sampling
    rollout = sample_groups(run) if resample is None else resample(lambda: sample_groups(run))
    rollout.metrics["time/sampling_s"] = time.monotonic() - started
    return rollout


def sample_groups(run: Run) -> Rollout:
    """Sample G responses to each of B problems with the current policy, and reward them."""
    problems, group_size = next_problems(run), run.config.rollout.group_size  # B
    sequences, texts = run.sampler.responses(problems, group_size=group_size, generator=run.generators.sampling)
    rollout = run.rewards.score([problem for problem in problems for _ in range(group_size)], sequences, texts)

    # Nothing is learnt from a group with equal rewards, and a truncated response has no answer, so both are logged.
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
        rows = in_passes(total, run.progress.prompts, count, run.seed)
    run.progress.prompts += count
    return [run.problems[row] for row in rows]


def update_policy(run: Run, rollout: Rollout, advantages: Tensor) -> dict[str, float]:
    """Update the policy on all responses with advantages (N,) or (N, T), and adapt the KL coefficient."""
    config, progress, actor = run.config, run.progress, run.actor

    # Token advantages are averaged over tokens only, because padding has none.
    per_token = advantages.dim() == 2
    mask = rollout.sequences.completion_mask.to(advantages.device) if per_token else torch.ones_like(advantages)
    metrics = {
        "advantage/mean": masked_mean(advantages, mask).item(),
        "advantage/mean_abs": masked_mean(advantages.abs(), mask).item(),
        "update/used_responses": with_advantage(advantages).float().mean().item(),
        "kl/coef": progress.kl_coef,
    }

    # Old and reference log-probabilities are taken before the first minibatch of this step.
    batch = actor.batch(rollout.sequences, advantages)
    metrics |= sampler_gap(actor, batch, config.precision.compute)
    metrics |= actor.learn(batch, kl_coef=progress.kl_coef, generator=run.generators.minibatches)

    # The next step weighs the KL more if this step moved the policy too far from the reference, and less if it did not.
    divergence = metrics.get("kl/response" if config.kl.per == "response" else "kl/divergence")
    if config.kl.adaptive and divergence is not None:
        progress.kl_coef = adapt_coefficient(progress.kl_coef, divergence, target=config.kl.target)
    return metrics


@dataclass(frozen=True)
class Rewards:
    """Reward of a response: the weighted sum of the task's rule, a reward model and a user's function, minus a penalty.

    model: takes N prompts and their responses, returns rewards (N,). token_model: replaces `model`; takes sequences,
    their prompts and the end-of-sequence token, returns rewards (N, T). function: the user's, called as TRL calls
    reward functions. overlong_penalty: takes lengths (N,), returns numbers of at most 0 that are added to the rewards.
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
        """Return N responses with their rewards; response i answers problem i. All ranks use the rewards of rank 0."""
        prompts = [problem.prompt for problem in problems]
        rewards, correct, metrics = torch.zeros(len(problems)), torch.zeros(len(problems)), {}

        # The task's rule checks answers, so all problems must have one; a truncated response counts as empty.
        if all(problem.answer for problem in problems):
            ended = sequences.ended(self.eos).tolist()
            rule, correct = map(torch.tensor, by_rule(self.task, problems, texts, ended))
            rewards, metrics["reward/rule"] = self.settings.rule * rule, rule.mean().item()

        # The user's function can reward anything in prompts and responses.
        if self.function is not None:
            ids = token_lists(sequences.completion_ids, sequences.completion_mask)
            added = by_function(self.function, problems, texts, ids)
            rewards, metrics["reward/function"] = rewards + added, added.mean().item()

        # A reward model scores whole responses or single tokens.
        token_rewards = modelled = None
        if self.token_model is not None:
            modelled_tokens = self.token_model(sequences, prompts, self.eos)  # (N, T)
            modelled, token_rewards = modelled_tokens.sum(1), self.settings.model * modelled_tokens
        elif self.model is not None:
            modelled = self.model(prompts, texts)
        if modelled is not None:
            rewards, metrics["reward/model"] = rewards + self.settings.model * modelled, modelled.mean().item()

        # DAPO penalises responses that come close to the length limit.
        if self.overlong_penalty is not None:
            penalty = self.overlong_penalty(sequences.lengths.cpu())
            rewards, metrics["reward/overlong_penalty"] = rewards + penalty, penalty.mean().item()

        # Token rewards add up to the response's reward, so the last token gets the part that belongs to no token.
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
    """Return the rewards (N,) of a user's function, which is called with the arguments of TRL's reward functions.

    Raises ValueError if the function does not return one number per response.
    """
    prompts, answer = [problem.prompt for problem in problems], [problem.answer for problem in problems]
    returned = function(prompts=prompts, completions=list(responses), completion_ids=completion_ids, answer=answer)
    rewards = [] if returned is None else list(returned)
    if len(rewards) != len(problems):
        raise ValueError(
            f"reward.function returned {counted(len(rewards), 'reward')} for {counted(len(problems), 'response')}; "
            "return one reward per response"
        )
    for number, reward in enumerate(rewards, 1):
        try:
            float(reward)
        except (TypeError, ValueError):
            problem = f"reward.function returned {reward!r} for response {number} of {len(rewards)}"
            raise ValueError(
                f"{problem}; return a number for each response, such as 0.0 if the reward does not apply"
            ) from None
    return torch.tensor(rewards, dtype=torch.float32)


def add_to_last_token(token_rewards: Tensor, response_rewards: Tensor, completion_mask: Tensor) -> Tensor:
    """Return token rewards (N, T) with the rewards of whole responses (N,) added at the last token of each response."""
    last = completion_mask.cpu().sum(1).clamp(min=1) - 1
    return token_rewards.scatter_add(1, last[:, None], response_rewards[:, None].to(token_rewards))


@dataclass(frozen=True)
class Objective:
    """Policy loss of a variant: its formulas with their settings. A formula that the variant does not use is None.

    All arguments and results of the formulas are (N, T); `mask` is the completion mask.
    """

    ratio: Callable[[Tensor, Tensor, Tensor], Tensor]  # (logps, old logps, mask) -> importance ratio
    surrogate: Callable[..., tuple[Tensor, Diagnostics]]  # (ratio, advantages, mask) -> loss of each token
    ema_smoothing: Callable[..., tuple[Tensor, Diagnostics]] | None = None  # 2.1: (ratio, mask) -> ratio
    sequence_ratio: Callable[..., tuple[Tensor, Diagnostics]] | None = None  # 2.3: (ratio, mask) -> one per response
    gradient_adaptive: Callable[..., tuple[Tensor, Diagnostics]] | None = None  # 2.2: (logps, mask) -> weights
    temporal_decay: Callable[..., tuple[Tensor, Diagnostics]] | None = None  # 2.5: (logps, mask) -> weights
    response_mean: Callable[..., tuple[Tensor, Diagnostics]] | None = None  # (ratio, mask) -> mean per response
    weight_on: Literal["advantage", "ratio", "response_ratio"] = "advantage"  # what the weights multiply
    aggregation: Aggregation = "sequence_mean"  # how the losses of tokens are averaged

    def __call__(
        self, logps: Tensor, old_logps: Tensor, advantages: Tensor, mask: Tensor, *, denominator: float | None = None
    ) -> tuple[Tensor, Diagnostics]:
        """Return the loss to minimise (a scalar with gradient) and diagnostics, which can be joined over micro-batches.

        logps, old_logps: (N, T), under the current policy and, without gradient, before the update. advantages: (N,) or
        (N, T). denominator: number of tokens or responses by which sums are divided; see `aggregate`.
        docs/studies/metrics/policy.md defines the diagnostics.
        """
        diagnostics: Diagnostics = {}
        advantages = advantages[:, None].expand_as(logps) if advantages.dim() == 1 else advantages

        # The ratio says how much likelier each token, or its whole response, has become since it was sampled.
        ratio = self.ratio(logps, old_logps, mask)
        for transform in filter(None, (self.ema_smoothing, self.sequence_ratio)):
            ratio, figures = transform(ratio, mask)
            diagnostics |= figures

        # Token weights are detached, because the policy must not learn to change them.
        for weigh in filter(None, (self.gradient_adaptive, self.temporal_decay)):
            weights, figures = weigh(logps, mask)
            diagnostics |= figures
            if self.weight_on == "advantage":
                advantages = advantages * weights.detach()
            else:
                ratio = ratio * weights.detach()

        # The weighted mean of a response's token ratios can replace them.
        if self.response_mean is not None:
            ratio, _ = self.response_mean(ratio, mask)

        # The innovations claim to lower the variance of the ratio, so it is measured before and after them.
        token_variance = Variance.of((logps - old_logps).exp(), mask)
        used_variance = Variance.of(ratio, mask)
        diagnostics |= {
            "ratio/mean": Mean.of(ratio, mask),
            "ratio/max": Maximum.of(ratio, mask),
            "ratio/token_variance": token_variance,
            "ratio/used_variance": used_variance,
            "ratio/variance_reduction": VarianceReduction(token_variance, used_variance),
            "policy/approx_kl": Mean.of(old_logps - logps, mask),
        }

        # The surrogate clips or damps ratios that are too far from 1.
        losses, figures = self.surrogate(ratio, advantages, mask)
        return aggregate(losses, mask, self.aggregation, denominator=denominator), diagnostics | figures


@dataclass(frozen=True)
class Batch:
    """N responses with advantages (N,) or (N, T), and with old and reference log-probabilities (N, T)."""

    sequences: Sequences
    advantages: Tensor
    old_per_token_logps: Tensor
    ref_per_token_logps: Tensor | None

    def select(self, rows: Tensor) -> "Batch":
        """Return the rows with these numbers, without columns that are padding in all of them."""
        rows = rows.to(self.sequences.completion_mask.device)
        sequences = self.sequences.select(rows)
        width = sequences.completion_mask.shape[1]
        per_token = self.advantages.dim() == 2
        return Batch(
            sequences,
            self.advantages[rows, :width] if per_token else self.advantages[rows],
            self.old_per_token_logps[rows, :width],
            None if self.ref_per_token_logps is None else self.ref_per_token_logps[rows, :width],
        )


@dataclass(frozen=True)
class Actor:
    """Policy with its optimiser and the terms of its loss: objective, KL to the reference, entropy bonus.

    kl: takes log-probabilities and reference log-probabilities, returns KL estimates (N, T). reference: None if there
    is no KL. temperature: of sampling and of all log-probabilities. recompute_logps: whether a forward pass before the
    update computes the old log-probabilities; else they are the sampler's. kl_per_response: whether the KL is summed
    over a response's tokens.
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
        """Return all responses with their advantages, (N,) or (N, T), and old and reference log-probabilities."""
        # The sampler's log-probabilities are the old ones, unless the settings ask to recompute them.
        old_logps = sequences.logps
        if self.recompute_logps or old_logps is None:
            old_logps = self.logps(sequences)
        ref_logps = None if self.reference is None else self.logps(sequences, self.reference)
        return Batch(sequences, advantages.to(self.placement.device), old_logps, ref_logps)

    def logps(self, sequences: Sequences, model: nn.Module | None = None) -> Tensor:
        """Return the log-probabilities (N, T) of the responses under `model` (None: the policy)."""
        model = self.learner.model if model is None else model
        with self.placement.autocast():
            return batched_logps(model, sequences, self.temperature, self.learner.micro_batch)

    def learn(self, batch: Batch, *, kl_coef: float, generator: torch.Generator) -> dict[str, float]:
        """Minimise `policy loss + kl_coef * KL - entropy_coef * entropy`; return the step's losses and diagnostics.

        The loss of a micro-batch is divided by the number of tokens or responses in the whole minibatch, including
        responses without a gradient, so that neither accumulation nor leaving those out changes the gradient.
        """
        # A response without advantage has no policy term, but its KL and its entropy still count (GSPO notes).
        has_other_terms = batch.ref_per_token_logps is not None or self.update.entropy_coef != 0
        is_needed = with_advantage(batch.advantages).cpu() | has_other_terms

        step_metrics = StepMetrics()
        with self.learner.training():
            for minibatch in minibatches(len(batch.sequences), self.update, generator):
                denominator = loss_denominator(batch.sequences.completion_mask[minibatch], self.update.aggregation)

                # Responses without a gradient are measured but have no backward pass.
                needed = is_needed[minibatch]
                learnt, measured = minibatch[needed], minibatch[~needed]

                def backward(rows: Tensor, denominator: float = denominator) -> Diagnostics:
                    losses, diagnostics = self.losses(batch.select(rows), denominator, kl_coef)
                    self.learner.micro_batch.backward(reduce(torch.add, losses.values()))
                    return diagnostics | {name: Sum(loss.detach()) for name, loss in losses.items()}

                @torch.no_grad()
                def measure(rows: Tensor, denominator: float = denominator) -> Diagnostics:
                    return self.losses(batch.select(rows), denominator, kl_coef)[1]

                # Entropy and ratios are averaged over all responses, so both kinds add their diagnostics.
                figures = self.learner.micro_batch.run(measured, measure) if len(measured) else []
                learnt_figures, norm = self.learner.step(learnt, backward)

                # A minibatch without needed responses has losses of 0.
                zero = Sum(norm.new_zeros(()))
                totals = {"policy/grad_norm": Sum(norm), "policy/loss": zero, "policy/entropy_loss": zero}
                step_metrics.close_minibatch(*figures, *learnt_figures, totals)
        return step_metrics.compute()

    def losses(self, batch: Batch, denominator: float, kl_coef: float) -> tuple[dict[str, Tensor], Diagnostics]:
        """Return the terms of the loss of a micro-batch, divided by its minibatch's `denominator`, and diagnostics."""
        mask, update = batch.sequences.completion_mask, self.update
        average = partial(aggregate, mask=mask, aggregation=update.aggregation, denominator=denominator)

        # All terms share one forward pass.
        with self.placement.autocast():
            logps, entropy = per_token_logps(  # (N, T) each
                self.learner.model, batch.sequences, self.temperature, entropy_gradient=update.entropy_coef > 0
            )

        # The policy loss is the variant's objective; the entropy bonus is a negative loss.
        policy_loss, diagnostics = self.objective(
            logps, batch.old_per_token_logps, batch.advantages, mask, denominator=denominator
        )
        losses = {"policy/loss": policy_loss, "policy/entropy_loss": -update.entropy_coef * average(entropy)}
        diagnostics["policy/entropy"] = Mean.of(entropy, mask)

        # The KL to the reference keeps the policy close to the model that it started from.
        if batch.ref_per_token_logps is not None:
            divergence = self.kl(logps, batch.ref_per_token_logps)  # (N, T)
            diagnostics["kl/divergence"] = Mean.of(divergence, mask)
            if self.kl_per_response:
                response_kl = (divergence * mask).sum(1)  # (N,)
                diagnostics["kl/response"] = Mean.of(response_kl)
                divergence = response_kl[:, None].expand_as(divergence)
            losses["policy/kl_loss"] = kl_coef * average(divergence)
        return losses, diagnostics


def with_advantage(advantages: Tensor) -> Tensor:
    """Return a mask (N,) of the responses that have an advantage, (N,) or (N, T), other than 0."""
    return (advantages != 0).view(len(advantages), -1).any(1)


# The sampler's log-probabilities differ from the policy's by rounding only, unless its weights, cache or precision
# differ (Yao et al. 2025, "Your Efficient RL Framework Secretly Brings You Off-Policy RL Training").
COMPARED = 8  # responses, evenly spaced over the step, so that all processes that sample are represented
# Limits in nats. Two implementations of one model differ by about 1e-5 in float32 and by 1e-2 in bfloat16.
LIMITS: dict[str, float] = {"float32": 1e-3, "tf32": 0.02, "bfloat16": 0.05}  # TF32 has 3 bits more than bfloat16


def sampler_gap(actor: Actor, batch: Batch, sampled_in: Literal["float32", "tf32", "bfloat16"]) -> dict[str, float]:
    """Return `rollout/logp_gap`, the mean over tokens of |log p of the sampler - log p of the policy|, and its limit.

    Both are in nats, for the policy before the update. The mean is over all responses if the old log-probabilities are
    recomputed, else over `COMPARED` of them. The limit, `rollout/logp_gap_limit`, depends on the precision.
    """
    compared, logps = batch.sequences, batch.old_per_token_logps
    if not actor.recompute_logps:
        count = min(COMPARED, len(compared))
        compared = compared.select(torch.arange(count) * len(compared) // count)
        logps = actor.logps(compared)
    assert compared.logps is not None  # the responses were sampled
    gap = masked_mean((logps - compared.logps).abs(), compared.completion_mask)
    return {"rollout/logp_gap": gap.item(), "rollout/logp_gap_limit": LIMITS[sampled_in]}


def draw(problems: int, count: int, generator: torch.Generator) -> list[int]:
    """Return `count` random problem numbers below `problems`; no number occurs twice before all have occurred."""
    rounds = [torch.randperm(problems, generator=generator) for _ in range(-(-count // problems))]
    return torch.cat(rounds)[:count].tolist()


def in_passes(problems: int, start: int, count: int, seed: int | None) -> list[int]:
    """Return the problem numbers at positions `start` to `start + count - 1` of repeated passes over all `problems`.

    Each pass has its own random order, which depends on `seed`.
    """
    first, last = start // problems, (start + count - 1) // problems
    orders = [
        torch.randperm(problems, generator=torch.Generator().manual_seed(bucket(f"pass {number} {seed}", 2**62)))
        for number in range(first, last + 1)
    ]
    return torch.cat(orders)[start - first * problems :][:count].tolist()

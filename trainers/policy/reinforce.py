"""Stage `reinforce`: sample responses, reward them, update the policy; the loop of `innovations` and `gspo`.

Metrics are defined in docs/metrics-policy.md.
"""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from trainers.objectives.losses import adapt_coefficient
from trainers.parallel import join
from trainers.policy.actor import Actor, build_objective, sampler_gap, with_advantage
from trainers.policy.config import Critic as CriticSettings
from trainers.policy.config import Gae, PolicyConfig
from trainers.policy.experience import Experience, Sampler
from trainers.policy.learner import learner_of, state_of
from trainers.policy.measure import measure
from trainers.policy.models import POLICY, Placement, load_learner, load_tokenizer, save_policy
from trainers.policy.responses import Responder, start_engine
from trainers.policy.rewards import load_reward_model
from trainers.policy.sources import KEPT, keeping, load_task, measured_steps, policy_folder, reward_model_folder
from trainers.policy.text import pad_token
from trainers.running.stage import Stage
from trainers.running.state import run_steps
from trainers.tasks.interface import Problem, bucket, read_problems

if TYPE_CHECKING:
    from trainers.policy.value_model import Critic  # a variant without one does not load it


RANKS = join  # several devices: a process for each


def run(stage: Stage) -> None:
    """Train one variant with one seed from the shared warm start."""
    config: PolicyConfig = stage.config
    trainer = Trainer(stage, config)
    problems = read_problems(stage.inputs["task_data"] / "train.jsonl")
    dev = read_problems(stage.inputs["task_data"] / "dev.jsonl")

    def step(number: int) -> None:
        stage.log_metrics(number + 1, trainer.step(number, problems))
        if number + 1 in kept:
            with keeping(stage.out / KEPT, number + 1) as folder:
                save_policy(folder, trainer.policy, trainer.tokenizer, stage.ranks)

    kept = measured_steps(config.steps, config.evaluate.checkpoints)[:-1]
    first, state = trainer.state.restore(stage), trainer.state
    if first == 0:
        stage.log_metrics(0, trainer.measure(dev))
    run_steps(stage, step, steps=config.steps, first=first, state=state, checkpoint_every=config.checkpoint_every)
    stage.log_metrics(config.steps, trainer.measure(dev))
    save_policy(stage.out / POLICY, trainer.policy, trainer.tokenizer, stage.ranks)


class Trainer:
    """Models, optimisers and random generators of one run, and one step with them."""

    def __init__(self, stage: Stage, config: PolicyConfig) -> None:
        self.stage, self.config = stage, config
        placement = Placement.of(stage.devices, config.precision, stage.ranks, stage.parts.get("adapters"))
        folder = policy_folder(stage, "warm_start")
        self.tokenizer = load_tokenizer(folder)
        self.policy, reference = load_learner(
            folder, placement, config.memory, stage.seed, reference=config.kl.coef > 0
        )
        self.actor = Actor(
            learner=learner_of(stage, self.policy, config.update.lr, config.update),
            objective=build_objective(stage.parts, config),
            update=config.update,
            placement=placement,
            reference=reference,
            temperature=config.sampling.temperature,
            recompute_logps=config.rollout.recompute_logps,
            kl_estimator=config.kl.estimator,
            kl_per_response=config.kl.per == "response",
        )
        self.critic: Critic | None = None
        if isinstance(config.advantage, Gae):
            self.critic = self._critic(config.advantage.critic, folder, placement)
        learners = {"policy": self.actor.learner} | ({} if self.critic is None else {"critic": self.critic.learner})
        self.sampler = Sampler(
            model=self.policy,
            tokenizer=self.tokenizer,
            task=load_task(stage),
            sampling=config.sampling,
            rollout=config.rollout,
            reward=config.reward,
            placement=placement,
            **self._reward_model(folder, placement),
            reward_function=stage.parts.get("reward_function"),
            penalty=self._penalty(),
            memory=stage.micro_batch(config.rollout.batch_size),
            engine=start_engine(
                stage,
                config.rollout,
                Responder(self.policy, self.tokenizer, placement),
                folder,
                learners=learners.values(),
            ),
        )
        self.measured = stage.micro_batch(config.evaluate.batch_size)
        self.rates = [(learner, learner.optimizer.defaults["lr"]) for learner in learners.values()]
        # One generator per purpose: a variant that draws more of one kind gets the same numbers of the others.
        self.generators = {
            name: torch.Generator().manual_seed(bucket(f"{name} {stage.seed}", 2**62))
            for name in ("prompts", "sampling", "minibatches", "critic_minibatches")
        }
        self.state = state_of(learners, {"kl_coef": config.kl.coef, "elapsed": 0.0, "asked": 0}, self.generators)

    def step(self, step: int, problems: list[Problem]) -> dict[str, float]:
        """Sample, reward, update; return the step's metrics."""
        started = time.monotonic()
        warm = min(1.0, (step + 1) / max(1, self.config.update.warmup_steps))
        for learner, rate in self.rates:
            learner.set_rate(rate * warm)
        kl_coef = self.state.values["kl_coef"]
        experience = self._collect(problems)
        metrics, sampled = dict(experience.metrics), time.monotonic()
        estimate = None if self.critic is None else self.critic.estimate(experience.sequences, experience.finest)
        advantages = self._group_advantages(experience) if estimate is None else estimate.advantages
        metrics["advantage/mean"] = advantages.float().mean().item()
        metrics["advantage/mean_abs"] = advantages.abs().float().mean().item()
        metrics["update/used_responses"] = with_advantage(advantages).float().mean().item()
        if self.critic is not None and estimate is not None:
            orders = self.generators["critic_minibatches"]
            metrics |= self.critic.learn(experience.sequences, estimate, passes=self.config.update, generator=orders)
        sequences = experience.sequences
        batch = self.actor.batch(sequences, advantages)
        metrics |= sampler_gap(self.actor, batch, self.config.precision.compute)
        metrics |= self.actor.learn(batch, kl_coef=kl_coef, generator=self.generators["minibatches"])
        metrics["kl/coef"] = kl_coef
        divergence = metrics.get("kl/response" if self.config.kl.per == "response" else "kl/divergence")
        if self.config.kl.adaptive and divergence is not None:
            self.state.values["kl_coef"] = adapt_coefficient(kl_coef, divergence, target=self.config.kl.target)
        now = time.monotonic()
        self.state.values["elapsed"] += now - started
        return metrics | {
            "time/sampling_s": sampled - started,
            "time/update_s": now - sampled,
            "time/elapsed_s": self.state.values["elapsed"],
        }

    def measure(self, problems: list[Problem]) -> dict[str, float]:
        """Return accuracy and model reward, where there are such, on the development split, for choices."""
        results = measure(self.sampler, problems, self.config.evaluate, self.measured)
        return {
            f"dev/{protocol}_{name}": sum(values[name]) / len(values[name])
            for protocol, values in results.items()
            for name in ("accuracy", "model_reward")
            if name in values
        }

    def _collect(self, problems: list[Problem]) -> Experience:
        rollout = self.config.rollout

        def collect() -> Experience:
            count, asked = rollout.responses // rollout.group_size, self.state.values["asked"]
            if rollout.order == "drawn":
                rows = draw(len(problems), count, self.generators["prompts"])
            else:
                rows = in_passes(len(problems), asked, count, self.stage.seed)
            self.state.values["asked"] = asked + count
            return self.sampler.collect([problems[i] for i in rows], self.generators["sampling"])

        if self.config.dynamic_sampling is None:
            return collect()
        return self.stage.parts["collect"](
            collect,
            group_size=rollout.group_size,
            max_rounds=self.config.dynamic_sampling.max_rounds,
            padding=pad_token(self.tokenizer),
        )

    def _group_advantages(self, experience: Experience) -> Tensor:
        """Return the advantages of responses (N,), or of tokens (N, T) where these are rewarded."""
        group = self.config.rollout.group_size
        if experience.token_rewards is None:
            return self.stage.parts["advantages"](experience.rewards, group)
        mask, scale = experience.sequences.mask.cpu(), self.config.advantage.kind == "normalized"
        return self.stage.parts["token_advantages"](experience.token_rewards, mask, group, scale=scale)

    def _critic(self, settings: CriticSettings, policy: Path, placement: Placement) -> "Critic":
        """Return PPO's critic, which starts from the policy's body."""
        parts = self.stage.parts
        model = parts["build_critic"](policy, placement, self.config.memory, self.stage.seed)
        return parts["critic"](learner_of(self.stage, model, settings.lr, self.config.update), settings)

    def _reward_model(self, policy: Path, placement: Placement) -> dict[str, Any]:
        """Return the sampler's reward model: of responses, or of tokens."""
        if self.config.reward.level == "sequence":
            return {"reward_model": load_reward_model(self.stage, self.config.reward, placement)}
        start = self.stage.parts["reward_model"]
        return {"token_rewards": start(reward_model_folder(self.stage), placement, policy)}

    def _penalty(self) -> tuple[Any, float] | None:
        if self.config.overlong_penalty is None:
            return None
        return self.stage.parts["penalty"], self.config.overlong_penalty.share


def in_passes(problems: int, start: int, count: int, seed: int | None) -> list[int]:
    """Return the numbers `start` to `start + count` of passes through `problems`, each pass in an order of its own."""
    first, last = start // problems, (start + count - 1) // problems
    orders = [
        torch.randperm(problems, generator=torch.Generator().manual_seed(bucket(f"pass {number} {seed}", 2**62)))
        for number in range(first, last + 1)
    ]
    return torch.cat(orders)[start - first * problems :][:count].tolist()


def draw(problems: int, count: int, generator: torch.Generator) -> list[int]:
    """Return `count` numbers below `problems`, each as often as the others up to one."""
    rounds = [torch.randperm(problems, generator=generator) for _ in range(-(-count // problems))]
    return torch.cat(rounds)[:count].tolist()

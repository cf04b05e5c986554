"""Stage `reinforce`: sample responses, reward them, update the policy; the loop of `innovations` and `gspo`.

Metrics are defined in docs/metrics-policy.md.
"""

import time
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from trainers.objectives.kl_control import adapt_coefficient
from trainers.policy.config import OBJECTIVES, PolicyConfig
from trainers.policy.experience import Experience, Sampler
from trainers.policy.measure import measure
from trainers.policy.models import POLICY, load_policy, load_tokenizer, save_policy
from trainers.policy.objective import build_objective
from trainers.policy.placement import Placement
from trainers.policy.rewards import load_reward_model
from trainers.policy.sources import asset_files, load_task, policy_folder, reward_model_folder
from trainers.policy.text import pad_token
from trainers.policy.update import prepare, update_policy, with_advantage
from trainers.stage import Stage
from trainers.state import pack, unpack
from trainers.tasks.interface import Problem, bucket, read_problems


def run(stage: Stage) -> None:
    """Train one variant with one seed from the shared warm start."""
    config: PolicyConfig = stage.config
    trainer = Trainer(stage, config)
    problems = read_problems(stage.inputs["task_data"] / "train.jsonl")
    dev = read_problems(stage.inputs["task_data"] / "dev.jsonl")
    first = trainer.restore()
    if first == 0:
        stage.log_metrics(0, trainer.measure(dev))
    for step in range(first, config.steps):
        metrics = trainer.step(step, problems)
        stage.log_metrics(step + 1, metrics)
        stage.progress(step + 1, config.steps)
        if (step + 1) % config.checkpoint_every == 0 and step + 1 < config.steps:
            trainer.save(step + 1)
    stage.log_metrics(config.steps, trainer.measure(dev))
    save_policy(stage.out / POLICY, trainer.policy, trainer.tokenizer)


class Trainer:
    """Models, optimisers and random generators of one run, and one step with them."""

    def __init__(self, stage: Stage, config: PolicyConfig) -> None:
        self.stage, self.config = stage, config
        self.placement = Placement.of(stage.devices, config.precision)
        folder = policy_folder(stage, "warm_start")
        self.tokenizer = load_tokenizer(folder)
        self.policy = load_policy(folder, self.placement.policy, config.precision, trainable=True)
        self.reference = load_policy(folder, self.placement.reference, config.precision) if config.kl.coef > 0 else None
        self.objective = build_objective(config)
        self.advantages = import_module(f"{OBJECTIVES}.advantage_{config.advantage}")
        self.kl_coef, self.elapsed = config.kl.coef, 0.0
        update = config.update
        self.memory = stage.micro_batch(update.micro_batch)
        self.critic_memory = stage.micro_batch(update.micro_batch)
        new = partial(torch.optim.AdamW, betas=update.betas, weight_decay=update.weight_decay)
        self.modules = {"policy": self.policy}
        self.optimizers = {"policy_optimizer": new(self.policy.parameters(), lr=update.lr)}
        if config.advantage == "gae":
            self.critic_module = import_module("trainers.policy.critic")
            self.modules["critic"] = self.critic_module.build_critic(folder, self.placement)
            self.optimizers["critic_optimizer"] = new(self.modules["critic"].parameters(), lr=config.critic.lr)
        self.rates = {name: optimizer.defaults["lr"] for name, optimizer in self.optimizers.items()}
        # One generator per purpose: a variant that draws more of one kind gets the same numbers of the others.
        self.generators = {
            name: torch.Generator().manual_seed(bucket(f"{name} {stage.seed}", 2**62))
            for name in ("prompts", "sampling", "minibatches", "critic_minibatches")
        }
        self.sampler = Sampler(
            model=self.policy,
            tokenizer=self.tokenizer,
            task=load_task(config.task, asset_files(stage, "data_source")),
            sampling=config.sampling,
            rollout=config.rollout,
            reward=config.reward,
            placement=self.placement,
            **self._reward_model(folder),
            penalty=self._penalty(),
        )

    def step(self, step: int, problems: list[Problem]) -> dict[str, float]:
        """Sample, reward, update; return the step's metrics."""
        started = time.monotonic()
        config = self.config
        self._set_rates(step)
        experience = self._collect(problems)
        metrics = dict(experience.metrics)
        sampled = time.monotonic()
        advantages, values = self._advantages(experience)
        metrics["advantage/mean"] = advantages.float().mean().item()
        metrics["advantage/mean_abs"] = advantages.abs().float().mean().item()
        batch = prepare(
            self.policy,
            self.reference,
            experience.sequences,
            advantages,
            temperature=config.sampling.temperature,
            recompute_logps=config.rollout.recompute_logps,
            update=config.update,
            placement=self.placement,
            memory=self.memory,
        )
        metrics["update/used_responses"] = with_advantage(advantages).float().mean().item()
        if values is not None:
            metrics |= self.critic_module.update_critic(
                self.modules["critic"],
                self.optimizers["critic_optimizer"],
                experience.sequences,
                *values,
                settings=config.critic,
                update=config.update,
                generator=self.generators["critic_minibatches"],
                memory=self.critic_memory,
            )
        metrics |= update_policy(
            self.policy,
            self.optimizers["policy_optimizer"],
            self.objective,
            batch,
            update=config.update,
            temperature=config.sampling.temperature,
            kl_coef=self.kl_coef,
            placement=self.placement,
            generator=self.generators["minibatches"],
            memory=self.memory,
        )
        metrics["kl/coef"] = self.kl_coef
        if config.kl.adaptive and "kl/divergence" in metrics:
            self.kl_coef = adapt_coefficient(
                self.kl_coef,
                metrics["kl/divergence"],
                target=config.kl.target,
                low=config.kl.low,
                high=config.kl.high,
            )
        now = time.monotonic()
        self.elapsed += now - started
        return metrics | {
            "time/sampling_s": sampled - started,
            "time/update_s": now - sampled,
            "time/elapsed_s": self.elapsed,
        }

    def measure(self, problems: list[Problem]) -> dict[str, float]:
        """Return accuracy and model reward, where there are such, on the development split, for choices."""
        results = measure(self.sampler, problems, self.config.evaluate)
        return {
            f"dev/{protocol}_{name}": result.mean(name)
            for protocol, result in results.items()
            for name in ("accuracy", "model_reward")
            if name in result.values
        }

    def save(self, step: int) -> None:
        """Write a checkpoint after `step` steps."""
        tensors = pack(self.modules, self.optimizers, self.generators)
        self.stage.save_checkpoint(step, tensors, {"kl_coef": self.kl_coef, "elapsed": self.elapsed})

    def restore(self) -> int:
        """Go back to the last checkpoint, if there is one; return the number of steps done."""
        found = self.stage.load_checkpoint()
        if found is None:
            return 0
        unpack(found.tensors, self.modules, self.optimizers, self.generators)
        self.kl_coef, self.elapsed = found.state["kl_coef"], found.state["elapsed"]
        return found.step

    def _collect(self, problems: list[Problem]) -> Experience:
        rollout = self.config.rollout

        def collect() -> Experience:
            rows = draw(len(problems), rollout.responses // rollout.group_size, self.generators["prompts"])
            return self.sampler.collect([problems[i] for i in rows], self.generators["sampling"])

        if self.config.dynamic_sampling is None:
            return collect()
        return import_module("trainers.policy.dynamic_sampling").collect_informative(
            collect,
            group_size=rollout.group_size,
            max_rounds=self.config.dynamic_sampling.max_rounds,
            padding=pad_token(self.tokenizer),
        )

    def _advantages(self, experience: Experience) -> tuple[Tensor, tuple[Tensor, Tensor] | None]:
        """Return advantages, (N,) of groups or (N, T) of tokens, and with a critic its returns and values."""
        if self.config.advantage != "gae":
            group = self.config.rollout.group_size
            if experience.token_rewards is None:
                return self.advantages.group_advantages(experience.rewards, group), None
            function = import_module(f"{OBJECTIVES}.token_rewards").token_advantages
            mask = experience.sequences.mask.cpu()
            return function(experience.token_rewards, mask, group, scale=self.advantages.SCALE), None
        advantages, returns, values = self.critic_module.estimate(
            self.modules["critic"],
            experience.sequences,
            experience.rewards if experience.token_rewards is None else experience.token_rewards,
            self.config.critic,
            self.critic_memory,
        )
        return advantages, (returns, values)

    def _set_rates(self, step: int) -> None:
        warm = min(1.0, (step + 1) / max(1, self.config.update.warmup_steps))
        for name, optimizer in self.optimizers.items():
            for group in optimizer.param_groups:
                group["lr"] = self.rates[name] * warm

    def _reward_model(self, policy: Path) -> dict[str, Any]:
        """Return the sampler's reward model: of responses, or of tokens."""
        if self.config.reward.level == "sequence":
            return {"reward_model": load_reward_model(self.stage, self.config.reward, self.placement)}
        module = import_module("trainers.policy.token_rewards")
        return {"token_rewards": module.TokenRewardModel(reward_model_folder(self.stage), self.placement, policy)}

    def _penalty(self) -> tuple[Any, Any] | None:
        if self.config.overlong_penalty is None:
            return None
        return import_module(f"{OBJECTIVES}.overlong_penalty").overlong_penalty, self.config.overlong_penalty


def draw(problems: int, count: int, generator: torch.Generator) -> list[int]:
    """Return `count` numbers below `problems`, each as often as the others up to one."""
    rounds = [torch.randperm(problems, generator=generator) for _ in range(-(-count // problems))]
    return torch.cat(rounds)[:count].tolist()

"""What a run of `reinforce` works with: models, optimisers and random generators, from a stage's configuration."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

import torch

from trainers.objectives.policy import ESTIMATORS
from trainers.policy.classifier import load_reward_model
from trainers.policy.config import Gae, PolicyConfig
from trainers.policy.grpo import Actor, Generators, Objective, Progress, Rewards, Run
from trainers.policy.learner import learner_of, state_of
from trainers.policy.models import Placement, load_policy_and_reference, load_tokenizer
from trainers.policy.responses import Responder, Sampler, start_engine
from trainers.policy.sources import load_task, policy_folder, reward_model_folder
from trainers.policy.text import pad_token
from trainers.running.stage import Stage
from trainers.tasks.interface import bucket, read_problems

if TYPE_CHECKING:
    from trainers.policy.parts import Formulas, Parts


def build(stage: Stage) -> Run:
    """Return the run before its first step; the policy is the warm start's."""
    config: PolicyConfig = stage.config
    parts: Parts = stage.parts
    assert parts.formulas is not None
    assert parts.step is not None
    placement = Placement.of(stage.devices, config.precision, stage.ranks, parts.adapters)
    folder = policy_folder(stage, "warm_start")
    tokenizer, task = load_tokenizer(folder), load_task(stage)
    policy, reference = load_policy_and_reference(
        folder, placement, config.memory, stage.seed, reference=config.kl.coef > 0
    )
    actor = Actor(
        learner=learner_of(stage, policy, config.update.lr, config.update),
        objective=build_objective(parts.formulas, config),
        update=config.update,
        placement=placement,
        kl=ESTIMATORS[config.kl.estimator],
        reference=reference,
        temperature=config.sampling.temperature,
        recompute_logps=config.rollout.recompute_logps,
        kl_per_response=config.kl.per == "response",
    )
    critic = None
    if isinstance(config.advantage, Gae) and parts.critic is not None:
        critic = parts.critic(stage, config.advantage.critic, config.update, folder, placement)
    learners = {"policy": actor.learner} | ({} if critic is None else {"critic": critic.learner})
    scores_responses = parts.token_reward_model is None
    penalty, longest = config.overlong_penalty, config.sampling.max_new_tokens
    overlong_penalty = None
    if penalty is not None and parts.overlong_penalty is not None:
        buffer = max(1, round(penalty.share * longest))
        overlong_penalty = partial(parts.overlong_penalty, max_length=longest, buffer=buffer)
    rewards = Rewards(
        task,
        config.reward,
        placement,
        eos=tokenizer.eos_token_id,
        model=load_reward_model(stage, config.reward, placement) if scores_responses else None,
        token_model=parts.token_reward_model(reward_model_folder(stage), placement, folder)
        if parts.token_reward_model
        else None,
        function=parts.reward_function,
        overlong_penalty=overlong_penalty,
    )
    resample, settings = None, config.dynamic_sampling
    if settings is not None and parts.dynamic_sampling is not None:
        group_size, rounds = config.rollout.group_size, settings.max_rounds
        resample = partial(
            parts.dynamic_sampling, group_size=group_size, max_rounds=rounds, padding=pad_token(tokenizer)
        )
    responder = Responder(policy, tokenizer, placement)
    sampler = Sampler(
        model=policy,
        tokenizer=tokenizer,
        task=task,
        sampling=config.sampling,
        placement=placement,
        micro_batch=stage.micro_batch(config.rollout.batch_size),
        engine=start_engine(stage, config.rollout, responder, folder, learners=learners.values()),
    )
    generators = Generators(*(_generator(name, stage.seed) for name in Generators.__dataclass_fields__))
    progress = Progress(config.kl.coef)
    run = Run(
        config=config,
        seed=stage.seed,
        take_step=parts.step,
        problems=read_problems(stage.inputs["task_data"] / "train.jsonl"),
        sampler=sampler,
        rewards=rewards,
        actor=actor,
        advantages=parts.advantages,
        token_advantages=parts.token_advantages,
        dynamic_sampling=resample,
        generators=generators,
        progress=progress,
        state=state_of(learners, progress, vars(generators)),
    )
    return run if parts.with_critic is None else parts.with_critic(run, critic)


def build_objective(formulas: "Formulas", config: PolicyConfig) -> Objective:
    """Return the policy loss of a variant: its formulas, each with the settings under the key of its name."""

    def with_settings(name: str) -> Callable[..., Any] | None:
        formula = getattr(formulas, name)
        return None if formula is None else partial(formula, **getattr(config, name).model_dump())

    return Objective(
        ratio=formulas.ratio,
        surrogate=partial(formulas.surrogate, **config.surrogate.model_dump(exclude={"kind"})),
        ema_smoothing=with_settings("ema_smoothing"),
        sequence_ratio=formulas.sequence_ratio,
        gradient_adaptive=with_settings("gradient_adaptive"),
        temporal_decay=with_settings("temporal_decay"),
        response_mean=formulas.response_mean,
        weight_on=config.weight_on,
        aggregation=config.update.aggregation,
    )


def _generator(purpose: str, seed: int | None) -> torch.Generator:
    return torch.Generator().manual_seed(bucket(f"{purpose} {seed}", 2**62))

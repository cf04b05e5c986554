"""Construction of a run of `reinforce` from a stage's configuration: models, optimisers, formulas, generators."""

from collections.abc import Callable, Mapping
from dataclasses import fields
from functools import partial
from typing import Any

import torch
from pydantic import BaseModel

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


def build(stage: Stage) -> Run:
    """Return the run before its first step; the policy starts from the warm start."""
    config: PolicyConfig = stage.config
    parts = stage.parts

    # The policy learns; the reference, if there is a KL, is a frozen copy of the warm start.
    placement = Placement.of(stage.devices, config.precision, stage.ranks, parts.get("adapters"))
    folder = policy_folder(stage, "warm_start")
    tokenizer, task = load_tokenizer(folder), load_task(stage)
    policy, reference = load_policy_and_reference(
        folder, placement, config.memory, stage.seed, reference=config.kl.kl_coef > 0
    )
    actor = Actor(
        learner=learner_of(stage, policy, config.update.lr, config.update),
        objective=build_objective(parts, config),
        update=config.update,
        placement=placement,
        kl=ESTIMATORS[config.kl.estimator],
        reference=reference,
        temperature=config.sampling.temperature,
        recompute_logps=config.rollout.recompute_logps,
        kl_per_response=config.kl.per == "response",
    )

    # PPO's critic starts from the policy, too.
    critic = None
    if isinstance(config.advantage, Gae):
        critic = parts["new_critic"](stage, config.advantage.critic, config.update, folder, placement)
    learners = {"policy": actor.learner} | ({} if critic is None else {"critic": critic.learner})

    # Each source of rewards is optional.
    penalty, longest = config.overlong_penalty, config.sampling.max_new_tokens
    overlong_penalty = None
    if penalty is not None:
        buffer = max(1, round(penalty.share * longest))
        overlong_penalty = partial(parts["overlong_penalty"], max_length=longest, buffer=buffer)
    model = token_model = None
    if config.reward.level == "token":
        token_model = parts["token_reward_model"](reward_model_folder(stage), placement, folder)
    else:
        model = load_reward_model(stage, config.reward, placement)
    rewards = Rewards(
        task,
        config.reward,
        placement,
        eos=tokenizer.eos_token_id,
        model=model,
        token_model=token_model,
        function=parts.get("reward_function"),
        overlong_penalty=overlong_penalty,
    )

    # The policy samples its own responses, unless an engine such as vLLM does.
    resample, settings = None, config.dynamic_sampling
    if settings is not None:
        group_size, rounds = config.rollout.group_size, settings.max_rounds
        resample = partial(
            parts["dynamic_sampling"], group_size=group_size, max_rounds=rounds, padding=pad_token(tokenizer)
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

    # A checkpoint holds what the learners, the progress and the generators have become.
    seeds = {name: bucket(f"{name} {stage.seed}", 2**62) for name in Generators.__dataclass_fields__}
    generators = Generators(**{name: torch.Generator().manual_seed(seed) for name, seed in seeds.items()})
    progress = Progress(config.kl.kl_coef)
    run = Run(
        config=config,
        seed=stage.seed,
        take_step=parts["step"],
        problems=read_problems(stage.inputs["task_data"] / "train.jsonl"),
        sampler=sampler,
        rewards=rewards,
        actor=actor,
        advantages=parts.get("advantages"),
        token_advantages=parts.get("token_advantages"),
        dynamic_sampling=resample,
        generators=generators,
        progress=progress,
        state=state_of(learners, progress, vars(generators)),
    )
    return run if critic is None else parts["with_critic"](run, critic)


def build_objective(parts: Mapping[str, Callable[..., Any]], config: PolicyConfig) -> Objective:
    """Return the policy loss of a variant; each formula gets the settings under the configuration key of its name."""
    formulas = {}
    for name in {field.name for field in fields(Objective)} & parts.keys():
        settings = getattr(config, name, None)
        values = settings.model_dump(exclude={"kind"}) if isinstance(settings, BaseModel) else {}
        formulas[name] = partial(parts[name], **values)
    return Objective(**formulas, weight_on=config.weight_on, aggregation=config.update.aggregation)

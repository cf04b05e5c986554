"""What the stages of `innovations` and `gspo` hold in memory; see contract/footprint.py."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from importlib import import_module
from typing import Any

from contract.footprint import Footprint, Held, ModelAsset, Work
from trainers.footprint.shapes import Shape, shape_of
from trainers.footprint.tensors import (
    FLOAT,
    checkpoint,
    drawing,
    forward,
    frozen,
    gathered,
    trained,
    twice,
    update,
    work,
)
from trainers.policy.config import PolicyConfig, Scratch
from trainers.tasks import TASKS

ASSUMED_PROMPT = 512  # tokens, where nothing limits a prompt
_SPECIAL = 3  # of the word-level tokenizer: padding, end, unknown
TRIED = {"precision.compute": "bfloat16", "precision.activation_checkpointing": True}  # what makes a stage smaller


def footprint(stage: str, config: PolicyConfig, models: Mapping[str, ModelAsset], devices: int) -> Footprint | None:
    """Return what a stage holds: a training divided among its devices, but for a reward model, which each has.

    Evaluations have the policy on their first device and a reward model on the last.
    """
    starts = config.model is not None and config.warm_start.steps == 0
    nothing = stage == "task_data" or (stage == "warm_start" and starts)
    if nothing or (stage == "judge" and not config.reward_training.enabled):
        return None
    policy = shape_of(models["model"]) if "model" in models else scratch_shape(config.scratch, config.task)
    if policy is None:
        return Footprint(
            unknown=("the policy: no configuration of `model` is on this machine, and its size is not listed",)
        )
    prompt, assumed = _prompt(config)
    response, precision = config.sampling.max_new_tokens, config.precision
    draw = partial(drawing, "sampling", policy, precision, prompt=prompt, response=response, frozen=True)
    if stage == "warm_start":
        rows = config.warm_start.batch_size
        learn = work(
            "training",
            rows,
            lambda n: update(policy, precision, n * (prompt + response), predicted=n * response, entropy="kept"),
            gathered(policy),
        )
        works: tuple[Work, ...] = (learn,)
        if config.warm_start.until is not None:
            works = (learn, draw(rows=config.warm_start.until.problems, group=1, frozen=False))
        held, start = trained("policy", policy.parameters), FLOAT * policy.parameters
        return Footprint(held, works, _saved(policy), sharded=True, start=start, assumed=assumed)
    reward, unknown = _reward_model(config, models, policy)
    if stage == "judge":
        settings = config.reward_training
        rows = settings.micro_batch or settings.batch_size
        learn = work("training", rows, lambda n: update(policy, precision, n * (prompt + response)))
        held = trained("reward model", policy.body + policy.hidden)
        works = (learn, draw(rows=settings.sampled_at_once, group=settings.samples))
        return Footprint(held, works, _saved(policy), assumed=assumed)
    if stage in ("evaluate", "evaluate_warm"):
        works = (draw(rows=config.evaluate.batch_size, group=1),)
        held = (*frozen("policy", policy.parameters, precision), *reward)
        # Each is loaded on the machine and then moved to the device, one after the other.
        host = {"weights": max(part.size for part in held)}
        return Footprint(held, works, host, assumed=assumed, unknown=unknown)
    return replace(_reinforce(config, policy, reward, prompt), assumed=assumed, unknown=unknown)


def _reinforce(config: PolicyConfig, policy: Shape, reward: tuple[Held, ...], prompt: int) -> Footprint:
    rollout, precision, response = config.rollout, config.precision, config.sampling.max_new_tokens
    minibatch = -(-rollout.responses // config.update.minibatches)
    rows, at_once = config.update.micro_batch or minibatch, config.update.micro_batch or rollout.responses
    draw = partial(drawing, shape=policy, precision=precision, prompt=prompt, response=response)
    divided = gathered(policy)

    def passing(*, frozen: bool) -> Callable[[int], dict[str, int]]:
        return lambda n: forward(policy, precision, n * (prompt + response), predicted=n * response, frozen=frozen)

    def learning(n: int) -> dict[str, int]:
        entropy = "learnt" if config.update.entropy_coef > 0 else "dropped"
        return update(policy, precision, n * (prompt + response), predicted=n * response, entropy=entropy)

    held = [*trained("policy", policy.parameters), *reward]
    works: list[Work] = [
        draw("sampling", rows=rollout.batch_size or rollout.responses, group=rollout.group_size),
        draw("measuring", rows=config.evaluate.batch_size, group=1),
        work("update of the policy", rows, learning, divided),
    ]
    saved = [policy.parameters]
    if config.kl.coef > 0:
        held += frozen("reference", policy.parameters, precision)
        works.append(work("reference's log-probabilities", at_once, passing(frozen=True), divided))
    if rollout.recompute_logps:
        works.append(work("old log-probabilities", at_once, passing(frozen=False), divided))
    if config.advantage == "gae":
        critic = policy.body + policy.hidden + 1
        held += trained("critic", critic)
        saved.append(critic)
        length = prompt + response
        works.append(work("update of the critic", rows, lambda n: update(policy, precision, n * length), divided))
    return Footprint(
        tuple(held),
        tuple(works),
        {"checkpoint": checkpoint(*saved, tied=twice(policy))},
        sharded=True,
        # The reference is copied before the policy is divided.
        start=(2 if config.kl.coef > 0 else 1) * FLOAT * policy.parameters,
    )


def scratch_shape(scratch: Scratch, task: Any) -> Shape:
    """Return the shape of a policy from scratch: a Qwen2 whose vocabulary is the task's words."""
    words = import_module(f"{TASKS}.{task.name}").create(task, None).words or ()
    return Shape(
        family="gated",
        hidden=scratch.hidden,
        layers=scratch.layers,
        feed_forward=scratch.feed_forward,
        heads=scratch.heads,
        kv_heads=scratch.heads,
        head_dim=scratch.hidden // scratch.heads,
        vocab=len(words) + _SPECIAL,
        tied=True,
        attention_bias=True,
    )


def _prompt(config: PolicyConfig) -> tuple[int, tuple[str, ...]]:
    """Return the tokens of a prompt, and what was assumed of them."""
    if config.model is None:
        longest = max(1, config.scratch.positions - config.sampling.max_new_tokens)
        return longest, (f"prompts of {longest} tokens: what scratch.positions leaves",)
    return ASSUMED_PROMPT, (f"prompts of {ASSUMED_PROMPT} tokens: nothing limits them",)


def _reward_model(
    config: PolicyConfig, models: Mapping[str, ModelAsset], policy: Shape
) -> tuple[tuple[Held, ...], tuple[str, ...]]:
    """Return what the reward model holds, in float32, and what is not known of it."""
    if config.reward.model == 0:
        return (), ()
    shape = shape_of(models["reward_model"]) if "reward_model" in models else policy
    if shape is None:
        return (), ("the reward model: no configuration of it is on this machine, and its size is not listed",)
    return (Held("reward model: weights", FLOAT * (shape.body + shape.hidden), -1, whole=True),), ()


def _saved(policy: Shape) -> dict[str, int]:
    """Return the memory of the machine of a stage without checkpoints: the model that it saves."""
    return {"saved model": FLOAT * policy.parameters}

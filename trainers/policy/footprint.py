"""What the stages of `innovations` and `gspo` hold in memory; see ablation/contract/footprint.py."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import Any

from ablation.contract.footprint import Footprint, ModelAsset, Work
from trainers.footprint import Model, Shape, shape_of, share, training
from trainers.policy.config import PolicyConfig, Scratch
from trainers.tasks import task_of

PROMPT = 512  # tokens; the longest of the tasks here, puzzles with 5 people, have about 350
_SCORED_AT_ONCE = 64  # responses, by a reward model
TRIED = {  # what makes a stage smaller
    "precision.compute": "bfloat16",
    "precision.activation_checkpointing": True,
    "memory.lora": {"rank": 16},
}


def footprint(stage: str, config: PolicyConfig, models: Mapping[str, ModelAsset], devices: int) -> Footprint | None:
    """Return what a stage holds on each device: a training's part of its models; an evaluation has them whole."""
    trains = {
        "task_data": False,
        "warm_start": config.model is None or config.warm_start.steps > 0,
        "reward_model": config.reward_training.enabled,
    }
    if not trains.get(stage, True):
        return None
    policy = shape_of(models, "model") if "model" in models else scratch_shape(config.scratch, config.task)
    notes = (f"assumed: prompts of {PROMPT} tokens",)
    if stage == "warm_start":
        return replace(_warm_start(config, policy, devices), notes=notes)
    if stage == "reward_model":
        return replace(_reward_model(config, policy, devices), notes=notes)
    response, scorer = config.sampling.max_new_tokens, None
    if config.reward.model > 0:
        shape = shape_of(models, "reward_model") if "reward_model" in models else policy
        scorer = Model("reward model", shape, config.precision, devices, critic=True)
    if stage != "reinforce":
        made = evaluating(config, policy, scorer, _SCORED_AT_ONCE, prompt=PROMPT, response=response, devices=devices)
        return replace(made, notes=notes)
    made = _reinforce(config, policy, devices)
    if scorer is not None:
        scoring = scorer.forward("rewards", _SCORED_AT_ONCE, PROMPT + response)
        made = replace(made, held={**made.held, **scorer.held_to_score}, works=(*made.works, scoring))
    return replace(made, notes=notes, reserved=reserved_by(config.rollout))


def _warm_start(config: PolicyConfig, policy: Shape, devices: int) -> Footprint:
    settings, response = config.warm_start, config.sampling.max_new_tokens
    model = Model("policy", policy, config.precision, devices, memory=settings.memory)
    rows = share(settings.batch_size, None, devices)
    works = [model.update("training", rows, PROMPT + response, predicted=response)]
    if settings.until is not None:
        works.append(model.sampling("sampling", settings.until.problems, prompt=PROMPT, response=response))
    return training([model], works)


def _reward_model(config: PolicyConfig, policy: Shape, devices: int) -> Footprint:
    """Return what the training of a reward model holds; the policy that it samples from is gone by then."""
    settings, response = config.reward_training, config.sampling.max_new_tokens
    model = Model("reward model", policy, config.precision, devices, critic=True)
    sampled = Model("policy", policy, config.precision, frozen=True)
    sizes = {"group": settings.samples, "prompt": PROMPT, "response": response}
    draw = sampled.sampling("sampling", settings.sampled_at_once, **sizes)
    with_policy = replace(draw, of_rows=lambda n: draw.of_rows(n) + sampled.weights)
    rows = share(settings.batch_size, settings.micro_batch, devices)
    learn = model.update("training", rows, PROMPT + response)
    return training([model], [learn, with_policy])


def _reinforce(config: PolicyConfig, policy: Shape, devices: int) -> Footprint:
    response, responses = config.sampling.max_new_tokens, config.rollout.responses
    full = config.update.reduces == "minibatch"
    model = Model("policy", policy, config.precision, devices, memory=config.memory, whole_gradients=full)
    reference, models = model.reference if config.kl.coef > 0 else None, [model]
    works = reinforcing(config, model, reference, responses, prompt=PROMPT, response=response, measured=response)
    if config.advantage.kind == "gae":
        models.append(critic := replace(model, name="critic", critic=True))
        rows = share(ceil(responses / config.update.minibatches), config.update.micro_batch, devices)
        works.append(critic.update("update of the critic", rows, PROMPT + response))
    return training(models, works, reference)


def reinforcing(
    config: Any, model: Model, reference: Model | None, responses: int, *, prompt: int, response: int, measured: int
) -> list[Work]:
    """Return what a step does with a policy and its reference; `config` is that of any study that reinforces one.

    responses: of a step. prompt, response, measured: tokens; measured: of a response in an evaluation.
    """
    rollout, update, tokens, devices = config.rollout, config.update, prompt + response, model.devices
    drawn = share(responses, rollout.batch_size, devices)
    rows = share(ceil(responses / update.minibatches), update.micro_batch, devices)
    at_once, entropy = share(responses, update.micro_batch, devices), update.entropy_coef > 0
    works = [
        model.sampling("sampling", drawn, group=rollout.group_size, prompt=prompt, response=response),
        model.sampling("measuring", config.evaluate.batch_size, prompt=prompt, response=measured),
        model.update(f"update of the {model.name}", rows, tokens, predicted=response, entropy=entropy),
    ]
    if reference is not None:
        scored = reference.forward("reference's log-probabilities", at_once, tokens, predicted=response)
        works.append(scored)
    if rollout.recompute_logps:
        works.append(model.forward("old log-probabilities", at_once, tokens, predicted=response))
    return works


def evaluating(
    config: Any, policy: Shape, scorer: Model | None, scored: int, *, prompt: int, response: int, devices: int
) -> Footprint:
    """Return what an evaluation holds: on each device all of the policy, and a part of what scores `scored` responses.

    Each is loaded on the machine and moved to the device, one after the other; the policy in each process.
    """
    model = Model("policy", policy, config.precision, frozen=True)
    held, host = model.held, devices * model.weights
    works = [model.sampling("sampling", config.evaluate.batch_size, prompt=prompt, response=response)]
    if scorer is not None:
        held |= scorer.held_to_score
        works.append(scorer.forward("scores", scored, prompt + response))
        host = max(host, scorer.weights)
    return Footprint(held, tuple(works), host)


def reserved_by(rollout: Any) -> float:
    """Return the share of a device that the sampler takes."""
    return rollout.vllm.memory_share if rollout.engine == "vllm" else 0.0


def scratch_shape(scratch: Scratch, task: Any) -> Shape:
    """Return the shape of a policy from scratch: a Qwen2 with the task's words, padding, end, unknown."""
    sizes = (scratch.hidden, scratch.layers, scratch.feed_forward, scratch.heads, scratch.heads)
    return Shape(*sizes, vocab=len(task_of(task)(task, None).words or ()) + 3, tied=True)

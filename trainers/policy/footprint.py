"""What the stages of `innovations` and `gspo` hold in memory; see ablation/contract/footprint.py."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from math import ceil
from typing import Any

from pydantic import TypeAdapter

from ablation.contract.footprint import Footprint, ModelAsset, Work
from trainers.footprint import Model, Shape, shape_of, share, training
from trainers.policy.config import PolicyConfig, Scratch
from trainers.tasks import task_of
from trainers.tasks.interface import Task
from trainers.tasks.settings import TaskSettings

PROMPT = 512  # tokens, where a task reads its problems from a file
_ASKED = 100  # problems, of which the longest prompt is taken
_TOKENS_A_PIECE = 1.5  # of the tasks' English; with SmolLM2's tokenizer at most 1.34
_TEMPLATE = 16  # tokens; 14 with two messages in ChatML
_PIECE = re.compile(r"\d|[^\W\d]+|[^\w\s]")
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
    prompt, assumed = _prompt(config)
    if stage in ("warm_start", "reward_model"):
        made = (_warm_start if stage == "warm_start" else _reward_model)(config, policy, prompt, devices)
        return replace(made, notes=(assumed,))
    response, scorer = config.sampling.max_new_tokens, None
    if config.reward.model > 0:
        shape = shape_of(models, "reward_model") if "reward_model" in models else policy
        scorer = Model("reward model", shape, config.precision, devices, critic=True)
    if stage != "reinforce":
        made = evaluating(config, policy, scorer, _SCORED_AT_ONCE, prompt=prompt, response=response, devices=devices)
        return replace(made, notes=(assumed,))
    made = _reinforce(config, policy, prompt, devices)
    if scorer is not None:
        scoring = scorer.forward("rewards", _SCORED_AT_ONCE, prompt + response)
        made = replace(made, held={**made.held, **scorer.held_to_score}, works=(*made.works, scoring))
    return replace(made, notes=(assumed,), reserved=reserved_by(config.rollout))


def _warm_start(config: PolicyConfig, policy: Shape, prompt: int, devices: int) -> Footprint:
    settings, response = config.warm_start, config.sampling.max_new_tokens
    model = Model("policy", policy, config.precision, devices, memory=settings.memory)
    rows = share(settings.batch_size, None, devices)
    works = [model.update("training", rows, prompt + response, predicted=response)]
    if settings.until is not None:
        works.append(model.sampling("sampling", settings.until.problems, prompt=prompt, response=response))
    return training([model], works)


def _reward_model(config: PolicyConfig, policy: Shape, prompt: int, devices: int) -> Footprint:
    """Return what the training of a reward model holds; the policy that it samples from is gone by then."""
    settings, response = config.reward_training, config.sampling.max_new_tokens
    model = Model("reward model", policy, config.precision, devices, critic=True)
    sampled = Model("policy", policy, config.precision, frozen=True)
    sizes = {"group": settings.samples, "prompt": prompt, "response": response}
    draw = sampled.sampling("sampling", settings.sampled_at_once, **sizes)
    with_policy = replace(draw, of_rows=lambda n: draw.of_rows(n) + sampled.weights)
    rows = share(settings.batch_size, settings.micro_batch, devices)
    learn = model.update("training", rows, prompt + response)
    return training([model], [learn, with_policy])


def _reinforce(config: PolicyConfig, policy: Shape, prompt: int, devices: int) -> Footprint:
    response, responses = config.sampling.max_new_tokens, config.rollout.responses
    whole = config.update.reduces == "minibatch"
    model = Model("policy", policy, config.precision, devices, memory=config.memory, whole_gradients=whole)
    reference, models = model.reference if config.kl.coef > 0 else None, [model]
    works = reinforcing(config, model, reference, responses, prompt=prompt, response=response, measured=response)
    if config.advantage.kind == "gae":
        models.append(critic := replace(model, name="critic", critic=True))
        rows = share(ceil(responses / config.update.minibatches), config.update.micro_batch, devices)
        works.append(critic.update("update of the critic", rows, prompt + response))
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
    return Shape(*sizes, vocab=len(_task(task).words or ()) + 3, tied=True)


def _task(settings: Any) -> Task:
    task: Task = task_of(settings)(settings, None)
    return task


def _prompt(config: PolicyConfig) -> tuple[int, str]:
    """Return the tokens of the longest prompt, and what was assumed of it; no tokenizer is read."""
    task, asked = config.task, min(_ASKED, config.data.train)
    longest = None if task.reads_source else _longest(task.model_dump_json(), asked, config.data.seed)
    if longest is None:
        return PROMPT, f"assumed: prompts of {PROMPT} tokens; the task says nothing of them"
    tokens = ceil(_TOKENS_A_PIECE * longest) + _TEMPLATE
    of_piece = f"{_TOKENS_A_PIECE} for each word, sign and digit of the task's longest"
    return tokens, f"assumed: prompts of {tokens} tokens; {of_piece}"


@cache
def _longest(settings: str, asked: int, seed: int) -> int | None:
    """Return the words, signs and digits of the longest prompt of a task's first problems, with the instruction."""
    task = _task(TypeAdapter(TaskSettings).validate_json(settings))
    try:
        problems = task.splits({"warm": 0, "train": asked, "dev": 0, "test": 0}, seed)["train"]
    except ValueError:  # too few problems
        return None
    longest = max(len(_PIECE.findall(problem.prompt)) for problem in problems)
    return longest + len(_PIECE.findall(task.instruction or ""))

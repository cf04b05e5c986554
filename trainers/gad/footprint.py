"""What the stages of `gad` hold in memory; see ablation/contract/footprint.py."""

import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from ablation.contract.footprint import Footprint, ModelAsset, Work
from trainers.footprint.shapes import Shape, shape_of
from trainers.footprint.tensors import drawing, frozen, share
from trainers.footprint.training import Learnt, host_of
from trainers.gad.config import Adversarial, GadConfig
from trainers.policy.footprint import engine_of, scratch_shape

ASSUMED_PROMPT, ASSUMED_RESPONSE = 512, 256  # tokens, where the configuration gives no limit
TRIED = {  # what makes a stage smaller
    "precision.compute": "bfloat16",
    "precision.activation_checkpointing": True,
    "memory.optimizer_states": "8bit",
    "memory.lora": {"rank": 16},
    "seqkd.memory.optimizer_states": "8bit",
    "seqkd.memory.lora": {"rank": 16},
}


def footprint(stage: str, config: GadConfig, models: Mapping[str, ModelAsset], devices: int) -> Footprint | None:
    """Return what a stage holds on each device: its part of what learns; an evaluation has the student whole."""
    from_scratch = "model" not in models
    trains = {
        "base": from_scratch,
        "seqkd": config.seqkd.enabled,
        "warmup": config.warmup.enabled,
        "gad": config.gad.enabled,
    }
    if stage == "data" or not trains.get(stage, True):
        return None
    student = scratch_shape(config.scratch, config.task) if from_scratch else shape_of(models["model"])
    if student is None:
        return Footprint(
            unknown=("the student: no configuration of `model` is on this machine, and its size is not listed",)
        )
    found = _Lengths(config)
    if stage in ("base", "seqkd"):
        return _supervised(stage, config, student, found, devices=devices)
    critic, unknown = _critic(config, student, models)
    if stage in ("warmup", "gad"):
        made = _adversarial(getattr(config, stage), config, student, critic, found, devices=devices)
        unknown += engine_of(config.rollout.engine)
    else:
        scores = stage == "evaluate" and (config.warmup.enabled or config.gad.enabled)
        made = _evaluate(config, student, critic if scores else None, found, devices=devices)
        unknown = unknown if scores else ()
        if "judge" in models:
            judge = shape_of(models["judge"])
            held = frozen("judge", judge.parameters, config.precision) if judge else ()
            made = replace(made, held=(*made.held, *held))
            unknown += (
                () if judge else ("the judge: no configuration of it is on this machine, and its size is not listed",)
            )
    return replace(made, assumed=found.assumed, unknown=unknown)


class _Lengths:
    """Tokens of prompts and responses, and which of them are assumed."""

    def __init__(self, config: GadConfig) -> None:
        given, limit = config.sampling.max_response_length, config.data.max_prompt_length
        self.teacher = given or ASSUMED_RESPONSE
        self.response = math.ceil(self.teacher * config.sampling.length_factor)
        self.measured = math.ceil(self.teacher * config.evaluate.length_factor)
        self.prompt = limit or ASSUMED_PROMPT
        assumed = []
        if config.task is not None:  # generated: prompt and response are within the model's positions
            self.response = self.measured = self.teacher = config.scratch.positions // 2
            self.prompt = config.scratch.positions // 2
            assumed.append(f"prompts and responses of {self.prompt} tokens each: halves of scratch.positions")
        elif limit is None:
            assumed.append(f"prompts of {ASSUMED_PROMPT} tokens: data.max_prompt_length is null")
        if config.task is None and given is None:
            assumed.append(f"a teacher's 99th percentile of {ASSUMED_RESPONSE} tokens: it is counted by the stage data")
        self.assumed = tuple(assumed)


def _supervised(stage: str, config: GadConfig, student: Shape, found: _Lengths, *, devices: int) -> Footprint:
    settings = config.seqkd if stage == "seqkd" else config.base
    memory, micro_batch = (config.seqkd.memory, config.seqkd.micro_batch) if stage == "seqkd" else (None, None)
    rows = share(settings.batch_size, micro_batch, devices)
    learnt = Learnt("student", student, config.precision, devices, memory=memory)
    tokens = found.prompt + found.teacher
    works = (learnt.update("training", rows, tokens, predicted=found.teacher),)
    return Footprint(learnt.held, works, host_of([learnt]), assumed=found.assumed)


def _critic(
    config: GadConfig, student: Shape, models: Mapping[str, ModelAsset]
) -> tuple[Shape | None, tuple[str, ...]]:
    if config.critic.init != "reward_model" or "reward_model" not in models:
        return student, ()
    shape = shape_of(models["reward_model"])
    unknown = "the critic: no configuration of `reward_model` is on this machine, and its size is not listed"
    return shape, () if shape else (unknown,)


def _adversarial(
    settings: Adversarial,
    config: GadConfig,
    student: Shape,
    critic: Shape | None,
    found: _Lengths,
    *,
    devices: int,
) -> Footprint:
    rollout, precision = config.rollout, config.precision
    responses, group, length = rollout.prompts * rollout.group_size, rollout.group_size, found.prompt + found.response
    at_once = share(responses, rollout.batch_size, devices)
    rows = share(-(-responses // config.update.minibatches), config.update.micro_batch, devices)
    scored = share(responses, config.update.micro_batch, devices)
    learnt = Learnt("student", student, precision, devices, memory=config.memory)
    entropy = "learnt" if config.update.entropy_coef > 0 else "dropped"
    held, learners = list(learnt.held), [learnt]
    works: list[Work] = [
        learnt.drawing("sampling", rows=at_once, group=group, prompt=found.prompt, response=found.response),
        learnt.drawing(
            "measuring", rows=config.evaluate.batch_size, group=1, prompt=found.prompt, response=found.measured
        ),
        learnt.update("update of the student", rows, length, predicted=found.response, entropy=entropy),
    ]
    if settings._has_reference:
        held += learnt.reference
        name = "reference's log-probabilities"
        works.append(learnt.forward(name, scored, length, predicted=found.response, frozen=True))
    if rollout.recompute_logps:
        works.append(learnt.forward("old log-probabilities", scored, length, predicted=found.response))
    if critic is not None:
        scores = Learnt("critic", critic, precision, devices, critic=True, memory=config.memory)
        held += scores.held
        learners.append(scores)
        minibatches = config.critic.minibatches or config.update.minibatches
        prompts = share(-(-rollout.prompts // minibatches), config.critic.micro_batch, devices)
        # A row is a prompt: the teacher's response and those of the group go through in one graph.
        works.append(scores.update("update of the critic (rows are prompts)", prompts, (1 + group) * length))
        works.append(scores.forward("scores", at_once, length))
    host = host_of(learners, reference=settings._has_reference)
    return Footprint(tuple(held), tuple(works), host)


def _evaluate(config: GadConfig, student: Shape, critic: Shape | None, found: _Lengths, *, devices: int) -> Footprint:
    rows, precision = config.evaluate.batch_size, config.precision
    held = list(frozen("student", student.parameters, precision))
    sizes: dict[str, Any] = {"rows": rows, "prompt": found.prompt, "response": found.measured, "group": 1}
    works: list[Work] = [drawing("sampling", student, precision, frozen=True, **sizes)]
    # Each is loaded on the machine and then moved to the device, one after the other; the student in each process.
    host = devices * held[0].size
    if critic is not None:
        scores = Learnt("critic", critic, precision, devices, critic=True)
        held.append(scores.held[0])  # its weights
        works.append(scores.forward("scores", rows, found.prompt + found.measured))
        host = max(host, scores.start)
    return Footprint(tuple(held), tuple(works), {"weights": host})

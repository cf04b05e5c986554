"""What the stages of `gad` hold in memory; see contract/footprint.py."""

import math
from collections.abc import Callable, Mapping
from functools import partial

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
from trainers.gad.config import Adversarial, GadConfig
from trainers.policy.footprint import scratch_shape

ASSUMED_PROMPT, ASSUMED_RESPONSE = 512, 256  # tokens, where the configuration gives no limit
TRIED = {"precision.compute": "bfloat16", "precision.activation_checkpointing": True}  # what makes a stage smaller


def footprint(stage: str, config: GadConfig, models: Mapping[str, ModelAsset], devices: int) -> Footprint | None:
    """Return what a stage holds: a training divided among its devices, an evaluation on its first."""
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
        return _supervised(stage, config, student, found)
    if stage in ("warmup", "gad"):
        return _adversarial(getattr(config, stage), config, student, found, models)
    return _evaluate(stage, config, student, found, models)


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


def _supervised(stage: str, config: GadConfig, student: Shape, found: _Lengths) -> Footprint:
    settings = config.seqkd if stage == "seqkd" else config.base
    rows = (config.seqkd.micro_batch if stage == "seqkd" else None) or settings.batch_size

    def learning(n: int) -> dict[str, int]:
        return update(
            student, config.precision, n * (found.prompt + found.teacher), predicted=n * found.teacher, entropy="kept"
        )

    parameters = student.parameters
    return Footprint(
        trained("student", parameters),
        (work("training", rows, learning, gathered(student)),),
        {"checkpoint": checkpoint(parameters, tied=twice(student))},
        sharded=True,
        start=FLOAT * parameters,
        assumed=found.assumed,
    )


def _critic(
    config: GadConfig, student: Shape, models: Mapping[str, ModelAsset]
) -> tuple[Shape | None, tuple[str, ...]]:
    if config.critic.init != "reward_model" or "reward_model" not in models:
        return student, ()
    shape = shape_of(models["reward_model"])
    unknown = "the critic: no configuration of `reward_model` is on this machine, and its size is not listed"
    return shape, () if shape else (unknown,)


def _adversarial(
    settings: Adversarial, config: GadConfig, student: Shape, found: _Lengths, models: Mapping[str, ModelAsset]
) -> Footprint:
    rollout, precision = config.rollout, config.precision
    responses, group, length = rollout.prompts * rollout.group_size, rollout.group_size, found.prompt + found.response
    at_once = rollout.batch_size or responses
    rows = config.update.micro_batch or -(-responses // config.update.minibatches)
    scored = config.update.micro_batch or responses
    critic, unknown = _critic(config, student, models)
    draw = partial(drawing, shape=student, precision=precision, prompt=found.prompt)
    divided = gathered(student)

    def passing(*, frozen: bool) -> Callable[[int], dict[str, int]]:
        return lambda n: forward(student, precision, n * length, predicted=n * found.response, frozen=frozen)

    def learning(n: int) -> dict[str, int]:
        entropy = "learnt" if config.update.entropy_coef > 0 else "dropped"
        return update(student, precision, n * length, predicted=n * found.response, entropy=entropy)

    held: list[Held] = list(trained("student", student.parameters))
    works = [
        draw("sampling", rows=at_once, group=group, response=found.response),
        draw("measuring", rows=config.evaluate.batch_size, group=1, response=found.measured),
        work("update of the student", rows, learning, divided),
    ]
    saved = [student.parameters]
    if settings.kl_coef > 0:
        held += frozen("reference", student.parameters, precision)
        works.append(work("reference's log-probabilities", scored, passing(frozen=True), divided))
    if rollout.recompute_logps:
        works.append(work("old log-probabilities", scored, passing(frozen=False), divided))
    if critic is not None:
        parameters = critic.body + critic.hidden + 1
        held += trained("critic", parameters)
        saved.append(parameters)
        prompts = config.critic.micro_batch or -(-rollout.prompts // config.critic.minibatches)
        # A row is a prompt: the teacher's response and those of the group go through in one graph.
        name, each = "update of the critic (rows are prompts)", (1 + group) * length
        works.append(work(name, prompts, lambda n: update(critic, precision, n * each), gathered(critic)))
        works.append(work("scores", at_once, lambda n: forward(critic, precision, n * length), gathered(critic)))
    return Footprint(
        tuple(held),
        tuple(works),
        {"checkpoint": checkpoint(*saved, tied=twice(student))},
        sharded=True,
        # The reference is copied before the student is divided.
        start=(2 if settings.kl_coef > 0 else 1) * FLOAT * student.parameters,
        assumed=found.assumed,
        unknown=unknown,
    )


def _evaluate(
    stage: str, config: GadConfig, student: Shape, found: _Lengths, models: Mapping[str, ModelAsset]
) -> Footprint:
    rows, precision, lengths = config.evaluate.batch_size, config.precision, (found.prompt, found.measured)
    draw = partial(drawing, prompt=found.prompt, response=found.measured, frozen=True)
    held = list(frozen("student", student.parameters, precision))
    works: list[Work] = [draw("sampling", student, precision, rows=rows, group=1)]
    unknown: tuple[str, ...] = ()
    if stage == "evaluate" and (config.warmup.enabled or config.gad.enabled):
        critic, unknown = _critic(config, student, models)
        if critic is not None:
            held.append(Held("critic: weights", FLOAT * (critic.body + critic.hidden + 1)))
            works.append(work("scores", rows, lambda n: forward(critic, precision, n * sum(lengths))))
    # Each is loaded on the machine and then moved to the device, one after the other.
    host = {"weights": max(part.size for part in held)}
    return Footprint(tuple(held), tuple(works), host, assumed=found.assumed, unknown=unknown)

"""What the stages of `gad` hold in memory; see ablation/contract/footprint.py."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil
from typing import NamedTuple

from ablation.contract.footprint import Footprint, ModelAsset
from trainers.footprint import Model, Shape, shape_of, share, training
from trainers.gad.config import GadConfig
from trainers.policy.footprint import TRIED as OF_POLICY
from trainers.policy.footprint import evaluating, reinforcing, reserved_by, scratch_shape

PROMPT, RESPONSE = 512, 256  # tokens, where the configuration gives no limit
TRIED = {**OF_POLICY, "seqkd.memory.lora": {"rank": 16}}


def footprint(stage: str, config: GadConfig, models: Mapping[str, ModelAsset], devices: int) -> Footprint | None:
    """Return what a stage holds on each device: its part of what learns; an evaluation has the student whole."""
    from_scratch = "model" not in models
    trains = {
        "data": False,
        "base": from_scratch,
        "seqkd": config.seqkd.enabled,
        "warmup": config.warmup.enabled,
        "gad": config.gad.enabled,
    }
    if not trains.get(stage, True):
        return None
    student = scratch_shape(config.scratch, config.task) if from_scratch else shape_of(models, "model")
    tokens, notes = _tokens(config)
    if stage in ("base", "seqkd"):
        return replace(_supervised(stage, config, student, tokens, devices), notes=notes)
    critic = shape_of(models, "reward_model") if config.critic.init == "reward_model" else student
    if stage in ("warmup", "gad"):
        whole_gradients = config.update.reduces == "minibatch"
        learns = Model(
            "student", student, config.precision, devices, memory=config.memory, whole_gradients=whole_gradients
        )
        made = _adversarial(stage, config, learns, critic, tokens)
        return replace(made, notes=notes, reserved=reserved_by(config.rollout))
    scored = stage == "evaluate" and (config.warmup.enabled or config.gad.enabled)
    scorer = Model("critic", critic, config.precision, devices, critic=True) if scored else None
    rows, sizes = config.evaluate.batch_size, {"prompt": tokens.prompt, "response": tokens.measured}
    return replace(evaluating(config, student, scorer, rows, **sizes, devices=devices), notes=notes)


class _Tokens(NamedTuple):
    """Of prompts, the teacher's responses, the student's in training and in an evaluation."""

    prompt: int
    teacher: int
    response: int
    measured: int


def _tokens(config: GadConfig) -> tuple[_Tokens, tuple[str, ...]]:
    """Return lengths and what was assumed of them."""
    if config.task is not None:  # generated: prompt and response are within the model's positions
        half = config.scratch.positions // 2
        return _Tokens(half, half, half, half), (f"assumed: prompts and responses of {half} tokens each",)
    prompt, teacher = config.data.max_prompt_length, config.sampling.max_response_length
    notes = [] if prompt else [f"assumed: prompts of {PROMPT} tokens; data.max_prompt_length is null"]
    if not teacher:
        notes.append(f"assumed: a teacher's 99th percentile of {RESPONSE} tokens; the stage data counts it")
    teacher = teacher or RESPONSE
    drawn, measured = (ceil(teacher * settings.length_factor) for settings in (config.sampling, config.evaluate))
    return _Tokens(prompt or PROMPT, teacher, drawn, measured), tuple(notes)


def _supervised(stage: str, config: GadConfig, student: Shape, tokens: _Tokens, devices: int) -> Footprint:
    batch, at_once, memory = config.base.batch_size, None, None
    if stage == "seqkd":
        batch, at_once, memory = config.seqkd.batch_size, config.seqkd.micro_batch, config.seqkd.memory
    model = Model("student", student, config.precision, devices, memory=memory)
    rows, length = share(batch, at_once, devices), tokens.prompt + tokens.teacher
    work = model.update("training", rows, length, predicted=tokens.teacher)
    return training([model], [work])


def _adversarial(stage: str, config: GadConfig, student: Model, critic: Shape, tokens: _Tokens) -> Footprint:
    rollout, devices, both = config.rollout, student.devices, tokens.prompt + tokens.response
    responses, group = rollout.prompts * rollout.group_size, rollout.group_size
    reference = student.reference if getattr(config, stage)._has_reference else None
    sizes = {"prompt": tokens.prompt, "response": tokens.response, "measured": tokens.measured}
    scores = replace(student, name="critic", shape=critic, critic=True, whole_gradients=False)
    prompts = share(ceil(rollout.prompts / config.update.minibatches), config.critic.micro_batch, devices)
    works = [
        *reinforcing(config, student, reference, responses, **sizes),
        # A row is a prompt: the teacher's response and those of the group go through in one graph.
        scores.update("update of the critic (rows are prompts)", prompts, (1 + group) * both),
        scores.forward("scores", share(responses, rollout.batch_size, devices), both),
    ]
    return training([student, scores], works, reference)

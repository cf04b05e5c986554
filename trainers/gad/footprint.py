"""What the stages of `gad` hold in memory; see ablation/contract/footprint.py."""

from collections.abc import Mapping
from dataclasses import replace
from math import ceil

from ablation.contract.footprint import Footprint, ModelAsset
from trainers.footprint import Model, Shape, Shapes, share, training
from trainers.gad.config import GadConfig
from trainers.policy.footprint import TRIED as OF_POLICY
from trainers.policy.footprint import engine_of, reinforcing, scratch_shape

ASSUMED_PROMPT, ASSUMED_RESPONSE = 512, 256  # tokens, where the configuration gives no limit
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
    shapes, found = Shapes(models), _Lengths(config)
    student = scratch_shape(config.scratch, config.task) if from_scratch else shapes.of("model", "student")
    if student is None:
        return Footprint(unknown=shapes.unknown)
    if stage in ("base", "seqkd"):
        return replace(_supervised(stage, config, student, found, devices), assumed=found.assumed)
    adversarial = stage in ("warmup", "gad")
    critic: Shape | None = None
    if adversarial or (stage == "evaluate" and (config.warmup.enabled or config.gad.enabled)):
        reads = config.critic.init == "reward_model" and "reward_model" in models
        critic = shapes.of("reward_model", "critic") if reads else student
    if adversarial:
        learns = Model("student", student, config.precision, devices, memory=config.memory)
        made = _adversarial(stage, config, learns, critic, found)
    else:
        made = _evaluate(config, student, critic, found, devices)
    unknown = shapes.unknown + (engine_of(config.rollout.engine) if adversarial else ())
    return replace(made, assumed=found.assumed, unknown=unknown)


class _Lengths:
    """Tokens of prompts and responses, and which of them are assumed."""

    def __init__(self, config: GadConfig) -> None:
        given, limit = config.sampling.max_response_length, config.data.max_prompt_length
        self.teacher = given or ASSUMED_RESPONSE
        self.response = ceil(self.teacher * config.sampling.length_factor)
        self.measured = ceil(self.teacher * config.evaluate.length_factor)
        self.prompt = limit or ASSUMED_PROMPT
        assumed = []
        if config.task is not None:  # generated: prompt and response are within the model's positions
            self.prompt = self.response = self.measured = self.teacher = config.scratch.positions // 2
            assumed.append(f"prompts and responses of {self.prompt} tokens each: halves of scratch.positions")
        elif limit is None:
            assumed.append(f"prompts of {ASSUMED_PROMPT} tokens: data.max_prompt_length is null")
        if config.task is None and given is None:
            assumed.append(f"a teacher's 99th percentile of {ASSUMED_RESPONSE} tokens: it is counted by the stage data")
        self.assumed = tuple(assumed)


def _supervised(stage: str, config: GadConfig, student: Shape, found: _Lengths, devices: int) -> Footprint:
    rows, memory = share(config.base.batch_size, None, devices), None
    if stage == "seqkd":
        rows, memory = share(config.seqkd.batch_size, config.seqkd.micro_batch, devices), config.seqkd.memory
    model = Model("student", student, config.precision, devices, memory=memory)
    return training([model], [model.update("training", rows, found.prompt + found.teacher, predicted=found.teacher)])


def _adversarial(stage: str, config: GadConfig, student: Model, critic: Shape | None, found: _Lengths) -> Footprint:
    rollout, minibatches = config.rollout, config.update.minibatches
    group, tokens, devices = rollout.group_size, found.prompt + found.response, student.devices
    responses, settings = rollout.prompts * group, getattr(config, stage)
    reference, models = student.reference if settings._has_reference else None, [student]
    sizes = {"prompt": found.prompt, "response": found.response, "measured": found.measured}
    works = reinforcing(config, student, reference, responses, **sizes)
    if critic is not None:
        models.append(scores := replace(student, name="critic", shape=critic, critic=True))
        prompts = share(ceil(rollout.prompts / minibatches), config.critic.micro_batch, devices)
        # A row is a prompt: the teacher's response and those of the group go through in one graph.
        works.append(scores.update("update of the critic (rows are prompts)", prompts, (1 + group) * tokens))
        works.append(scores.forward("scores", share(responses, rollout.batch_size, devices), tokens))
    return training(models, works, reference)


def _evaluate(config: GadConfig, student: Shape, critic: Shape | None, found: _Lengths, devices: int) -> Footprint:
    rows, model = config.evaluate.batch_size, Model("student", student, config.precision, frozen=True)
    held, works = model.held, [model.sampling("sampling", rows, prompt=found.prompt, response=found.measured)]
    # Each is loaded on the machine and then moved to the device, one after the other; the student in each process.
    host = devices * model.weights
    if critic is not None:
        scores = Model("critic", critic, config.precision, devices, critic=True)
        held |= scores.held_to_score
        works.append(scores.forward("scores", rows, found.prompt + found.measured))
        host = max(host, scores.weights)
    return Footprint(held, tuple(works), {"weights": host})

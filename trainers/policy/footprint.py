"""What the stages of `innovations` and `gspo` hold in memory; see ablation/contract/footprint.py."""

from collections.abc import Mapping
from dataclasses import replace
from importlib import import_module
from typing import Any

from ablation.contract.footprint import Footprint, Held, ModelAsset, Work
from trainers.footprint.shapes import Shape, shape_of
from trainers.footprint.tensors import drawing, frozen, share, weight_size
from trainers.footprint.training import Learnt, host_of
from trainers.policy.config import PolicyConfig, Scratch
from trainers.tasks import TASKS

ASSUMED_PROMPT = 512  # tokens, where nothing limits a prompt
_SCORED_AT_ONCE = 64  # responses, by a reward model
_SPECIAL = 3  # of the word-level tokenizer: padding, end, unknown
TRIED = {  # what makes a stage smaller
    "precision.compute": "bfloat16",
    "precision.activation_checkpointing": True,
    "memory.optimizer_states": "8bit",
    "memory.lora": {"rank": 16},
}


def footprint(stage: str, config: PolicyConfig, models: Mapping[str, ModelAsset], devices: int) -> Footprint | None:
    """Return what a stage holds on each device: a training's part of its models; an evaluation has them whole."""
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
    if stage == "warm_start":
        return replace(_warm_start(config, policy, prompt, devices), assumed=assumed)
    if stage == "judge":
        return replace(_judge(config, policy, prompt, devices), assumed=assumed)
    reward, scoring, unknown = _reward_model(config, models, policy, prompt + config.sampling.max_new_tokens, devices)
    if stage == "reinforce":
        made = _reinforce(config, policy, prompt, devices)
        unknown += engine_of(config.rollout.engine)
        held, works = (*made.held, *reward), (*made.works, *scoring)
        return replace(made, held=held, works=works, assumed=assumed, unknown=unknown)
    sizes: dict[str, Any] = {"prompt": prompt, "response": config.sampling.max_new_tokens, "group": 1}
    draw = drawing("sampling", policy, config.precision, rows=config.evaluate.batch_size, frozen=True, **sizes)
    works = (draw, *scoring)
    held = (*frozen("policy", policy.parameters, config.precision), *reward)
    # Each is loaded on the machine and then moved to the device, one after the other, in each process.
    host = {"weights": devices * max(part.size for part in held)}
    return Footprint(held, works, host, assumed=assumed, unknown=unknown)


def _warm_start(config: PolicyConfig, policy: Shape, prompt: int, devices: int) -> Footprint:
    settings, response = config.warm_start, config.sampling.max_new_tokens
    learnt = Learnt("policy", policy, config.precision, devices, memory=settings.memory)
    tokens = prompt + response
    works = [learnt.update("training", share(settings.batch_size, None, devices), tokens, predicted=response)]
    if settings.until is not None:
        works.append(
            learnt.drawing("sampling", rows=settings.until.problems, group=1, prompt=prompt, response=response)
        )
    return Footprint(learnt.held, tuple(works), host_of([learnt]))


def _judge(config: PolicyConfig, policy: Shape, prompt: int, devices: int) -> Footprint:
    """Return what the training of a reward model holds; the policy that it samples from is gone by then."""
    settings, response = config.reward_training, config.sampling.max_new_tokens
    learnt = Learnt("reward model", policy, config.precision, devices, critic=True)
    sizes: dict[str, Any] = {
        "rows": settings.sampled_at_once,
        "group": settings.samples,
        "prompt": prompt,
        "response": response,
    }
    draw = drawing("sampling", policy, config.precision, frozen=True, **sizes)
    whole = weight_size(config.precision) * policy.parameters
    parts = {**draw.parts, "policy": whole}
    rows = share(settings.batch_size, settings.micro_batch, devices)
    learn = learnt.update("training", rows, prompt + response)
    return Footprint(learnt.held, (learn, replace(draw, parts=parts, least=draw.least + whole)), host_of([learnt]))


def _reinforce(config: PolicyConfig, policy: Shape, prompt: int, devices: int) -> Footprint:
    rollout, response = config.rollout, config.sampling.max_new_tokens
    micro_batch = config.update.micro_batch
    rows = share(-(-rollout.responses // config.update.minibatches), micro_batch, devices)
    at_once = share(rollout.responses, micro_batch, devices)
    learnt = Learnt("policy", policy, config.precision, devices, memory=config.memory)
    tokens, predicted, sizes = prompt + response, response, {"prompt": prompt, "response": response}
    entropy = "learnt" if config.update.entropy_coef > 0 else "dropped"
    drawn = share(rollout.responses, rollout.batch_size, devices)
    held, learners = list(learnt.held), [learnt]
    works: list[Work] = [
        learnt.drawing("sampling", rows=drawn, group=rollout.group_size, **sizes),
        learnt.drawing("measuring", rows=config.evaluate.batch_size, group=1, **sizes),
        learnt.update("update of the policy", rows, tokens, predicted=predicted, entropy=entropy),
    ]
    if config.kl.coef > 0:
        held += learnt.reference
        name = "reference's log-probabilities"
        works.append(learnt.forward(name, at_once, tokens, predicted=predicted, frozen=True))
    if rollout.recompute_logps:
        works.append(learnt.forward("old log-probabilities", at_once, tokens, predicted=predicted))
    if config.advantage == "gae":
        critic = Learnt("critic", policy, config.precision, devices, critic=True, memory=config.memory)
        held += critic.held
        learners.append(critic)
        works.append(critic.update("update of the critic", rows, tokens))
    return Footprint(tuple(held), tuple(works), host_of(learners, reference=config.kl.coef > 0))


def engine_of(engine: str) -> tuple[str, ...]:
    """Return what is not known of the sampler."""
    return ("the engine: vLLM takes rollout.vllm.memory_share of a device",) if engine == "vllm" else ()


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
    config: PolicyConfig, models: Mapping[str, ModelAsset], policy: Shape, tokens: int, devices: int
) -> tuple[tuple[Held, ...], tuple[Work, ...], tuple[str, ...]]:
    """Return what the reward model holds, in float32, what scoring takes, and what is not known of it."""
    if config.reward.model == 0:
        return (), (), ()
    shape = shape_of(models["reward_model"]) if "reward_model" in models else policy
    if shape is None:
        unknown = "the reward model: no configuration of it is on this machine, and its size is not listed"
        return (), (), (unknown,)
    model = Learnt("reward model", shape, config.precision, devices, critic=True)
    return model.held[:1], (model.forward("rewards", _SCORED_AT_ONCE, tokens),), ()  # its weights alone

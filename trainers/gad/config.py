"""Configuration of the study `gad`: generative adversarial distillation in three stages.

The defaults are those of the GAD notes, as far as they state them. `_study.yaml` names `GadConfig`; this module imports
only pydantic, so that validating and planning do not need torch. Every field has a default, because a stage gets only
the keys that it reads. Settings that are shared with `innovations` and `gspo` are in `trainers.policy.config`.
"""

import math
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablation.contract.absent import Absent
from trainers.assets_config import Asset, Strict
from trainers.policy.config import (
    ClipRange,
    Memory,
    Precision,
    Sampled,
    Scratch,
    UpdateSettings,
)
from trainers.tasks.settings import TemplatedLists

# Keys that only the stages `warmup` and `gad` use.
ADVERSARIAL = (
    *("sampling", "rollout", "pooling", "advantage", "ratio", "clip", "update"),
    *("critic", "reward_model", "discriminator", "memory"),
)


class Data(Strict):
    """Prompts per split. Choices are made on the development split; only the evaluation reads the test split."""

    train: int | None = Field(default=2000, ge=1, description="Number of training prompts; null: all other rows.")
    dev: int | float = Field(default=200, gt=0, description="Number of development prompts; below 1: share of rows.")
    test: int | float = Field(default=200, gt=0, description="Number of test prompts; below 1: share of rows.")
    base: int = Field(default=2000, ge=1, description="Number of worked responses that train a model from scratch.")
    seed: int = Field(default=0, ge=0, description="Seed of prompts and splits, shared by all training seeds.")
    max_prompt_length: int | None = Field(
        default=None, ge=1, description="Longest prompt in tokens; longer prompts are left out; null: no limit."
    )

    @model_validator(mode="after")
    def _sizes(self) -> Self:
        for name, size in (("dev", self.dev), ("test", self.test)):
            if size >= 1 and size != int(size):
                raise ValueError(f"`{name}` {size} is not valid; set a whole number of rows, or a share below 1")
        if self.dev < 1 and self.test < 1 and self.dev + self.test > 1:
            raise ValueError(f"the shares `dev` {self.dev} and `test` {self.test} add up to more than 1; lower one")
        return self


class Base(Strict):
    """Training of a small model from scratch on flawed worked responses, if `model` is null."""

    steps: int = Field(default=300, ge=1, description="Optimizer steps.")
    batch_size: int = Field(default=48, ge=1, description="Responses per step.")
    lr: float = Field(
        default=3e-3,
        gt=0,
        le=1,
        description="Peak of the learning rate, which rises linearly over the first tenth of the steps and then falls "
        "to 0 along a cosine.",
    )


class SeqKD(Strict):
    """Stage 1: supervised training on the teacher's responses, shared by all variants of a seed."""

    enabled: bool = Field(default=True, description="Whether the stage runs; false: the base model is the student.")
    epochs: int = Field(default=4, ge=1, description="Passes over the training prompts.")
    max_steps: int | None = Field(default=None, ge=1, description="Largest number of steps; null: no limit.")
    batch_size: int = Field(default=256, ge=1, description="Prompts per step.")
    micro_batch: int | None = Field(
        default=None, ge=1, description="Prompts per forward and backward pass; null: batch_size."
    )
    lr: float = Field(default=5e-6, gt=0, le=1, description="Constant learning rate.")
    memory: Annotated[Memory, Absent({})] = Field(default=Memory(), description="Ways to save memory.")


class Adversarial(Strict):
    """Adversarial stage, each step of which samples and scores responses and then updates student and critic."""

    enabled: bool = Field(default=True, description="Whether the stage runs.")
    epochs: int = Field(default=2, ge=1, description="Passes over the training prompts.")
    max_steps: int | None = Field(default=None, ge=1, description="Largest number of steps; null: no limit.")
    critic_warmup: int = Field(default=0, ge=0, description="Number of initial steps in which only the critic learns.")
    actor_lr: float = Field(default=1e-6, gt=0, le=1, description="Constant learning rate of the student.")
    critic_lr: float = Field(default=1e-6, gt=0, le=1, description="Constant learning rate of the critic.")
    kl_coef: float = Field(
        default=0.001, ge=0, description="Weight of the KL to the student at the start of the stage (k3 estimator)."
    )
    student: Literal["gspo", "cross_entropy"] = Field(
        default="gspo",
        description="Objective of the student. gspo: policy optimisation with the critic's scores as rewards; "
        "cross_entropy: supervised training on the teacher's responses.",
    )


class Sampling(Strict):
    """Sampling of the student's responses."""

    temperature: float | None = Field(default=0.8, gt=0, description="Temperature of sampling; null: greedy.")
    max_response_length: int | None = Field(
        default=None, ge=1, description="Longest response, in tokens; null: 99th percentile of the teacher's lengths."
    )
    length_factor: float = Field(default=1.0, gt=0, description="Factor by which max_response_length is multiplied.")


class Rollout(Sampled):
    """Responses of a step, `prompts * group_size` in all."""

    prompts: int = Field(default=256, ge=1, description="Prompts per step.")
    group_size: int = Field(default=8, ge=2, description="Responses per prompt.")


class Update(UpdateSettings):
    """Updates of the student on a step's responses; the critic takes `minibatches` optimizer steps per pass, too."""

    epochs: int = Field(default=1, ge=1, description="Passes over a step's responses.")


class Critic(Strict):
    """Critic: a language model's body, with a head that gives each response token a score."""

    init: Literal["student", "reward_model"] = Field(
        default="student",
        description="Initial critic: a copy of the initial student with a new head, or the asset `reward_model`.",
    )
    head_std: float = Field(default=0.02, ge=0, description="Standard deviation of the initial weights of a new head.")
    micro_batch: int | None = Field(
        default=None, ge=1, description="Prompts per forward and backward pass; null: a whole minibatch."
    )
    end_token: bool = Field(default=True, description="Whether the critic sees the teacher's end token.")
    betas: tuple[float, float] = Field(default=(0.9, 0.99), description="Decay rates of AdamW's moments.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Norm to which larger gradients are clipped.")


class Original(Strict):
    """Loss of d-original, the ranking loss of raw scores alone."""

    kind: Literal["original"] = "original"


class Hinge(Strict):
    """Settings that the losses of d-v1 and d-v2 share; score differences are the teacher's minus the student's."""

    margin: float = Field(default=1.0, description="Score difference below which the lower hinge acts.")
    temperature: float = Field(default=2.0, gt=0, description="Temperature of the ranking loss.")
    ranking_weight: float = Field(default=0.5, ge=0, description="Weight of the ranking loss.")


class LowerHinge(Hinge):
    """Loss of d-v1: `relu(margin - diff) + ranking_weight * ranking`, with the score difference `diff`."""

    kind: Literal["v1"] = "v1"


class TwoHinges(Hinge):
    """Loss of d-v2: the loss of d-v1 plus `relu(diff - max_margin)`."""

    kind: Literal["v2"] = "v2"
    max_margin: float = Field(default=5.0, description="Score difference above which the upper hinge acts.")
    upper_on: Literal["pooled", "raw"] = Field(
        default="pooled", description="Scores that the upper hinge compares: pooled by `pooling`, or raw."
    )


class Balanced(Strict):
    """Loss of d-final: `ranking_weight * ranking` plus penalties on large raw scores and large score differences."""

    kind: Literal["final"] = "final"
    temperature: float = Field(default=2.0, gt=0, description="Temperature of the ranking loss.")
    ranking_weight: float = Field(default=1.5, ge=0, description="Weight of the ranking loss.")
    score_reg: float = Field(default=0.005, ge=0, description="Weight of the squared raw scores (teacher, student).")
    penalty_threshold: float = Field(default=1.5, description="Score difference above which the penalty acts.")
    penalty_weight: float = Field(default=0.5, ge=0, description="Weight of relu(diff - penalty_threshold)^2.")


Discriminator = Annotated[Original | LowerHinge | TwoHinges | Balanced, Field(discriminator="kind")]


class Evaluate(Strict):
    """Evaluation of a student, whose sampling settings do not depend on those of training."""

    checkpoints: int = Field(default=1, ge=1, description="Number of last students to average sampled results over.")
    samples: int = Field(default=4, ge=1, description="Sampled responses per prompt.")
    temperature: float = Field(default=0.8, gt=0, description="Sampling temperature.")
    length_factor: float = Field(
        default=1.5, gt=0, description="Longest response as a multiple of the 99th percentile of the teacher's lengths."
    )
    batch_size: int = Field(default=512, ge=1, description="Responses per batch.")
    seed: int = Field(default=0, ge=0, description="Sampling seed, shared by all variants and training seeds.")


class GadConfig(Strict):
    """Everything that a variant of `gad` may change."""

    task: TemplatedLists | None = Field(
        default=TemplatedLists(), description="Task that generates prompts and teacher responses; null: `data_source`."
    )
    data: Data = Field(default=Data(), description="Prompts per split.")
    data_source: Asset | None = Field(default=None, description="File of prompts with the teacher's responses.")
    validation_source: Asset | None = Field(
        default=None, description="File of the development and test rows; null: they are taken from `data_source`."
    )
    model: Asset | None = Field(default=None, description="Initial student; null: a small model from scratch.")
    reward_model: Asset | None = Field(
        default=None, description="Initial critic if critic.init is reward_model: a classifier or a language model."
    )
    scratch: Scratch = Field(default=Scratch(), description="Size of a model from scratch.")
    base: Base = Field(default=Base(), description="Training of a model from scratch.")
    seqkd: SeqKD = Field(default=SeqKD(), description="Stage 1: supervised training on the teacher's responses.")
    warmup: Adversarial = Field(
        default=Adversarial(critic_warmup=10, critic_lr=5e-6),
        description="Stage 2: the critic learns, and after critic_warmup steps the student too.",
    )
    gad: Adversarial = Field(default=Adversarial(epochs=4), description="Stage 3: critic and student learn.")
    sampling: Sampling = Field(default=Sampling(), description="Sampling of the student's responses in training.")
    rollout: Rollout = Field(default=Rollout(), description="How the responses of a step are sampled.")
    pooling: Literal["mean", "sum", "last", "last_per_token"] = Field(
        default="last",
        description="Score of a response: the mean or sum of its tokens' scores, the last token's score (last), or the "
        "latter divided by the number of tokens (last_per_token).",
    )
    advantage: Literal["relative", "normalized"] = Field(
        default="normalized",
        description="Advantage: the reward minus the group's mean (relative), or this divided by the group's standard "
        "deviation (normalized).",
    )
    ratio: Literal["token", "gspo", "gspo_token"] = Field(
        default="gspo",
        description="Importance ratio: one per token (token), or the geometric mean over a response (gspo, and "
        "gspo_token, in which each token has its own gradient).",
    )
    clip: ClipRange = Field(default=ClipRange(clip_low=0.1, clip_high=0.1), description="Clip range of the ratio.")
    update: Update = Field(default=Update(), description="Updates of the student.")
    critic: Critic = Field(default=Critic(), description="The critic's network and its updates.")
    discriminator: Discriminator = Field(default=Balanced(), description="The critic's loss.")
    precision: Precision = Field(default=Precision(), description="Precision and activation checkpointing.")
    memory: Annotated[Memory, Absent({})] = Field(
        default=Memory(), description="Ways to save memory in stages 2 and 3."
    )
    checkpoint_every: int = Field(default=10, ge=1, description="Steps between checkpoints.")
    keep_checkpoints: int | None = Field(
        default=None, ge=1, description="Steps between models that are kept for `export --step`; null: none is kept."
    )
    evaluate: Evaluate = Field(default=Evaluate(), description="Evaluation.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if type(self) is not GadConfig:  # what a stage reads of a configuration that has been checked as a whole
            return self
        refused = self.rollout._refused(self.memory, self.sampling.temperature or 1.0, None)
        problems = [
            (self.task is None and self.data_source is None, "task null needs prompts; set data_source"),
            *((True, problem) for problem in refused),
            (self.task is None and self.model is None, "task null needs a pretrained model; set `model`"),
            (
                self.task is not None and self.data.train is None,
                "data.train is null, but a generated task needs a number; set data.train to 1 or more",
            ),
            (
                self.task is not None and min(self.data.dev, self.data.test) < 1,
                "data.dev and data.test must be numbers, not shares, for a generated task; set both to 1 or more",
            ),
            (
                self.validation_source is None and self.data.dev + self.data.test == 1,
                "data.dev and data.test take the whole file, so nothing is left to train on; lower one of them",
            ),
            (
                self.task is not None and self.data.max_prompt_length is not None,
                "data.max_prompt_length has no effect on a generated task; set it to null",
            ),
            *(
                (
                    self.task is not None and getattr(self, name) is not None,
                    f"{name} has no effect with a generated task; set {name} or task to null",
                )
                for name in ("data_source", "validation_source")
            ),
            (
                self.critic.init == "reward_model" and self.reward_model is None,
                "critic.init reward_model needs the asset `reward_model`; set reward_model, or critic.init to student",
            ),
            (
                self.critic.init == "student" and self.reward_model is not None,
                "reward_model has no effect with critic.init student; set critic.init to reward_model",
            ),
            (
                self.gad.enabled and self.evaluate.checkpoints > (self.gad.max_steps or math.inf),
                f"evaluate.checkpoints {self.evaluate.checkpoints} exceeds gad.max_steps {self.gad.max_steps}; lower "
                "evaluate.checkpoints",
            ),
        ]
        for wrong, problem in problems:
            if wrong:
                raise ValueError(problem)
        return self

    def without_effect(self) -> dict[str, str]:
        """Return the dotted keys without effect in this configuration, each with the reason.

        A variant may not change them.
        """
        keys: dict[str, str] = {}
        for name in ("seqkd", "warmup", "gad"):
            part = getattr(self, name)
            if not part.enabled:
                others = [f"{name}.{field}" for field in type(part).model_fields if field != "enabled"]
                keys |= dict.fromkeys(others, f"{name}.enabled is false")
            elif isinstance(part, Adversarial) and part.student == "cross_entropy":
                keys[f"{name}.kl_coef"] = f"{name}.student is cross_entropy"
        if self.rollout.engine != "vllm":
            keys["rollout.vllm"] = f"rollout.engine is {self.rollout.engine}"
        if self.model is not None:
            keys |= dict.fromkeys(("scratch", "base"), "`model` is the initial student")
        if not (self.warmup.enabled or self.gad.enabled):
            keys |= dict.fromkeys(ADVERSARIAL, "warmup.enabled and gad.enabled are false")
        return keys

    def needed_packages(self, stage: str) -> dict[str, tuple[str, str]]:
        """Return the optional packages that `stage` needs, each with the key that needs it and the remedy."""
        if stage == "seqkd" and self.seqkd.enabled:
            return self.seqkd.memory._packages("seqkd.memory")
        if stage not in ("warmup", "gad") or not getattr(self, stage).enabled:
            return {}
        return self.memory._packages("memory") | self.rollout._packages

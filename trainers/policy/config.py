"""Configuration of the studies `innovations` and `gspo`: group policy optimisation on a task with verifiable answers.

The defaults of a method are the published ones (KL control: GSPO notes; clipping: PPO, GRPO). `_study.yaml` names
`PolicyConfig`; this module imports only pydantic, so that validating and planning do not need torch. Every field has a
default, because a stage gets only the keys that it reads.
"""

from collections.abc import Iterator
from itertools import chain
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablation.contract.absent import Absent
from trainers.assets_config import Asset, Strict
from trainers.tasks.settings import KnightsKnaves, QuestionAnswer, TaskSettings

COLDEST = 0.01  # vLLM raises lower temperatures to this one
VLLM_REMEDY = "use the environment that `make vllm` makes (docs/how-to/vllm.md), or set rollout.engine to own"


class Vllm(Strict):
    """Settings of vLLM as the sampler (docs/how-to/vllm.md)."""

    memory_share: Annotated[float, Absent(0.4)] = Field(
        default=0.4, gt=0, lt=1, description="Share of the GPU's memory that vLLM may use."
    )
    cpu_cache_gib: Annotated[float, Absent(0.25)] = Field(
        default=0.25, gt=0, description="Size of vLLM's key-value cache on a CPU, in GiB."
    )
    longest: Annotated[int | None, Absent(None)] = Field(
        default=None,
        ge=2,
        description="Maximum length of a prompt plus its response, in tokens; null: the model's limit.",
    )


class Sampled(Strict):
    """Rollout settings that all studies share."""

    batch_size: int | None = Field(default=None, ge=1, description="Number of responses sampled at once; null: all.")
    recompute_logps: bool = Field(
        default=False,
        description="Whether to compute the old log-probabilities by a forward pass instead of using the sampler's.",
    )
    engine: Annotated[Literal["own", "own_without_end", "vllm"], Absent("own")] = Field(
        default="own",
        description="What samples responses during training: vllm, this project's sampler (own), or this project's "
        "sampler with end-of-sequence tokens removed (own_without_end). Evaluation always uses own.",
    )
    vllm: Annotated[Vllm, Absent({})] = Field(default=Vllm(), description="Settings of vLLM.")

    @property
    def _packages(self) -> dict[str, tuple[str, str]]:
        """Return the package that the engine needs, with the key that needs it and the remedy."""
        return {"vllm": ("rollout.engine", VLLM_REMEDY)} if self.engine == "vllm" else {}

    def _refused(self, memory: "Memory", temperature: float, limit: int | None) -> Iterator[str]:
        """Yield conflicts of vLLM with other settings, given the temperature and response limit of `sampling`."""
        if self.engine != "vllm":
            return
        if memory.lora is not None:
            problem = "rollout.engine vllm cannot be combined with memory.lora"
            yield f"{problem}; set rollout.engine to own, or memory.lora to null"
        if temperature < COLDEST:
            problem = f"rollout.engine vllm cannot sample at sampling.temperature {temperature:g}"
            yield f"{problem}; use at least {COLDEST:g}"
        if self.vllm.longest is not None and limit is not None and self.vllm.longest <= limit:
            problem = f"rollout.vllm.longest {self.vllm.longest} leaves no room for a prompt"
            yield f"{problem} and a response of sampling.max_new_tokens {limit}; raise rollout.vllm.longest"


class Lora(Strict):
    """Low-rank adapters (arXiv 2106.09685) without dropout on frozen weights; they need peft (the extra `lora`)."""

    rank: int = Field(default=16, ge=1, description="Rank of the adapters.")
    alpha: float = Field(
        default=32.0,
        gt=0,
        description="Scale of the update: each adapter adds (alpha / rank) * B @ A to a frozen weight.",
    )
    targets: tuple[str, ...] | None = Field(
        default=None,
        min_length=1,
        description="Linear layers that get adapters, given by the last part of their names, such as q_proj; null: all "
        "linear layers in the transformer blocks.",
    )


class Memory(Strict):
    """Ways to save memory in training; docs/how-to/several-devices.md states what each of them saves and changes."""

    lora: Annotated[Lora | None, Absent(None)] = Field(
        default=None,
        description="Low-rank adapters to train and merge into the saved model; null: all weights are trained.",
    )

    def _packages(self, key: str) -> dict[str, tuple[str, str]]:
        """Return the packages that the settings under `key` need, with the key that needs each and the remedy."""
        remedy = f"run pip install 'ablation-tracker[lora]', or set {key}.lora to null"
        return {} if self.lora is None else {"peft": (f"{key}.lora", remedy)}


class Data(Strict):
    """Problems per split. Choices are made on the development split; only the last stage reads the test split."""

    warm: int = Field(default=2000, ge=1, description="Number of problems with worked responses, for the warm start.")
    train: int = Field(default=2000, ge=1, description="Number of problems for reinforcement learning.")
    dev: int = Field(default=200, ge=1, description="Number of development problems.")
    test: int = Field(default=300, ge=1, description="Number of test problems.")
    seed: int = Field(default=0, ge=0, description="Seed that chooses the problems, shared by all training seeds.")


class Scratch(Strict):
    """A small Qwen2 with random weights and a word-level vocabulary, used if `model` is null."""

    hidden: int = Field(default=64, ge=8, description="Hidden size; a multiple of `heads`.")
    layers: int = Field(default=2, ge=1, description="Number of transformer blocks.")
    heads: int = Field(default=2, ge=1, description="Number of attention heads.")
    feed_forward: int = Field(default=192, ge=8, description="Hidden size of the MLP.")
    rope_theta: float = Field(default=100.0, gt=0, description="Base of the rotary position embedding.")
    init_std: float = Field(default=0.05, gt=0, description="Standard deviation of the initial weights.")
    positions: int = Field(default=256, ge=16, description="Longest sequence, in tokens.")


class Until(Strict):
    """Accuracy at which a warm start ends early, so that all seeds start from equally good policies."""

    accuracy: float = Field(default=0.9, gt=0, le=1, description="Required share of correct greedy responses.")
    problems: int = Field(default=300, ge=1, description="Number of training problems per measurement.")
    every: int = Field(default=25, ge=1, description="Steps between measurements.")


class WarmStart(Strict):
    """Supervised training on worked responses before reinforcement learning, shared by all variants of a seed."""

    steps: int = Field(default=400, ge=0, description="Optimizer steps; 0: no warm start.")
    batch_size: int = Field(default=48, ge=1, description="Problems per step.")
    lr: float = Field(
        default=3e-3,
        gt=0,
        le=1,
        description="Peak of the learning rate, which rises linearly over the first tenth of the steps and then falls "
        "to 0 along a cosine.",
    )
    until: Annotated[Until | None, Absent(None)] = Field(
        default=None, description="Accuracy on training problems at which to stop early; null: run all steps."
    )
    memory: Annotated[Memory, Absent({})] = Field(default=Memory(), description="Settings that save memory.")


class Sampling(Strict):
    """Sampling in training. Evaluation has the same limit on the length of responses but its own temperature."""

    max_new_tokens: int = Field(default=32, ge=1, description="Longest response, in tokens.")
    temperature: float = Field(default=1.0, gt=0, description="Temperature of sampling and of all log-probabilities.")


class Rollout(Sampled):
    """Responses per step. The number of responses is fixed, so that group sizes are compared at equal cost."""

    responses: int = Field(default=128, ge=1, description="Responses per step; a multiple of group_size.")
    group_size: int = Field(default=8, ge=1, description="Responses per prompt.")
    order: Annotated[Literal["drawn", "passes"], Absent("drawn")] = Field(
        default="drawn",
        description="How steps choose prompts: at random (drawn), or in shuffled passes over the data (passes).",
    )
    engine: Annotated[Literal["own", "vllm"], Absent("own")] = Field(
        default="own", description="What samples responses during training: vllm, or this project's sampler (own)."
    )

    @model_validator(mode="after")
    def _whole_groups(self) -> Self:
        if self.responses % self.group_size:
            raise ValueError(
                f"`responses` {self.responses} is not a multiple of group_size {self.group_size}; change one of them"
            )
        return self


class Reward(Strict):
    """Reward of a response, a weighted sum of several parts."""

    rule: float = Field(
        default=1.0, ge=0, description="Weight of the task's own reward, a rule that checks the response."
    )
    model: float = Field(default=0.0, ge=0, description="Weight of the reward model's logit.")
    level: Literal["sequence", "token"] = Field(
        default="sequence",
        description="What the reward model rewards: the whole response (sequence), or each token by how much it raises "
        "the score (token). With token, all other rewards are added at the last token.",
    )
    function: Annotated[str | None, Absent(None)] = Field(
        default=None,
        pattern=r"^\w+(\.\w+)*:\w+$",
        description="Reward function under trainers/, as module:function; its rewards are added to the other rewards.",
    )

    @model_validator(mode="after")
    def _some(self) -> Self:
        if self.rule == 0 and self.model == 0 and self.function is None:
            raise ValueError(
                "`rule` and `model` are 0 and `function` is null, so nothing would be rewarded; raise `rule` or "
                "`model`, or set `function`"
            )
        return self


class RewardTraining(Strict):
    """Training of a reward model (the warm start with a new head) on the rule's rewards of sampled responses."""

    enabled: bool = Field(
        default=False, description="Whether to train a reward model instead of loading `reward_model`."
    )
    problems: int = Field(
        default=1000,
        ge=10,
        description="Number of problems to sample responses to; a tenth of them is held out to test the model.",
    )
    samples: int = Field(default=4, ge=1, description="Responses per problem.")
    steps: int = Field(default=400, ge=1, description="Optimizer steps.")
    batch_size: int = Field(default=32, ge=1, description="Responses per step.")
    micro_batch: int | None = Field(
        default=None, ge=1, description="Responses per forward and backward pass; null: all."
    )
    lr: float = Field(
        default=1e-5,
        gt=0,
        le=1,
        description="Peak of the learning rate, which rises linearly over the first tenth of the steps and then falls "
        "to 0 along a cosine.",
    )
    sampled_at_once: int = Field(default=512, ge=1, description="Responses sampled at once.")


class UpdateSettings(Strict):
    """Settings of policy updates that all studies share."""

    epochs: int = Field(default=2, ge=1, description="Passes over a step's responses.")
    minibatches: int = Field(default=2, ge=1, description="Optimizer steps per pass.")
    micro_batch: int | None = Field(
        default=None, ge=1, description="Responses per forward and backward pass; null: a minibatch."
    )
    reduces: Annotated[Literal["micro_batch", "minibatch"], Absent("micro_batch")] = Field(
        default="micro_batch",
        description="When devices add up gradients: after each micro_batch, or once per minibatch, which needs less "
        "communication but 4 more bytes per parameter on each device.",
    )
    betas: tuple[float, float] = Field(default=(0.9, 0.99), description="Decay rates of AdamW's moments.")
    weight_decay: float = Field(default=0.0, ge=0, description="Weight decay of AdamW.")
    max_grad_norm: float = Field(
        default=1.0, gt=0, description="Maximum norm of the gradient; larger gradients are scaled down to this norm."
    )
    aggregation: Literal["sequence_mean", "token_mean"] = Field(
        default="sequence_mean", description="Whether the loss is a mean over responses (GRPO) or over tokens (DAPO)."
    )
    entropy_coef: float = Field(default=0.0, ge=0, description="Weight of the entropy bonus.")


class Update(UpdateSettings):
    """Settings of policy updates."""

    lr: float = Field(default=2e-4, gt=0, le=1, description="Learning rate.")
    warmup_steps: int = Field(
        default=5, ge=0, description="Number of steps over which the learning rate rises linearly at the start."
    )


class Kl(Strict):
    """Settings of the KL to the reference policy, which is the warm start."""

    estimator: Annotated[Literal["k1", "k3"], Absent("k3")] = Field(
        default="k3", description="Estimator of the KL divergence: k1, which is the log ratio, or k3, which GRPO uses."
    )
    per: Annotated[Literal["token", "response"], Absent("token")] = Field(
        default="token",
        description="Whether the KL and `target` are per token (token) or summed over each response (response).",
    )
    kl_coef: float = Field(
        default=0.2, ge=0, description="Weight of the KL, or its initial weight if `adaptive` is true; 0: no KL."
    )
    adaptive: bool = Field(
        default=False,
        description="Whether the weight adapts after each step: it is multiplied by 1.5 if the KL is above 2 * target "
        "and by 0.5 if the KL is below target / 2, and stays within [0.01, 1].",
    )
    target: float = Field(default=0.01, gt=0, description="KL that the adaptive weight aims at, in nats.")

    @model_validator(mode="after")
    def _can_adapt(self) -> Self:
        if self.adaptive and self.kl_coef == 0:
            raise ValueError("`adaptive` has no effect at kl_coef 0, because there is no KL; set `adaptive` to false")
        return self


class Critic(Strict):
    """PPO's value network (a copy of the policy with a value head) and its estimation of advantages."""

    lr: float = Field(default=1e-5, gt=0, le=1, description="Learning rate; the default is verl's.")
    gamma: float = Field(default=1.0, gt=0, le=1, description="Discount per token.")
    lam: float = Field(default=0.95, ge=0, le=1, description="Lambda of generalised advantage estimation (GAE).")
    clip: float = Field(
        default=0.5, gt=0, description="Largest change of a value estimate that the value loss does not clip."
    )


class GroupAdvantage(Strict):
    """The reward minus the mean of the group (`relative`).

    `normalized` divides the difference by the standard deviation of the group, `batch_normalized` by the batch's.
    """

    kind: Literal["relative", "normalized", "batch_normalized"] = "normalized"


class Gae(Strict):
    """PPO's advantage, estimated by a critic."""

    kind: Literal["gae"] = "gae"
    critic: Critic = Field(default=Critic(), description="Value network.")


Advantage = Annotated[GroupAdvantage | Gae, Field(discriminator="kind")]


class ClipRange(Strict):
    """Clip range of the importance ratio: [1 - clip_low, 1 + clip_high]."""

    clip_low: float = Field(default=0.2, gt=0, description="How far below 1 the ratio may go before it is clipped.")
    clip_high: float = Field(default=0.2, gt=0, description="How far above 1 the ratio may go before it is clipped.")
    dual: float | None = Field(
        default=None,
        gt=1,
        description="If the advantage A is negative, the loss is at most -dual * A (dual clip); null: no bound.",
    )


class Clip(ClipRange):
    """PPO's clipping of the ratio to [1 - clip_low, 1 + clip_high]."""

    kind: Literal["clip"] = "clip"


class EmaSmoothing(Strict):
    """Innovation 2.1: `w'_1 = w_1`, `w'_t = beta * w_t + (1 - beta) * w'_{t-1}`."""

    beta: float = Field(default=0.9, gt=0, le=1, description="Weight of the current token's ratio in the average.")


class GradientAdaptive(Strict):
    """Innovation 2.2: the token weights are `L * softmax_t(|log p_t| / temperature)`."""

    temperature: float = Field(default=1.0, gt=0, description="Temperature; larger values make the weights more equal.")


class Ptrw(Strict):
    """Innovation 2.4: a Gaussian trust region.

    The loss is `-exp(-(s - 1)^2 / (2 * sigma^2)) * s * A` for the sequence ratio s.
    """

    kind: Literal["ptrw"] = "ptrw"
    sigma: float = Field(
        default=0.2, gt=0, description="Standard deviation of the Gaussian, the width of the trust region."
    )
    detach_weight: bool = Field(default=False, description="Whether to stop gradients at the Gaussian.")


class AsymmetricClip(Strict):
    """Innovation 2.6: a clip range that depends on the advantage's sign.

    The source also calls the bounds `pos` and `neg`.
    """

    kind: Literal["asymmetric_clip"] = "asymmetric_clip"
    pos: float = Field(
        default=0.3, gt=0, description="The clip range is [1 - pos, 1 + pos] if the advantage is above 0."
    )
    neg: float = Field(
        default=0.1, gt=0, description="The clip range is [1 - neg, 1 + neg] if the advantage is at most 0."
    )
    pessimistic: bool = Field(
        default=True,
        description="Whether the smaller of the clipped and the unclipped objective counts, as in PPO; false: the "
        "clipped objective always counts.",
    )


Surrogate = Annotated[Clip | Ptrw | AsymmetricClip, Field(discriminator="kind")]


class Lspd(Strict):
    """Decay on a logarithmic scale of positions, with the same total decay for responses of any length."""

    alpha: float = Field(
        default=2.0, gt=0, description="Strength of the decay: the last weight is e^-alpha times the first."
    )
    tau: float = Field(
        default=10.0, gt=0, description="Number of tokens after which the scale of positions is roughly logarithmic."
    )


class TemporalDecay(Strict):
    """Innovation 2.5: the token weights are `gamma^(t-1)`."""

    gamma: float = Field(
        default=0.95, gt=0, le=1, description="Ratio of a token's weight to the weight of the previous token."
    )
    normalize: Literal["mean", "sum", "none"] = Field(
        default="mean", description="Whether the weights are scaled to mean 1, to sum 1, or not at all."
    )
    lspd: Annotated[Lspd | None, Absent(None)] = Field(
        default=None,
        description="Replaces gamma^(t-1) by exp(-alpha * log(1 + (t-1)/tau) / log(1 + (L-1)/tau)) for token t of L; "
        "null: gamma^(t-1).",
    )


class DynamicSampling(Strict):
    """DAPO's dynamic sampling, which repeats rollouts until enough groups have both right and wrong answers."""

    max_rounds: int = Field(default=3, ge=1, description="Maximum number of rollouts per step.")


class OverlongPenalty(Strict):
    """DAPO's penalty: over the last tokens before max_new_tokens, up to 1 is subtracted from the reward."""

    share: float = Field(
        default=0.2,
        gt=0,
        lt=1,
        description="The penalty grows from 0 to 1 over this last share of max_new_tokens (DAPO: 4,096 of 20,480).",
    )


class Precision(Strict):
    """Settings that save memory or time with larger models."""

    compute: Literal["float32", "tf32", "bfloat16"] = Field(
        default="float32",
        description="Arithmetic: float32; tf32 (float32 with TF32 matrix products on NVIDIA GPUs); or bfloat16 "
        "(autocast with float32 weights).",
    )
    activation_checkpointing: bool = Field(
        default=False, description="Whether the backward pass recomputes activations, which saves memory."
    )


class Evaluate(Strict):
    """Evaluation of a policy."""

    checkpoints: int = Field(
        default=1,
        ge=1,
        description="Number of last steps whose policies are measured; sampled results are means over them.",
    )
    samples: int = Field(default=4, ge=1, description="Sampled responses per problem.")
    batch_size: int = Field(default=512, ge=1, description="Number of responses sampled at once.")
    seed: int = Field(default=0, ge=0, description="Sampling seed, shared by all variants and training seeds.")
    temperature: float = Field(default=1.0, gt=0, description="Temperature of the sampled responses.")


class PolicyConfig(Strict):
    """Everything that a variant of `innovations` or `gspo` may change."""

    task: TaskSettings = Field(default=KnightsKnaves(), description="Task: its questions, and how answers are checked.")
    data: Data = Field(default=Data(), description="Problems per split.")
    data_source: Asset | None = Field(default=None, description="File with the questions of a question_answer task.")
    model: Asset | None = Field(default=None, description="Initial policy; null: a model from `scratch`.")
    reward_model: Asset | None = Field(
        default=None, description="Sequence classifier that rewards responses if reward.model is above 0."
    )
    scratch: Scratch = Field(default=Scratch(), description="Size of the initial policy if `model` is null.")
    warm_start: WarmStart = Field(default=WarmStart(), description="Supervised training before reinforcement learning.")
    steps: int = Field(default=40, ge=1, description="Number of training steps; each is a rollout followed by updates.")
    sampling: Sampling = Field(default=Sampling(), description="Sampling of responses.")
    rollout: Rollout = Field(default=Rollout(), description="How the responses of a step are sampled.")
    reward: Reward = Field(default=Reward(), description="Reward of a response.")
    reward_training: RewardTraining = Field(default=RewardTraining(), description="Training of a reward model.")
    update: Update = Field(default=Update(), description="Policy update.")
    kl: Kl = Field(default=Kl(), description="KL to the reference policy.")
    advantage: Advantage = Field(
        default=GroupAdvantage(),
        description="How the advantage of a response is computed: from its group, or by a critic.",
    )
    ratio: Literal["token", "gspo", "gspo_token", "product"] = Field(
        default="token",
        description="Importance ratio: one per token (token), or one per response, which is the geometric mean (gspo; "
        "gspo_token keeps each token's own gradient) or the product (product) of the token ratios.",
    )
    surrogate: Surrogate = Field(default=Clip(), description="Loss as a function of ratio and advantage.")
    ema_smoothing: EmaSmoothing | None = Field(default=None, description="Innovation 2.1: smoothed importance ratios.")
    gradient_adaptive: GradientAdaptive | None = Field(
        default=None, description="Innovation 2.2: token weights that grow with |log p|."
    )
    amic: bool = Field(
        default=False,
        description="Innovation 2.3: whether the ratio is the arithmetic mean of a response's token ratios.",
    )
    temporal_decay: TemporalDecay | None = Field(
        default=None, description="Innovation 2.5: token weights that let earlier tokens count more."
    )
    weight_on: Literal["advantage", "ratio", "response_ratio"] = Field(
        default="advantage",
        description="What the weights of innovations 2.2 and 2.5 multiply: the advantage, the ratio, or the token "
        "ratios before they are averaged over the response (response_ratio).",
    )
    dynamic_sampling: DynamicSampling | None = Field(
        default=None, description="DAPO's dynamic sampling, which prefers groups with both right and wrong responses."
    )
    overlong_penalty: OverlongPenalty | None = Field(default=None, description="DAPO's soft penalty on long responses.")
    precision: Precision = Field(default=Precision(), description="Precision and activation checkpointing.")
    memory: Annotated[Memory, Absent({})] = Field(
        default=Memory(), description="Settings that save memory in stage reinforce."
    )
    checkpoint_every: int = Field(default=10, ge=1, description="Steps between checkpoints.")
    evaluate: Evaluate = Field(default=Evaluate(), description="Evaluation.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if type(self) is not PolicyConfig:  # what a stage reads of a configuration that has been checked as a whole
            return self
        engine = self.rollout._refused(self.memory, self.sampling.temperature, self.sampling.max_new_tokens)
        groups = (engine, self._of_objective(), self._of_models(), self._unanswered(), self._unmeasured())
        for problem in chain(*groups):
            raise ValueError(problem)
        return self

    def _of_objective(self) -> Iterator[str]:
        """Yield conflicts among the settings of advantages, loss and token rewards."""
        group_size, token_level = self.rollout.group_size, self.reward.level == "token"
        if self.advantage.kind == "gae" and group_size != 1:
            yield "the advantage gae needs rollout.group_size 1; set rollout.group_size to 1"
        if self.advantage.kind != "gae" and group_size < 2:
            yield f"the advantage {self.advantage.kind} needs groups; set rollout.group_size to at least 2"
        if self.ema_smoothing is not None and self.ratio != "token":
            yield "ema_smoothing needs token ratios; set ratio to token, or ema_smoothing to null"
        if self.weight_on != "advantage" and self.gradient_adaptive is None and self.temporal_decay is None:
            problem = f"weight_on {self.weight_on} has no effect without gradient_adaptive or temporal_decay"
            yield f"{problem}; set one of them, or set weight_on to advantage"
        if self.kl.per == "response" and self.update.aggregation == "token_mean":
            problem = "kl.per response needs a loss that is a mean over responses"
            yield f"{problem}; set update.aggregation to sequence_mean, or kl.per to token"
        if token_level and self.advantage.kind == "batch_normalized":
            problem = "reward.level token cannot be combined with the advantage batch_normalized"
            yield f"{problem}; set reward.level to sequence"
        if token_level and self.reward.model == 0:
            yield "reward.level token needs a reward model; set reward.model above 0"

    def _of_models(self) -> Iterator[str]:
        """Yield missing models and data, and settings that need models that the stage will not have."""
        task, checkpoints = self.task, self.evaluate.checkpoints
        if self.reward.model > 0 and self.reward_model is None and not self.reward_training.enabled:
            yield "reward.model > 0 needs a reward model; set reward_model, or set reward_training.enabled to true"
        if self.reward_model is not None and self.reward_training.enabled:
            yield "reward_model cannot be combined with reward_training.enabled; set reward_training.enabled to false"
        if self.model is None and self.warm_start.memory.lora is not None:
            yield "warm_start.memory.lora needs a pretrained model; set `model`"
        if task.reads_source and self.data_source is None:
            yield f"the task {task.name} needs data; set data_source"
        if self.model is None and getattr(task, "form", "textual") == "textual":
            yield f"a textual task such as {task.name} needs a pretrained model; set `model`"
        if checkpoints > self.steps:
            yield f"evaluate.checkpoints {checkpoints} exceeds steps {self.steps}; lower evaluate.checkpoints"

    def _unanswered(self) -> Iterator[str]:
        """Yield settings that need answers if the task has none."""
        if not isinstance(self.task, QuestionAnswer) or self.task.answer is not None:
            return
        condition = "task.answer is null, so there are no"
        if self.reward.rule > 0:
            yield f"{condition} answers to check; set reward.rule to 0 and use a reward model"
        if self.reward_training.enabled:
            yield f"{condition} rewards for answers to learn from; set reward_model instead of reward_training.enabled"
        if self.warm_start.steps > 0:
            yield f"{condition} worked responses; set warm_start.steps to 0"
        if self.dynamic_sampling is not None:
            yield f"{condition} right or wrong responses; set dynamic_sampling to null"

    def _unmeasured(self) -> Iterator[str]:
        """Yield settings that conflict with `warm_start.until`."""
        until, steps = self.warm_start.until, self.warm_start.steps
        if until is None:
            return
        if 0 < steps < until.every:
            problem = f"warm_start.until.every {until.every} exceeds warm_start.steps {steps}"
            yield f"{problem}; lower warm_start.until.every"
        if until.problems > self.data.train:
            problem = f"warm_start.until.problems {until.problems} exceeds data.train {self.data.train}"
            yield f"{problem}; lower warm_start.until.problems"

    def without_effect(self) -> dict[str, str]:
        """Return {dotted key: reason} for keys without effect in this configuration; a variant may not change them."""
        keys: dict[str, str] = {}
        if self.kl.kl_coef == 0 or not self.kl.adaptive:
            keys["kl.target"] = "kl.kl_coef is 0" if self.kl.kl_coef == 0 else "kl.adaptive is false"
        if self.kl.kl_coef == 0:
            keys |= dict.fromkeys(("kl.estimator", "kl.per"), "kl.kl_coef is 0")
        if self.temporal_decay is not None and self.temporal_decay.lspd is not None:
            keys["temporal_decay.gamma"] = "temporal_decay.lspd replaces gamma^(t-1)"
        if self.model is not None:
            keys["scratch"] = "the initial policy is `model`"
        if self.warm_start.steps == 0:
            idle = [f"warm_start.{name}" for name in WarmStart.model_fields if name != "steps"]
            keys |= dict.fromkeys([*idle, "data.warm", "task.sloppy"], "warm_start.steps is 0")
        if self.rollout.engine != "vllm":
            keys["rollout.vllm"] = f"rollout.engine is {self.rollout.engine}"
        if not self.task.reads_source:
            keys["data_source"] = f"the task {self.task.name} generates its own problems"
        return keys | self._rewards_without_effect() | self._weights_without_effect()

    def _rewards_without_effect(self) -> dict[str, str]:
        if self.reward.model == 0:
            return dict.fromkeys(("reward_model", "reward_training"), "reward.model is 0")
        if not self.reward_training.enabled:
            others = [name for name in RewardTraining.model_fields if name != "enabled"]
            return {f"reward_training.{name}": "reward_training.enabled is false" for name in others}
        return {}

    def _weights_without_effect(self) -> dict[str, str]:
        """Return the keys of token weights without effect, because their mean is 1 and all tokens have the same loss.

        Two kinds of weights together have an effect, because the mean of their product is not 1.
        """
        per_token = self.advantage.kind == "gae" or self.reward.level == "token"
        both = self.gradient_adaptive is not None and self.temporal_decay is not None
        if self.ratio not in ("gspo", "product") or per_token or both or self.weight_on != "advantage":
            return {}
        reason = f"with ratio {self.ratio} all tokens of a response have the same loss, and the mean weight is 1"
        keys = {"gradient_adaptive": reason} if self.gradient_adaptive is not None else {}
        if self.temporal_decay is not None and self.temporal_decay.normalize == "mean":
            keys["temporal_decay"] = reason
        return keys

    def needed_packages(self, stage: str) -> dict[str, tuple[str, str]]:
        """Return the optional packages that `stage` needs, each with the key that needs it and the remedy."""
        if stage == "warm_start" and self.warm_start.steps > 0:
            return self.warm_start.memory._packages("warm_start.memory")
        return self.memory._packages("memory") | self.rollout._packages if stage == "reinforce" else {}

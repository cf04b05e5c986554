"""Configuration of the study `demonstrations`: a pointer selector of in-context demonstrations, trained offline.

`_study.yaml` names `DemonstrationsConfig`; this module imports only pydantic, so that validating and planning do not
need torch. Every field has a default, because a stage gets only the keys that it reads.
"""

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from ablation.contract.absent import Absent
from trainers.assets_config import Asset, Strict

Mode = Literal["legacy", "hard_plus_soft", "hard_plus_soft_v2", "separated", "hybrid", "hybrid_separated"]
Fraction = Annotated[float, Field(ge=0, le=1)]


class Sizes(Strict):
    """Queries per split.

    Selectors learn on train, `per_shot` compares them on validation, and results are from test.
    """

    train: int = Field(default=1600, ge=1, description="Training queries.")
    validation: int = Field(default=1000, ge=1, description="Validation queries.")
    test: int = Field(default=2000, ge=1, description="Test queries.")


class Concepts(Strict):
    """Pairs of words of one concept, with the concept's label; only demonstrations show a query's mapping to labels."""

    name: Literal["concepts"]
    concepts: int = Field(default=16, ge=2, description="Number of concepts.")
    words: int = Field(default=8, ge=2, description="Words per concept.")
    labels: int = Field(default=8, ge=2, description="Number of labels, and of concepts in a query's pool.")
    word_noise: Fraction = Field(default=0.15, description="Share of replaced words.")
    label_noise: Fraction = Field(default=0.15, description="Share of random labels.")
    concept_share: float = Field(default=0.1, ge=0, le=1, description="Cosine of two words of one concept.")
    d_embedding: int = Field(default=64, ge=2, description="Embedding size.")
    sizes: Sizes = Field(default=Sizes(), description="Queries per split.")
    candidates: int = Field(default=16, ge=2, description="Size of a query's pool.")
    seed: int = Field(default=0, ge=0, description="Seed of the queries, shared by all training seeds.")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.labels > self.concepts:
            raise ValueError(f"labels {self.labels} exceeds concepts {self.concepts}; lower labels, or raise concepts")
        return self


class TextQuestions(Strict):
    """Multiple-choice questions in JSON lines (question, options, answer), answered by a causal language model.

    The model's answer is the option with the highest mean log-probability per token after the prompt.
    """

    name: Literal["text"]
    sizes: Sizes = Field(default=Sizes(), description="Queries per split; the rest are demonstrations.")
    candidates: int = Field(default=32, ge=2, description="Size of a query's pool.")
    seed: int = Field(default=0, ge=0, description="Seed of split and pools.")


class VisualQuestions(Strict):
    """Questions about images (OK-VQA, VQAv2), answered by an image-text model.

    The asset `data` (kind vqa) is a folder with the official files. Demonstrations and the queries for training and
    validation come from the training split; the test queries are the first of the evaluation split. Accuracy is the
    official one: min(matches / 3, 1) over left-out annotators, after the official normalisation of answers.
    """

    name: Literal["vision"]
    images: str = Field(default=".", min_length=1, description="Folder with the images, or with train2014, ...")
    instruction: str = Field(
        default="You answer questions about images with a single word or a short phrase.",
        description="System turn; prepended to the first question if the template has none.",
    )
    sizes: Sizes = Field(default=Sizes(), description="Queries per split; the rest are demonstrations.")
    candidates: int = Field(default=64, ge=2, description="Size of a query's pool.")
    max_new_tokens: int = Field(default=10, ge=1, description="Longest answer, in tokens.")
    max_pixels: int = Field(default=200704, ge=784, description="Larger images are scaled down.")
    correct_from: float = Field(default=0.5, gt=0, le=1, description="Accuracy from which `correct` is 1.")
    dtype: Literal["float32", "bfloat16"] = Field(default="bfloat16", description="Precision of the frozen models.")
    seed: int = Field(default=0, ge=0, description="Seed of split and pools.")


class Learner(Strict):
    """Small in-context learner of the task `concepts`, with one convolution and one attention block (Lfm2)."""

    hidden: int = Field(default=64, ge=8, multiple_of=4, description="Hidden size.")
    feed_forward: int = Field(default=128, ge=8, description="Hidden size of the feed-forward layers.")
    demonstrations: int = Field(default=12, ge=2, description="Demonstrations per training sequence.")
    steps: int = Field(default=500, ge=1, description="Optimizer steps.")
    batch_size: int = Field(default=64, ge=1, description="Sequences per step.")
    lr: float = Field(default=3e-3, gt=0, le=1, description="Peak learning rate.")
    clean_share: Fraction = Field(default=0.6, description="Share of initial steps without noise.")


class Proposals(Strict):
    """Candidate sequences per query, drawn by similarity of the embeddings, without repeating a demonstration."""

    beam: int = Field(default=1, ge=0, description="Number of most probable sequences, by beam search.")
    temperatures: list[Annotated[float, Field(gt=0)]] = Field(
        default=[2.0, 4.0, 8.0], description="One sampled sequence per temperature."
    )
    random: int = Field(default=4, ge=0, description="Number of uniformly drawn sequences.")
    scale: float = Field(default=5.0, gt=0, description="Factor that turns the cosine into logits.")

    @model_validator(mode="after")
    def _several(self) -> Self:
        number = self.beam + len(self.temperatures) + self.random
        if number < 2:
            raise ValueError(f"a query gets {number} sequences instead of at least 2; raise beam or random")
        return self


class Selector(Strict):
    """The network that chooses the demonstrations."""

    kind: Literal["pointer", "random", "nearest"] = Field(
        default="pointer", description="pointer is trained; random and nearest are baselines."
    )
    hidden: int = Field(default=48, ge=4, description="Hidden size.")
    layers: int = Field(default=1, ge=1, le=3, description="Number of cross-attention layers.")
    heads: int = Field(default=4, ge=1, description="Number of attention heads; must divide hidden.")

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"heads {self.heads} does not divide hidden {self.hidden}; change one of them")
        return self


class Reward(Strict):
    """Reward of a candidate sequence from correct, acc_score and the gain (docs/studies/demonstrations.md)."""

    mode: Mode = Field(default="legacy", description="Formula of the reward.")
    gain: Literal["probability", "nats"] = Field(
        default="probability",
        description="Unit of the right answer's gain over zero-shot: probability (geometric mean over tokens) or mean "
        "log-probability.",
    )
    info_weight: float = Field(default=1.0, ge=0, le=100, description="legacy: weight of the gain.")
    correct_weight: float = Field(default=0.0, ge=0, le=100, description="legacy: weight of `correct`.")
    hard_weight: float = Field(default=1.0, ge=0, le=100, description="Weight of `correct`.")
    soft_weight: float = Field(default=1.0, ge=0, le=100, description="Weight of `acc_score`.")
    alpha: Fraction = Field(default=0.5, description="hybrid, hybrid_separated: share of the gain.")
    info_scale: float = Field(default=10.0, gt=0, description="hybrid: scale of the gain, min(1, info_scale * gain).")
    info_floor: float | None = Field(
        default=None, le=0, description="hybrid: lower bound of the scaled gain; null: no bound."
    )

    @model_validator(mode="after")
    def _rewards_something(self) -> Self:
        if self.mode == "legacy" and not (self.info_weight or self.correct_weight):
            raise ValueError("info_weight and correct_weight are both 0, so nothing is rewarded; raise one of them")
        return self

    def without_effect(self) -> dict[str, str]:
        """Return the keys that the formula of the reward mode does not use, with the reason."""
        used = {
            "legacy": {"gain", "info_weight", "correct_weight"},
            "hybrid": {"gain", "alpha", "info_scale", "info_floor"},
            "hybrid_separated": {"gain", "alpha"},
        }.get(self.mode, {"hard_weight", "soft_weight"})
        keys = dict.fromkeys(type(self).model_fields.keys() - used - {"mode"}, f"reward.mode is {self.mode}")
        if self.mode == "legacy" and not self.info_weight:
            keys["gain"] = "reward.info_weight is 0"
        return keys


class Rce(Strict):
    """Reward-weighted cross-entropy, with weights `softmax(reward / tau)` over a query's sequences."""

    epochs: int = Field(default=8, ge=1, description="Passes over the queries.")
    batch_size: int = Field(default=64, ge=1, description="Queries per step.")
    lr: float = Field(default=2e-3, gt=0, le=1, description="Learning rate.")
    weights: Literal["reward", "position", "best"] = Field(
        default="reward",
        description="Weights by reward; position: by rank in the query, ties broken by place; best: only the best "
        "sequence counts, without tau.",
    )
    best_epochs: Annotated[int, Absent(0)] = Field(
        default=0, ge=0, description="Number of first epochs, which imitate only the best sequence."
    )
    tau_start: float = Field(default=2.0, gt=0, description="First temperature of the weights.")
    tau_end: float = Field(default=0.5, gt=0, description="Last temperature; it changes linearly.")
    label_smoothing: float = Field(default=0.1, ge=0, lt=1, description="Share spread over the remaining candidates.")
    max_grad_norm: float = Field(default=1.0, gt=0, description="Norm to which larger gradients are clipped.")


class Grpo(Strict):
    """Clipped policy gradient on the sequences that RCE imitates, with a KL to the RCE policy."""

    enabled: bool = Field(default=True, description="Whether the stage runs; false: training stops after RCE.")
    advantage: Literal["zscore", "centred", "rank", "position"] = Field(
        default="zscore",
        description="Within a query: z-scores, differences from the mean (centred), or ranks with ties shared (rank) "
        "or broken by place (position).",
    )
    epochs: int = Field(default=8, ge=1, description="Passes over the queries.")
    batch_size: int = Field(default=64, ge=1, description="Queries per step.")
    lr: float = Field(default=1e-3, gt=0, le=1, description="Learning rate.")
    clip_low: float = Field(
        default=0.2, gt=0, lt=1, description="How far below 1 the ratio to the old policy may go before it is clipped."
    )
    clip_high: float = Field(
        default=0.2, gt=0, lt=1, description="How far above 1 the ratio to the old policy may go before it is clipped."
    )
    kl_coef: float = Field(default=0.1, ge=0, le=100, description="Weight of the k3 KL to the RCE policy.")
    advantage_clip: float = Field(default=5.0, gt=0, description="Bound of the advantages.")
    min_positive_ratio: Fraction | None = Field(
        default=None, description="Queries with a smaller share of positives give no loss; null: all queries do."
    )
    positive_threshold: float | None = Field(
        default=None, description="Reward above which a sequence is positive; null: right sequences are positive."
    )
    max_grad_norm: float = Field(default=1.0, gt=0, description="Norm to which larger gradients are clipped.")


class DemonstrationsConfig(Strict):
    """Everything that a variant of `demonstrations` may change."""

    task: Annotated[Concepts | TextQuestions | VisualQuestions, Field(discriminator="name")] = Field(
        default=Concepts(name="concepts"), description="Questions and in-context model."
    )
    model: Asset | None = Field(default=None, description="(Vision-)language model; null for concepts.")
    embedder: Asset | None = Field(default=None, description="CLIP model for task vision.")
    data: Asset | None = Field(default=None, description="File of questions; null for the task `concepts`.")
    learner: Learner = Field(default=Learner(), description="In-context model of task concepts.")
    shots: int = Field(default=4, ge=1, le=32, description="Largest number of shots evaluated.")
    train_shots: Annotated[int | None, Absent(None)] = Field(
        default=None, ge=1, le=32, description="Length of training sequences; null: `shots`."
    )
    proposals: Proposals = Field(default=Proposals(), description="Candidate sequences.")
    score_batch: int = Field(default=512, ge=1, description="Prompts per batch of the in-context model.")
    selector: Selector = Field(default=Selector(), description="The network that chooses the demonstrations.")
    reward: Reward = Field(default=Reward(), description="Reward of a candidate sequence.")
    rce: Rce = Field(default=Rce(), description="First training stage.")
    grpo: Grpo = Field(default=Grpo(), description="Second training stage.")
    per_shot: list[Mode] = Field(
        default=[],
        description="Modes with one selector each; for each number of shots, the best selector on validation is used.",
    )
    checkpoint_every: int = Field(default=2, ge=1, description="Epochs (learner: tens of steps) between checkpoints.")

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if type(self) is not DemonstrationsConfig:  # what a stage reads of a configuration checked as a whole
            return self
        name, pretrained = self.task.name, self.task.name != "concepts"
        problems = [
            (pretrained and self.model is None, f"the task {name} needs a model; set `model`"),
            (pretrained and self.data is None, f"the task {name} needs questions; set `data`"),
            (name == "vision" and self.embedder is None, "the task vision needs a CLIP model; set `embedder`"),
            (not pretrained and self.model is not None, "the task concepts trains its own model; set `model` to null"),
            (not pretrained and self.data is not None, "the task concepts makes its own data; set `data` to null"),
            (
                name != "vision" and self.embedder is not None,
                f"the task {name} does not use `embedder`; set it to null",
            ),
            *(
                (
                    (shots or 0) > self.task.candidates,
                    f"{key} {shots} exceeds task.candidates {self.task.candidates}; lower {key}",
                )
                for key, shots in (("shots", self.shots), ("train_shots", self.train_shots))
            ),
            (
                self.rce.weights == "best" and self.rce.best_epochs > 0,
                "rce.best_epochs has no effect with rce.weights best; set rce.best_epochs to 0 and raise rce.epochs",
            ),
            (len(self.per_shot) == 1, "per_shot compares modes; list at least two modes, or none"),
            (len(set(self.per_shot)) != len(self.per_shot), "a mode occurs twice in per_shot; list each mode once"),
            (
                bool(self.per_shot) and self.selector.kind != "pointer",
                "per_shot needs a trained selector; set selector.kind to pointer",
            ),
            (
                self.reward != Reward() and (bool(self.per_shot) or self.selector.kind != "pointer"),
                "reward has no effect with per_shot, whose modes have default weights, or without a trained selector; "
                "leave reward out",
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
        keys = {f"reward.{key}": reason for key, reason in self.reward.without_effect().items()}
        if self.grpo.min_positive_ratio is None:
            keys["grpo.positive_threshold"] = "grpo.min_positive_ratio is null"
        if not self.grpo.enabled:
            others = [f"grpo.{field}" for field in Grpo.model_fields if field != "enabled"]
            keys |= dict.fromkeys(others, "grpo.enabled is false")
        if self.selector.kind != "pointer":
            others = [f"selector.{field}" for field in Selector.model_fields if field != "kind"]
            keys |= dict.fromkeys(others, f"selector.kind {self.selector.kind} is not trained")
        if self.task.name != "concepts":
            keys["learner"] = "the in-context model is `model`"
        return keys

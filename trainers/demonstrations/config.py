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
    """Numbers of queries for training selectors, comparing them (`per_shot`) and testing them."""

    train: int = Field(default=1600, ge=1, description="Number of training queries.")
    validation: int = Field(default=1000, ge=1, description="Number of validation queries.")
    test: int = Field(default=2000, ge=1, description="Number of test queries.")


class Concepts(Strict):
    """Pairs of words to label by their concept; each query has its own labels, which only the demonstrations show."""

    name: Literal["concepts"]
    concepts: int = Field(default=16, ge=2, description="Number of concepts.")
    words: int = Field(default=8, ge=2, description="Words per concept.")
    labels: int = Field(default=8, ge=2, description="Number of labels, and of concepts in a query's pool.")
    word_noise: Fraction = Field(default=0.15, description="Share of a demonstration's words that are drawn at random.")
    label_noise: Fraction = Field(default=0.15, description="Share of demonstrations whose label is drawn at random.")
    concept_share: float = Field(
        default=0.1, ge=0, le=1, description="Expected cosine of the embeddings of two words of one concept."
    )
    d_embedding: int = Field(default=64, ge=2, description="Size of the embeddings that the selector reads.")
    sizes: Sizes = Field(default=Sizes(), description="Queries per split.")
    candidates: int = Field(default=16, ge=2, description="Number of demonstrations to choose from for each query.")
    seed: int = Field(default=0, ge=0, description="Seed of the queries, shared by all training seeds.")

    @model_validator(mode="after")
    def _enough(self) -> Self:
        if self.labels > self.concepts:
            raise ValueError(f"`labels` {self.labels} exceeds `concepts` {self.concepts}; lower `labels`")
        return self


class TextQuestions(Strict):
    """Multiple-choice questions in JSON lines (question, options, answer), answered by a causal language model.

    The model's answer is the option with the highest mean log-probability per token after the prompt.
    """

    name: Literal["text"]
    sizes: Sizes = Field(default=Sizes(), description="Queries per split; all other questions are demonstrations.")
    candidates: int = Field(default=32, ge=2, description="Number of demonstrations to choose from for each query.")
    seed: int = Field(default=0, ge=0, description="Seed of splits and demonstrations, shared by all training seeds.")


class VisualQuestions(Strict):
    """Questions about images (OK-VQA, VQAv2), answered by an image-text model.

    The asset `data` (kind vqa) is a folder with the official files. Training queries, validation queries and
    demonstrations are questions of the training split; the test queries are the first questions of the evaluation
    split. Accuracy is the official VQA accuracy (`vqa_data.vqa_accuracy`).
    """

    name: Literal["vision"]
    images: str = Field(default=".", min_length=1, description="Folder with the images, or with a subfolder per split.")
    instruction: str = Field(
        default="You answer questions about images with a single word or a short phrase.",
        description="System message; it precedes the first question if the chat template has no system message.",
    )
    sizes: Sizes = Field(default=Sizes(), description="Queries per split; other training questions are demonstrations.")
    candidates: int = Field(default=64, ge=2, description="Number of demonstrations to choose from for each query.")
    max_new_tokens: int = Field(default=10, ge=1, description="Longest answer, in tokens.")
    max_pixels: int = Field(default=200704, ge=784, description="Maximum pixels; larger images are scaled down.")
    correct_from: float = Field(default=0.5, gt=0, le=1, description="Lowest VQA accuracy that counts as right.")
    dtype: Literal["float32", "bfloat16"] = Field(default="bfloat16", description="Precision of the frozen models.")
    seed: int = Field(default=0, ge=0, description="Seed of splits and demonstrations, shared by all training seeds.")


class Learner(Strict):
    """Small in-context model of the task `concepts`: an Lfm2 with one convolution block and one attention block."""

    hidden: int = Field(default=64, ge=8, multiple_of=4, description="Hidden size.")
    feed_forward: int = Field(default=128, ge=8, description="Hidden size of the feed-forward layers.")
    demonstrations: int = Field(default=12, ge=2, description="Number of word pairs in a training sequence.")
    steps: int = Field(default=500, ge=1, description="Optimizer steps.")
    batch_size: int = Field(default=64, ge=1, description="Sequences per step.")
    lr: float = Field(default=3e-3, gt=0, le=1, description="Peak learning rate, reached after a tenth of the steps.")
    clean_share: Fraction = Field(default=0.6, description="Share of the steps, at the start, without noise.")


class Proposals(Strict):
    """Sequences of demonstrations to score for each training query: by similarity to the query, and at random."""

    beam: int = Field(default=1, ge=0, description="Number of sequences from beam search, the most probable ones.")
    temperatures: list[Annotated[float, Field(gt=0)]] = Field(
        default=[2.0, 4.0, 8.0], description="Temperatures; one sequence is sampled at each."
    )
    random: int = Field(default=4, ge=0, description="Number of sequences that are drawn uniformly.")
    scale: float = Field(default=5.0, gt=0, description="Factor by which cosines are multiplied to get logits.")

    @model_validator(mode="after")
    def _several(self) -> Self:
        number = self.beam + len(self.temperatures) + self.random
        if number < 2:
            raise ValueError(f"a query gets fewer than 2 sequences ({number}); raise `beam` or `random`")
        return self


class Selector(Strict):
    """Selector of a query's demonstrations."""

    kind: Literal["pointer", "random", "nearest"] = Field(
        default="pointer", description="How to choose: by a trained network (pointer), at random, or by similarity."
    )
    hidden: int = Field(default=48, ge=4, description="Hidden size; a multiple of `heads`.")
    layers: int = Field(default=1, ge=1, le=3, description="Number of cross-attention layers.")
    heads: int = Field(default=4, ge=1, description="Number of attention heads.")

    @model_validator(mode="after")
    def _divides(self) -> Self:
        if self.hidden % self.heads:
            raise ValueError(f"`hidden` {self.hidden} is not a multiple of `heads` {self.heads}; change one of them")
        return self


class Reward(Strict):
    """Reward of a sequence for correctness (0 or 1), soft accuracy (0 to 1) and the answer's gain over zero-shot."""

    mode: Mode = Field(default="legacy", description="Formula of the reward; see docs/studies/demonstrations.md.")
    gain: Literal["probability", "nats"] = Field(
        default="probability",
        description="Gain over zero-shot: the increase of the right answer's probability (geometric mean over tokens), "
        "or of its mean log-probability (nats).",
    )
    info_weight: float = Field(default=1.0, ge=0, le=100, description="Weight of the gain in mode legacy.")
    correct_weight: float = Field(default=0.0, ge=0, le=100, description="Weight of correctness in mode legacy.")
    hard_weight: float = Field(
        default=1.0,
        ge=0,
        le=100,
        description="Weight of correctness, except in legacy, hybrid and hybrid_separated; doubled in "
        "hard_plus_soft_v2 and separated.",
    )
    soft_weight: float = Field(
        default=1.0, ge=0, le=100, description="Weight of soft accuracy, except in legacy, hybrid and hybrid_separated."
    )
    alpha: Fraction = Field(
        default=0.5, description="Weight of the gain in hybrid and hybrid_separated; the rest has weight 1 - alpha."
    )
    info_scale: float = Field(default=10.0, gt=0, description="Factor of the gain in hybrid; the product is at most 1.")
    info_floor: float | None = Field(
        default=None, le=0, description="Lower bound of the gain times info_scale in hybrid; null: no bound."
    )

    @model_validator(mode="after")
    def _rewards_something(self) -> Self:
        if self.mode == "legacy" and not (self.info_weight or self.correct_weight):
            raise ValueError("info_weight and correct_weight are both 0, so nothing is rewarded; raise one of them")
        return self

    def without_effect(self) -> dict[str, str]:
        """Return the keys without effect on the reward, each with the reason."""
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
    """Reward-weighted cross-entropy, by default with weights `softmax(reward / tau)` over a query's sequences."""

    epochs: int = Field(default=8, ge=1, description="Passes over the training queries, besides best_epochs.")
    batch_size: int = Field(default=64, ge=1, description="Queries per step.")
    lr: float = Field(default=2e-3, gt=0, le=1, description="Learning rate.")
    weights: Literal["reward", "position", "best"] = Field(
        default="reward",
        description="What sets a sequence's weight: its reward (reward), or the rank of its reward within the query, "
        "with ties broken by position (position). best: only the best sequence counts, and tau has no effect.",
    )
    best_epochs: Annotated[int, Absent(0)] = Field(
        default=0, ge=0, description="Number of additional epochs at the start that imitate only the best sequence."
    )
    tau_start: float = Field(
        default=2.0, gt=0, description="Temperature tau of the weights at the first step after best_epochs."
    )
    tau_end: float = Field(default=0.5, gt=0, description="Temperature tau at the last step, reached linearly.")
    label_smoothing: float = Field(
        default=0.1, ge=0, lt=1, description="Share of a target that is spread over all candidates not chosen before."
    )
    max_grad_norm: float = Field(default=1.0, gt=0, description="Norm to which larger gradients are clipped.")


class Grpo(Strict):
    """Clipped policy gradient on the sequences that RCE imitates, with a KL to the RCE policy."""

    enabled: bool = Field(default=True, description="Whether GRPO runs; false: training stops after RCE.")
    advantage: Literal["zscore", "centred", "rank", "position"] = Field(
        default="zscore",
        description="Advantage of a sequence within its query: the reward's z-score (zscore), its difference from the "
        "mean (centred), or its rank, where equal rewards share a rank (rank) or are ranked by position (position).",
    )
    epochs: int = Field(default=8, ge=1, description="Passes over the training queries.")
    batch_size: int = Field(default=64, ge=1, description="Queries per step.")
    lr: float = Field(default=1e-3, gt=0, le=1, description="Learning rate.")
    clip_low: float = Field(
        default=0.2, gt=0, lt=1, description="How far below 1 the ratio to the old policy may go before it is clipped."
    )
    clip_high: float = Field(
        default=0.2, gt=0, lt=1, description="How far above 1 the ratio to the old policy may go before it is clipped."
    )
    kl_coef: float = Field(default=0.1, ge=0, le=100, description="Weight of the KL to the RCE policy (k3 estimator).")
    advantage_clip: float = Field(default=5.0, gt=0, description="Magnitude to which larger advantages are clipped.")
    min_positive_ratio: Fraction | None = Field(
        default=None, description="Share of positive sequences below which a query is left out; null: 0."
    )
    positive_threshold: float | None = Field(
        default=None,
        description="Reward above which a sequence is positive; null: it is positive if its answer is right.",
    )
    max_grad_norm: float = Field(default=1.0, gt=0, description="Norm to which larger gradients are clipped.")


class DemonstrationsConfig(Strict):
    """Everything that a variant of `demonstrations` may change."""

    task: Annotated[Concepts | TextQuestions | VisualQuestions, Field(discriminator="name")] = Field(
        default=Concepts(name="concepts"), description="Questions, and the in-context model that answers them."
    )
    model: Asset | None = Field(default=None, description="In-context model of task text or vision; otherwise null.")
    embedder: Asset | None = Field(default=None, description="CLIP model of task vision; null for other tasks.")
    data: Asset | None = Field(default=None, description="Questions (task text) or VQA folder (vision); else null.")
    learner: Learner = Field(default=Learner(), description="In-context model that is trained for task concepts.")
    shots: int = Field(default=4, ge=1, le=32, description="Largest number of demonstrations in the evaluation.")
    train_shots: Annotated[int | None, Absent(None)] = Field(
        default=None, ge=1, le=32, description="Number of demonstrations in a training sequence; null: `shots`."
    )
    proposals: Proposals = Field(default=Proposals(), description="Sequences to score for each training query.")
    score_batch: int = Field(default=512, ge=1, description="Prompts per batch of the in-context model.")
    selector: Selector = Field(default=Selector(), description="Selector, which chooses the demonstrations.")
    reward: Reward = Field(default=Reward(), description="Reward of a sequence.")
    rce: Rce = Field(default=Rce(), description="First training stage of the selector, imitation.")
    grpo: Grpo = Field(default=Grpo(), description="Second training stage of the selector, reinforcement.")
    per_shot: list[Mode] = Field(
        default=[],
        description="Reward modes, each of which trains a selector; for each number of shots, the evaluation uses the "
        "selector that is best on the validation split. Empty: reward.mode alone.",
    )
    checkpoint_every: int = Field(
        default=2, ge=1, description="Epochs between checkpoints; in the stage `learner`, tens of steps."
    )

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
            (len(self.per_shot) == 1, "per_shot has only one mode; list at least two, or none"),
            (len(set(self.per_shot)) != len(self.per_shot), "a mode occurs twice in per_shot; list each mode once"),
            (
                bool(self.per_shot) and self.selector.kind != "pointer",
                "per_shot needs a trained selector; set selector.kind to pointer",
            ),
            (
                self.reward != Reward() and (bool(self.per_shot) or self.selector.kind != "pointer"),
                "reward cannot be combined with per_shot, whose modes have default weights, or with an untrained "
                "selector; leave reward out",
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
            keys |= dict.fromkeys(others, f"selector.kind is {self.selector.kind}, which is not trained")
        if self.task.name != "concepts":
            keys["learner"] = f"the task {self.task.name} has a pretrained model"
        return keys

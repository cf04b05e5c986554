"""Configuration of the study `debias`: BiasEdit (arXiv 2503.08588) with GRPO terms, on StereoSet.

The defaults are those of the public BiasEdit script for GPT-2 medium, as far as it has them. `_study.yaml` names
`DebiasConfig`; this module imports only pydantic, so that validating and planning do not need torch. Every field has a
default, because a stage gets only the keys that it reads.
"""

import math
from collections.abc import Sequence
from typing import Annotated, Any, Literal, Self

from pydantic import Field, model_validator

from ablation.contract.absent import Absent
from trainers.assets_config import Asset, HubSource, PathSource, Strict
from trainers.objectives.curriculum import active_rcs_phase, rcs_alpha, rcs_phases

Domain = Literal["gender", "race", "religion", "profession"]
Fraction = Annotated[float, Field(ge=0, le=1)]
Weight = Annotated[float, Field(ge=0, le=100)]


class MaxItems(Strict):
    """Upper bounds on the number of items of one domain in each split; null keeps all items."""

    train: int | None = Field(default=None, ge=1, description="Training items.")
    dev: int | None = Field(default=None, ge=1, description="Development items.")
    test: int | None = Field(default=None, ge=1, description="Test items.")


class Split(Strict):
    """Assignment of items to the training, development and test splits.

    By term: a seeded split of one file, stratified by domain; no term is in two splits, each split gets at least one.
    By file: as in a folder's files, in their order.
    """

    by: Literal["term", "file"] = Field(
        default="term",
        description="term: split one file by target term; file: a folder with train, dev and test or <domain>_test.",
    )
    train: float = Field(default=0.6, gt=0, lt=1, description="Share of each domain's terms for training.")
    dev: float = Field(default=0.1, gt=0, lt=1, description="Share of each domain's terms for development.")
    test: float = Field(default=0.3, gt=0, lt=1, description="Share of each domain's terms for the test.")
    seed: int = Field(default=0, ge=0, description="Seed of the split, shared by all training seeds.")
    max_items: MaxItems = Field(
        default=MaxItems(),
        description="Maximum number of items per domain, drawn with the split's seed; if by is file, the first ones.",
    )

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        total = self.train + self.dev + self.test
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ValueError(f"train, dev and test add up to {total:g}; change them so that the sum is 1")
        return self


class ModuleRule(Strict):
    """Rule that selects the output projections of the last MLPs in a model of any architecture."""

    last: int = Field(default=3, ge=1, description="Number of blocks, counted from the end.")


class Edit(Strict):
    """Edited modules, and the number of items edited at once."""

    modules: ModuleRule | list[str] = Field(
        default=ModuleRule(), description="Edited linear modules: a rule, or a list of dotted names."
    )
    n_edits: int = Field(default=128, ge=1, description="Items that share one shift of the weights.")
    batch_size: int = Field(default=32, ge=1, description="Items per forward and backward pass.")


class Editor(Strict):
    """The MALMEN hypernetwork (arXiv 2311.04661)."""

    rank: int = Field(default=1920, ge=1, description="Rank of the hypernetwork's blocks.")
    n_blocks: int = Field(default=2, ge=1, le=16, description="Number of residual blocks.")
    batch_size: int = Field(default=128, ge=1, description="Tokens per chunk of the backward pass.")


class Batches(Strict):
    """How items form edit batches; values other than the defaults are those of BiasEdit's data/base.py."""

    order: Literal["shuffled", "file"] = Field(
        default="shuffled", description="Training items: shuffled each epoch, or in the order of the file."
    )
    drop_last: bool = Field(default=False, description="Whether an incomplete last training batch is skipped.")
    mixed: bool = Field(
        default=False,
        description="Whether development batches mix the domains, in file order.",
    )


class EarlyStop(Strict):
    """End training when a figure of the development set has not improved for `patience` epochs."""

    key: Literal["edit/loss", "edit/ss_distance", "edit/ss_distance_max", "edit/ss_distance_mixed"] = Field(
        description="Watched metric, lower is better; SS distance: mean of domains, worst domain, or mixed batches.",
    )
    patience: int = Field(ge=1, description="Epochs without improvement before stopping.")


class Grpo(Strict):
    """GRPO terms: `loss = (1 - weight) * edit_loss + weight * (-gamma * reward + beta * KL)`."""

    weight: float = Field(default=0.0, ge=0, le=1, description="Share of the GRPO loss; 0 is BiasEdit alone.")
    reward: Literal["directional", "directional_probability", "balanced", "balanced_batch"] = Field(
        default="directional",
        description="lp_anti - lp_stereo; exp(lp_anti) - exp(lp_stereo); 0.5 - |lp_anti - lp_stereo|, mean over pairs; "
        "0.5 - |mean gap|, in which pairs cancel.",
    )
    beta: Weight = Field(
        default=0.05,
        description="Weight of the KL to the unedited model: `kl_coef` elsewhere, grpo_beta in the source's table.",
    )
    gamma: Weight = Field(default=0.5, description="Scale of the reward.")


Thresholds = Annotated[list[Fraction], Field(min_length=2, max_length=2)]
Alphas = Annotated[list[Weight], Field(min_length=3, max_length=3)]


class RcsSettings(Strict):
    """Weights of batches by their distance from balance."""

    thresholds: Thresholds = Field(description="Bounds [low, high] on the batch's |SS - 0.5|.")
    alphas: Alphas = Field(description="Strengths [low, mid, high] below, between and above the thresholds.")

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.thresholds[0] >= self.thresholds[1]:
            raise ValueError(f"the thresholds {self.thresholds} do not increase; sort them")
        return self


class RcsPhase(RcsSettings):
    """Settings that replace those of `rcs` from a given fraction of the epochs on."""

    after: float = Field(gt=0, lt=1, description="Fraction of n_epochs at which the phase starts.")


class RcsOff(Strict):
    """No curriculum: every batch has weight 1."""

    mode: Literal["off"] = "off"


class Rcs(RcsSettings):
    """Reward-based curriculum: `weight = 1 + alpha * max(0, 0.5 - reward)`. alpha depends on the batch's |SS - 0.5|."""

    mode: Literal["adaptive"] = "adaptive"
    schedule: list[RcsPhase] = Field(default=[], description="Later phases, in order.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        starts = [phase.after for phase in self.schedule]
        if starts != sorted(set(starts)):
            raise ValueError(f"`after` in schedule does not increase ({starts}); sort the phases")
        return self

    def _strengths(self, n_epochs: int, distances: Sequence[float]) -> list[list[float]]:
        """Return alpha for each epoch and each possible |SS - 0.5|."""
        active = [active_rcs_phase(epoch / n_epochs, rcs_phases(self)) for epoch in range(n_epochs)]
        return [[rcs_alpha(d, limits, alphas) for d in distances] for _, limits, alphas in active]


_MEASURING = {"model", "data", "labels", "dtype", "domains", "split", "edit", "editing"}  # read without editing, too


class DebiasConfig(Strict):
    """Everything that a variant of `debias` may change."""

    model: Asset = Field(
        default=Asset(kind="model", sources=[HubSource(source="hub", repo="openai-community/gpt2-medium")]),
        description="The language model that is edited.",
    )
    data: Asset = Field(
        default=Asset(kind="stereoset", sources=[PathSource(source="path", path="data/stereoset.jsonl")]),
        description="StereoSet intrasentence items: a file, or a folder with one file per split.",
    )
    labels: Asset | None = Field(
        default=None,
        description="StereoSet itself, by which swapped labels in `data` are refused; null: labels are not checked.",
    )
    dtype: Literal["float32", "bfloat16", "float64"] = Field(
        default="float32", description="Precision of the frozen model."
    )
    domains: list[Domain] = Field(
        default=["gender", "race", "religion"], min_length=1, description="Edited and measured domains."
    )
    split: Split = Field(default=Split(), description="Training, development and test items.")
    editing: Annotated[bool, Absent(True)] = Field(
        default=True,
        description="Whether the model is edited; false: nothing is trained, and the model is measured as it is.",
    )
    edit: Edit = Field(default=Edit(), description="Edited modules and batch sizes.")
    batches: Annotated[Batches, Absent({"order": "shuffled", "drop_last": False, "mixed": False})] = Field(
        default=Batches(), description="Formation of batches from items."
    )
    ss: Annotated[Literal["log_probability", "probability"], Absent("log_probability")] = Field(
        default="log_probability",
        description="What SS compares for rcs and early stopping: mean log-probabilities (StereoSet) or mean "
        "probabilities (BiasEdit).",
    )
    editor: Editor = Field(default=Editor(), description="The hypernetwork.")
    lr: float = Field(default=1e-7, gt=0, le=1, description="Initial step size of an edit, learned per module.")
    meta_lr: float = Field(default=1e-6, gt=0, le=1, description="Learning rate of the hypernetwork (Adam).")
    loc_coef: Weight = Field(default=1.0, description="Weight of the retention loss.")
    n_epochs: int = Field(default=100, ge=1, description="Passes over the training items.")
    max_grad_norm: float | None = Field(
        default=None, gt=0, description="Norm to which larger gradients are clipped; null: no clipping."
    )
    accumulation_steps: int = Field(default=2, ge=1, description="Edit batches per optimizer step.")
    early_stop: EarlyStop | None = Field(
        default=None, description="Early stopping; null: no early stopping, so the last epoch is kept."
    )
    grpo: Grpo = Field(default=Grpo(), description="The reward term.")
    rcs: Annotated[RcsOff | Rcs, Field(discriminator="mode")] = Field(
        default=RcsOff(), description="Reward-based curriculum."
    )
    mo_fairness_weight: Weight = Field(default=0.0, description="Weight of mean |lp_stereo - lp_anti|.")
    checkpoint_every: int = Field(default=10, ge=1, description="Edit batches between checkpoints.")

    def unseen_changes(self, parent: Self) -> dict[str, str]:
        """Return the changed values of `rcs` that cannot matter, each with the reason, for the reader.

        SS of n items moves in steps of 1/n, so two thresholds between the same two values of |SS - 0.5| act alike; and
        a phase that begins after the last epoch has begun never acts. A value is named if the child would act alike
        with the parent's, and the parent with the child's: `rcs.alphas` whole, else `rcs.alphas.1`, or the
        `rcs.schedule.thresholds` of its phases. A last, smaller batch of an epoch, whose size is not known here, may
        still tell them apart.
        """
        mine, parent_rcs = self.rcs, parent.rcs
        if isinstance(mine, RcsOff) or isinstance(parent_rcs, RcsOff) or self.edit != parent.edit:
            return {}
        sizes = {min(self.edit.batch_size, self.edit.n_edits), self.edit.n_edits % self.edit.batch_size} - {0}
        distances = sorted({abs(count / size - 0.5) for size in sizes for count in range(size + 1)})

        def alike(rcs: Rcs, **values: Any) -> bool:
            other = rcs.model_copy(update=values)
            return other._strengths(self.n_epochs, distances) == rcs._strengths(self.n_epochs, distances)

        def idle(key: str, old: list[Any], new: list[Any]) -> bool:
            return old != new and alike(mine, **{key: old}) and alike(parent_rcs, **{key: new})

        shown = ", ".join(f"{distance:.4g}" for distance in distances[:4])
        where = f"|SS - 0.5| of a batch of {max(sizes)} items is one of {shown}, ..."
        found = {}
        for key in ("thresholds", "alphas"):
            new, old = list(getattr(mine, key)), list(getattr(parent_rcs, key))
            if idle(key, old, new):
                found[f"rcs.{key}"] = where
                continue
            for place, values in enumerate(zip(old, new, strict=True)):
                with_old, with_new = [*new], [*old]
                with_old[place], with_new[place] = values
                if values[0] != values[1] and alike(mine, **{key: with_old}) and alike(parent_rcs, **{key: with_new}):
                    found[f"rcs.{key}.{place}"] = where
        if idle("schedule", parent_rcs.schedule, mine.schedule):
            begin = [f"{epoch / self.n_epochs:.4g}" for epoch in range(self.n_epochs)]
            found["rcs.schedule"] = f"{where}; epochs begin at {', '.join(begin[:4])}{', ...' if begin[4:] else ''}"
        elif mine.schedule != parent_rcs.schedule:
            for key in ("thresholds", "alphas"):
                first = getattr(mine, key)
                phases = [phase.model_copy(update={key: first}) for phase in mine.schedule]
                if phases != mine.schedule and alike(mine, schedule=phases):
                    found[f"rcs.schedule.{key}"] = where
        return found

    def without_effect(self) -> dict[str, str]:
        """Return the dotted keys without effect in this configuration, each with the reason.

        A variant may not change them.
        """
        if not self.editing:
            idle = [name for name in type(self).model_fields if name not in _MEASURING]
            return dict.fromkeys(idle, "editing is false, so nothing is trained")
        if self.grpo.weight > 0:
            return {}
        return dict.fromkeys(("grpo.reward", "grpo.beta", "grpo.gamma"), "grpo.weight is 0, so there is no GRPO loss")

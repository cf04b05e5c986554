"""Configuration of the study `debias`: BiasEdit (arXiv 2503.08588) with GRPO terms, on StereoSet.

The defaults are those of the public BiasEdit script for GPT-2 medium where it states them. `_study.yaml` names
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
    """Upper bounds on the number of items of one domain in each split."""

    train: int | None = Field(default=None, ge=1, description="Maximum number of training items; null: all.")
    dev: int | None = Field(default=None, ge=1, description="Maximum number of development items; null: all.")
    test: int | None = Field(default=None, ge=1, description="Maximum number of test items; null: all.")


class Split(Strict):
    """Assignment of items to the training, development and test splits.

    By term: the target terms of each domain are divided at random, at least one for each split, so that no term of a
    domain is in two splits. By file: each split has its own files, whose order is kept.
    """

    by: Literal["term", "file"] = Field(
        default="term",
        description="How items are divided. term: `data` is one file, divided by target term; file: `data` is a folder "
        "with a file per split, such as train.json, or per split and domain, such as gender_train.json.",
    )
    train: float = Field(default=0.6, gt=0, lt=1, description="Approximate share of training items if `by` is term.")
    dev: float = Field(default=0.1, gt=0, lt=1, description="Approximate share of development items if `by` is term.")
    test: float = Field(default=0.3, gt=0, lt=1, description="Approximate share of test items if `by` is term.")
    seed: int = Field(default=0, ge=0, description="Seed of the split, shared by all training seeds.")
    max_items: MaxItems = Field(
        default=MaxItems(),
        description="Maximum items per domain, which are drawn with `seed` or, if `by` is file, are the first ones.",
    )

    @model_validator(mode="after")
    def _sums_to_one(self) -> Self:
        total = self.train + self.dev + self.test
        if not math.isclose(total, 1.0, abs_tol=1e-9):
            raise ValueError(f"`train`, `dev` and `test` add up to {total:g}; change them so that the sum is 1")
        return self


class ModuleRule(Strict):
    """Rule that selects the output projections of the last MLPs in a model of any architecture."""

    last: int = Field(default=3, ge=1, description="Number of last blocks whose MLP output is edited.")


class Edit(Strict):
    """Edited modules, and the number of items edited at once."""

    modules: ModuleRule | list[str] = Field(
        default=ModuleRule(),
        description="Linear modules to edit: those of the last blocks (`last`), or a list of dotted names.",
    )
    n_edits: int = Field(default=128, ge=1, description="Items per edit batch, which share one shift of the weights.")
    batch_size: int = Field(default=32, ge=1, description="Items per forward and backward pass.")


class Editor(Strict):
    """The MALMEN hypernetwork (arXiv 2311.04661)."""

    rank: int = Field(default=1920, ge=1, description="Rank of each residual block.")
    n_blocks: int = Field(default=2, ge=1, le=16, description="Number of residual blocks.")
    batch_size: int = Field(default=128, ge=1, description="Tokens per pass through the hypernetwork.")


class Batches(Strict):
    """How items are grouped into edit batches. Values other than the defaults follow BiasEdit's data/base.py."""

    order: Literal["shuffled", "file"] = Field(
        default="shuffled", description="Order of the training items: shuffled in every epoch, or as in the file."
    )
    drop_last: bool = Field(default=False, description="Whether an incomplete last training batch is skipped.")
    mixed: bool = Field(
        default=False,
        description="Whether the development loss is measured on batches that mix the domains, in the order of the "
        "items; false: on batches of one domain each.",
    )


class EarlyStop(Strict):
    """End training when a development metric has not improved for `patience` epochs."""

    key: Literal["edit/loss", "edit/ss_distance", "edit/ss_distance_max", "edit/ss_distance_mixed"] = Field(
        description="Development metric to watch; its lowest value is best. edit/loss: the loss; otherwise |SS - 0.5|, "
        "as the mean over domains (ss_distance), for the worst domain (ss_distance_max), or for batches that mix the "
        "domains (ss_distance_mixed).",
    )
    patience: int = Field(ge=1, description="Number of epochs without improvement after which training stops.")


class Grpo(Strict):
    """GRPO terms: `loss = (1 - weight) * edit_loss + weight * (-gamma * reward + beta * KL)`."""

    weight: float = Field(default=0.0, ge=0, le=1, description="Weight of the GRPO loss; the edit loss has 1 - weight.")
    reward: Literal["directional", "directional_probability", "balanced", "balanced_batch"] = Field(
        default="directional",
        description="Reward of a batch, from the mean log-probabilities lp_anti and lp_stereo of an item's two "
        "sentences: the mean over items of lp_anti - lp_stereo (directional), of exp(lp_anti) - exp(lp_stereo) "
        "(directional_probability) or of 0.5 - |lp_anti - lp_stereo| (balanced); balanced_batch: 0.5 - |mean of "
        "lp_anti - lp_stereo|, in which items can cancel each other.",
    )
    beta: Weight = Field(
        default=0.05,
        description="Weight of the KL to the unedited model: `kl_coef` elsewhere, grpo_beta in the BiasEdit notes.",
    )
    gamma: Weight = Field(default=0.5, description="Weight of the reward.")


Thresholds = Annotated[list[Fraction], Field(min_length=2, max_length=2)]
Alphas = Annotated[list[Weight], Field(min_length=3, max_length=3)]


class RcsSettings(Strict):
    """Thresholds of a batch's |SS - 0.5|, and the values of alpha below, between and above them."""

    thresholds: Thresholds = Field(
        description="Two thresholds of a batch's |SS - 0.5|, the lower first; they separate the ranges of `alphas`."
    )
    alphas: Alphas = Field(description="Values of alpha for |SS - 0.5| below, between and above the thresholds.")

    @model_validator(mode="after")
    def _ascending(self) -> Self:
        if self.thresholds[0] >= self.thresholds[1]:
            raise ValueError(f"the thresholds {self.thresholds} do not increase; set two increasing values")
        return self


class RcsPhase(RcsSettings):
    """Thresholds and alphas that apply after a given fraction of the epochs, instead of the earlier ones."""

    after: float = Field(gt=0, lt=1, description="Fraction of n_epochs at which the phase starts.")


class RcsOff(Strict):
    """Give every batch the weight 1."""

    mode: Literal["off"] = "off"


class Rcs(RcsSettings):
    """Weight a batch by `1 + alpha * max(0, 0.5 - reward)`, where alpha depends on the batch's |SS - 0.5|."""

    mode: Literal["adaptive"] = "adaptive"
    schedule: list[RcsPhase] = Field(default=[], description="Phases that follow, in increasing order of `after`.")

    @model_validator(mode="after")
    def _in_order(self) -> Self:
        starts = [phase.after for phase in self.schedule]
        if starts != sorted(set(starts)):
            raise ValueError(f"the values of `after` in `schedule` do not increase ({starts}); set increasing values")
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
        description="Language model to edit.",
    )
    data: Asset = Field(
        default=Asset(kind="stereoset", sources=[PathSource(source="path", path="data/stereoset.jsonl")]),
        description="StereoSet intrasentence items: one file, or, if split.by is file, a folder.",
    )
    labels: Asset | None = Field(
        default=None,
        description="StereoSet's own file, with which the labels of `data` are compared, to refuse swapped labels; "
        "null: no comparison.",
    )
    dtype: Literal["float32", "bfloat16", "float64"] = Field(
        default="float32", description="Precision of the frozen model."
    )
    domains: list[Domain] = Field(
        default=["gender", "race", "religion"], min_length=1, description="Domains of bias to edit and to measure."
    )
    split: Split = Field(default=Split(), description="How items are divided into splits.")
    editing: Annotated[bool, Absent(True)] = Field(
        default=True,
        description="Whether the model is edited; false: nothing is trained, and the model is measured as it is.",
    )
    edit: Edit = Field(default=Edit(), description="Edited modules and batch sizes.")
    batches: Annotated[Batches, Absent({"order": "shuffled", "drop_last": False, "mixed": False})] = Field(
        default=Batches(), description="How items are grouped into edit batches."
    )
    ss: Annotated[Literal["log_probability", "probability"], Absent("log_probability")] = Field(
        default="log_probability",
        description="How SS compares the two sentences of an item in rcs and early stopping: by mean log-probability "
        "(StereoSet) or by mean probability (BiasEdit).",
    )
    editor: Editor = Field(default=Editor(), description="The hypernetwork.")
    lr: float = Field(default=1e-7, gt=0, le=1, description="Initial step size of an edit, which each module learns.")
    meta_lr: float = Field(default=1e-6, gt=0, le=1, description="Learning rate of the hypernetwork (Adam).")
    loc_coef: Weight = Field(default=1.0, description="Weight of the retention loss, on unrelated sentences.")
    n_epochs: int = Field(default=100, ge=1, description="Passes over the training items.")
    max_grad_norm: float | None = Field(
        default=None, gt=0, description="Norm to which larger gradients are clipped; null: no clipping."
    )
    accumulation_steps: int = Field(default=2, ge=1, description="Edit batches per optimizer step.")
    early_stop: EarlyStop | None = Field(
        default=None, description="When to stop before n_epochs; null: never, and the last epoch's editor is kept."
    )
    grpo: Grpo = Field(default=Grpo(), description="GRPO terms of the loss.")
    rcs: Annotated[RcsOff | Rcs, Field(discriminator="mode")] = Field(
        default=RcsOff(), description="Curriculum: batches with a low reward and an SS far from 0.5 get larger weights."
    )
    mo_fairness_weight: Weight = Field(
        default=0.0, description="Weight of the mean of |lp_stereo - lp_anti| (see grpo.reward)."
    )
    checkpoint_every: int = Field(default=10, ge=1, description="Edit batches between checkpoints.")

    def unseen_changes(self, parent: Self) -> dict[str, str]:
        """Return {dotted key: reason} of the changes of `rcs` from `parent` that cannot have any effect.

        SS of n items is a multiple of 1/n, so thresholds between the same two possible values of |SS - 0.5| act alike.
        A phase whose `after` is past the start of the last epoch never begins. A key is returned if `self` acts the
        same with the parent's value, and `parent` with the value of `self`. It may name one of several values:
        `rcs.alphas.1`, or `rcs.schedule.thresholds` for all phases. A smaller last batch of an epoch may still make a
        difference, but its size is not known here.
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
        possible = f"|SS - 0.5| of a batch of {max(sizes)} items can only be {shown}, ..."
        where = f"the old and new values act alike, because {possible}"
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
            starts = f"{', '.join(begin[:4])}{', ...' if begin[4:] else ''}"
            found["rcs.schedule"] = f"{where}; as a fraction of training, epochs begin only at {starts}"
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

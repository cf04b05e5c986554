"""The form of `_study.yaml` and of a scale. Unknown keys are errors everywhere."""

import re
from itertools import pairwise
from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator

_NAME = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]*")


def is_safe_name(name: str) -> bool:
    """Return whether a name may become a folder: letters, digits, `.`, `-`, `_`; no leading dot or dash, no `..`."""
    return bool(_NAME.fullmatch(name)) and ".." not in name and len(name) <= 100


def _simple(name: str) -> str:
    if not re.fullmatch(r"[a-z][a-z0-9_]*", name):
        raise ValueError("must be lower-case letters, digits and underscores, starting with a letter")
    return name


def _dotted(path: str) -> str:
    if not all(part.isidentifier() for part in path.split(".")):
        raise ValueError("must be a dotted module path")
    return path


StageName = Annotated[str, AfterValidator(_simple)]
Module = Annotated[str, AfterValidator(_dotted)]
Text = Annotated[str, Field(min_length=1)]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class Resources(_Strict):
    """What one job of a stage asks for."""

    threads: int = Field(default=1, ge=1, description="CPU threads.")
    mem_mb: int = Field(default=2000, ge=1, description="Memory in MB.")
    runtime: int = Field(default=60, ge=1, description="Minutes.")
    gpu: int = Field(default=0, ge=0, description="Accelerators (a slot of the pool on a machine without any).")


class ResourceOverride(_Strict):
    """Resources that a scale replaces."""

    threads: int | None = Field(default=None, ge=1)
    mem_mb: int | None = Field(default=None, ge=1)
    runtime: int | None = Field(default=None, ge=1)
    gpu: int | None = Field(default=None, ge=0)


class StageDefinition(_Strict):
    """One step of a run."""

    entry: Module = Field(description="Module with `def run(stage)`.")
    inputs: dict[StageName, Text] = Field(default={}, description="Name: an earlier stage, or `asset:<config key>`.")
    reads: list[Text] = Field(default=[], description="Top-level config keys that the stage may look at.")
    seeded: bool = Field(description="Whether its result depends on the seed.")
    resources: Resources = Field(default=Resources(), description="What one job asks for.")


class Exclusion(_Strict):
    """Values that do not go together: where `if` and `if_set` hold, `forbid`, `forbid_set`, `forbid_change` may not."""

    if_: dict[str, Any] = Field(default={}, alias="if", description="Dotted key: value; all must hold.")
    if_set: list[Text] = Field(default=[], description="Dotted keys; all must be set (neither null nor false).")
    forbid: dict[str, Any] = Field(default={}, description="Dotted key: value; not all may hold as well.")
    forbid_set: list[Text] = Field(default=[], description="Dotted keys of which none may be set as well.")
    forbid_change: list[Text] = Field(
        default=[],
        description="Dotted keys that a variant which changes a key of the condition may not change as well.",
    )
    because: Text = Field(description="The reason, shown in the error.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not (self.if_ or self.if_set):
            raise ValueError("a condition is missing: give `if` or `if_set`")
        if not (self.forbid or self.forbid_set or self.forbid_change):
            raise ValueError("nothing is forbidden: give `forbid`, `forbid_set` or `forbid_change`")
        return self

    def named_keys(self) -> list[str]:
        """Return every key that it names."""
        return [*self.if_, *self.if_set, *self.forbid, *self.forbid_set, *self.forbid_change]


class Column(_Strict):
    """One column of the table: a metric of the last stage."""

    metric: Text = Field(description="<protocol>/<subset>/<metric>.")
    label: Text
    published: str | None = Field(default=None, description="Column of the published table.")


class Reference(_Strict):
    """A first row of the table: the same columns with parts of the metric's name replaced."""

    label: Text
    replace: dict[str, str] = Field(min_length=1)


class Table(_Strict):
    """The comparison table."""

    columns: list[Column] = Field(min_length=1)
    reference: Reference | None = None


class Curve(_Strict):
    """One learning curve."""

    metric: Text
    label: Text


class FigurePanel(Curve):
    """One panel of a figure."""

    log: bool = Field(
        default=False, description="For lines and each: a logarithmic axis; what is not above 0 is left out."
    )
    variants: list[Text] | None = Field(
        default=None, min_length=1, description="For subsets and distributions: only these, in this order; null: all."
    )


class FigureAxis(_Strict):
    """What stands on the horizontal axis: another metric of the same stage, step by step."""

    metric: Text
    label: Text


class FigureDefinition(_Strict):
    """A figure of its own: one panel per metric with a line, a bar or boxes per variant."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", description="Name of the file.")]
    kind: Literal["lines", "each", "bars", "subsets", "distributions"] = Field(
        description="lines: along the steps; each: the same, a panel per variant, with its parent; bars: mean over the "
        "steps; subsets: a final metric along its subsets; "
        "distributions: quantiles of item values of any stage, a box per subset. The last two need the metric "
        "<protocol>/*/<name>."
    )
    title: Text
    panels: list[FigurePanel] = Field(min_length=1)
    x: FigureAxis | None = Field(default=None, description="For lines and each; null: the step.")
    axis: Text | None = Field(default=None, description="For subsets: what they are, in words.")
    columns: int = Field(default=2, ge=1, le=6, description="Panels side by side.")
    variants: list[Text] = Field(default=[], description="Those shown, in the order of the lineage; none: all.")

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        over_subsets = self.kind in ("subsets", "distributions")
        for panel in self.panels:
            parts = panel.metric.split("/")
            if over_subsets and (len(parts) != 3 or parts[1] != "*" or "*" in parts[0] + parts[2]):
                raise ValueError(f"panels: kind {self.kind} needs a metric <protocol>/*/<name>, not {panel.metric!r}")
            if panel.variants is not None and not over_subsets:
                raise ValueError(f"panels: `variants` has no effect with kind {self.kind}")
            if panel.variants is not None and self.variants:
                raise ValueError("`variants` of the figure and of a panel: give one of them")
        if self.kind == "each" and len(self.panels) != 1:
            raise ValueError(f"kind each draws one metric in a panel per variant, not {len(self.panels)} panels")
        if self.kind not in ("lines", "each") and any(panel.log for panel in self.panels):
            raise ValueError(f"panels: log has no effect with kind {self.kind}")
        if self.x is not None and self.kind not in ("lines", "each"):
            raise ValueError(f"x has no effect with kind {self.kind}")
        if self.axis is not None and self.kind != "subsets":
            raise ValueError(f"axis has no effect with kind {self.kind}")
        return self


class Target(_Strict):
    """A metric whose ideal is a value, not an extreme."""

    target: float


class Analysis(_Strict):
    """How edges are judged; fixed before there are results."""

    value: Text = Field(description="items.name of the primary metric.")
    protocol: Text = Field(description="items.protocol.")
    subsets: list[Text] = Field(min_length=1, description="items.subset; the statistic is the mean over them.")
    direction: Literal["max", "min"] | Target
    margin: float = Field(gt=0, description="Equivalence: a smaller difference does not matter.")
    alpha: float = Field(default=0.05, gt=0, lt=0.5, description="Family-wise error rate over the edges.")
    correction: Literal["holm"] = "holm"
    edges: Literal["parent"] = "parent"
    looks: list[Annotated[int, Field(ge=2)]] = Field(
        default=[],
        description="Numbers of seeds at which `decide` may judge and stop, increasing; none: one look at all.",
    )
    combinations: dict[str, Annotated[list[Text], Field(min_length=2)]] = Field(
        default={}, description="Combining variant: variants with one common parent whose effects it should add up."
    )

    @model_validator(mode="after")
    def _looks_increase(self) -> Self:
        if any(later <= earlier for earlier, later in pairwise(self.looks)):
            raise ValueError(f"looks {self.looks} must increase")
        return self


class Range(_Strict):
    """Healthy values; a missing bound is none. A value that is not finite is never inside."""

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min:g} is above max {self.max:g}")
        return self


_ONE_OR_MORE = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}]
}


class HealthRule(_Strict):
    """A range that a training metric should stay in; `contract.health.rules` says how it is measured."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    stage: Annotated[StageName, WithJsonSchema(_ONE_OR_MORE)] = Field(
        description="The stage that logs the metric, or a list: a rule for each, named by the stage from the second on."
    )
    metric: Text = Field(description="Name, or a shell pattern that stands for each metric that matches.")
    measure: Literal["value", "change", "ratio"] = Field(
        default="value", description="The value, or its change from or ratio to the reference."
    )
    reference: Text | None = Field(default=None, description="Metric of the reference; null: the metric's first value.")
    range: Range = Field(default=Range(), description="Empty: any finite value is healthy.")
    abs: bool = Field(default=False, description="Judge the absolute value.")
    window: int = Field(default=1, ge=1, description="So many logged values in a row must be outside.")
    after: int | None = Field(default=None, description="Steps up to and including this one are not looked at.")
    severity: Literal["note", "warn", "abort"] = Field(description="abort ends the stage as diverged.")
    diagnosis: Text = Field(description="What it means.")
    remedy: Text = Field(description="What to try.")

    @model_validator(mode="after")
    def _reference_is_used(self) -> Self:
        if self.reference is not None and self.measure == "value":
            raise ValueError("reference needs `measure: change` or `measure: ratio`")
        return self

    def numbers(self) -> dict[str, Any]:
        """Return what the rule computes, without its name and words; of an abort rule this is part of a key."""
        words = {"id", "stage", "severity", "diagnosis", "remedy"}
        return self.model_dump(mode="json", exclude=words, exclude_defaults=True)


def _rule_per_stage(rules: Any) -> Any:
    """Return the rules as written, one for each stage where a rule lists several."""
    if not isinstance(rules, list):
        return rules
    single = []
    for rule in rules:
        stages = rule.get("stage") if isinstance(rule, dict) else None
        if not isinstance(stages, list) or not stages:
            single.append(rule)
            continue
        names = [rule.get("id"), *(f"{rule.get('id')}-{str(stage).replace('_', '-')}" for stage in stages[1:])]
        single += [{**rule, "id": name, "stage": stage} for name, stage in zip(names, stages, strict=True)]
    return single


class StudyFile(_Strict):
    """`_study.yaml`."""

    title: Text
    question: Text
    source: Text
    config: Annotated[
        str, Field(pattern=r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$", description="module:Class of the config model.")
    ]
    base: dict[str, Any] = Field(default={}, description="Values of every root variant, over the model's defaults.")
    factors: dict[str, list[Text]] = Field(default={}, description="Keys that count as one factor.")
    exclusions: list[Exclusion] = []
    stages: dict[StageName, StageDefinition] = Field(min_length=1, description="In order; the last gives the results.")
    table: Table
    curves: list[Curve] = []
    figures: list[FigureDefinition] = Field(default=[], description="Figures beside curves, metric and lineage.")
    analysis: Analysis
    published: str | None = Field(default=None, description="configs/published/<name>.yaml.")
    health: Annotated[list[HealthRule], BeforeValidator(_rule_per_stage)] = []
    trained_model: StageName | None = Field(
        default=None, description="Subfolder in which a stage leaves its model as a Hugging Face folder; for `export`."
    )
    dirty_tree: Literal["allow", "warn", "refuse"] = Field(
        default="warn", description="When files differ from their commit: start stages, warn and start, or refuse."
    )

    @model_validator(mode="after")
    def _stages_agree(self) -> Self:
        earlier: set[str] = set()
        for name, stage in self.stages.items():
            for source in stage.inputs.values():
                if not source.startswith("asset:") and source not in earlier:
                    raise ValueError(f"stages.{name}.inputs: {source!r} is neither an earlier stage nor asset:<key>")
            earlier.add(name)
        ids = [rule.id for rule in self.health]
        for rule in self.health:
            if rule.stage not in self.stages:
                raise ValueError(f"health.{rule.id}.stage: there is no stage {rule.stage!r}")
            if ids.count(rule.id) > 1:
                raise ValueError(f"health: the id {rule.id!r} is given twice")
        return self


class ScaleStudy(_Strict):
    """How a scale sizes one study."""

    set: dict[str, Any] = Field(default={}, description="Values that replace those of every variant.")
    multiply: dict[str, Annotated[float, Field(gt=0)]] = Field(default={}, description="Dotted key: factor.")
    resources: dict[StageName, ResourceOverride] = {}


class ScaleFile(_Strict):
    """`configs/scales/<scale>.yaml`."""

    seeds: int | list[int] = Field(description="How many seeds, or which, unless the settings say otherwise.")
    studies: dict[str, ScaleStudy] = {}

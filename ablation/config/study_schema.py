"""The form of `_study.yaml`. Unknown keys are errors everywhere."""

import math
from collections.abc import Mapping
from itertools import pairwise
from pathlib import PurePosixPath
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    SerializerFunctionWrapHandler,
    WithJsonSchema,
    model_serializer,
    model_validator,
)

from ablation.config import dotted
from ablation.config.names import Module, StageName, Strict, Text
from ablation.contract.command import placeholders, split
from ablation.contract.errors import ConfigError
from ablation.contract.numbers import stated

ASSET_MODEL = "trainers.assets_config:Asset"
_IN_A_MODULE = r"^[A-Za-z_][\w.]*:[A-Za-z_]\w*$"
ASSET_PREFIX = "asset:"  # of an input: the asset that a config key holds
COMMAND_ENTRY = "ablation.runner.command"  # what runs a stage that is a command


class Resources(Strict):
    """Resources that each job of a stage requests."""

    threads: int = Field(default=1, ge=1, description="CPU threads.")
    mem_mb: int = Field(default=2000, ge=1, description="Memory in MB.")
    runtime: int = Field(default=60, ge=1, description="Minutes.")
    gpu: int = Field(
        default=0, ge=0, description="Number of accelerators; a machine without any only counts them against `gpus`."
    )


def _relative(pattern: str) -> str:
    if PurePosixPath(pattern).is_absolute() or pattern.startswith("~"):
        raise ValueError(f"{pattern!r} must be relative to the folder that holds configs/")
    return pattern


def _inside(place: str) -> str:
    if PurePosixPath(place).is_absolute() or ".." in PurePosixPath(place).parts:
        raise ValueError(f"{place!r} must be inside the command's output folder")
    return place


def _reader_and_place(item: Any) -> Any:
    """Return `name`, `name: place` or `name: {path: place, item: id}` in the full form `{reader: name, ...}`."""
    if isinstance(item, str):
        return {"reader": item}
    if isinstance(item, dict) and len(item) == 1 and "reader" not in item:
        (reader, options), *_ = item.items()
        if not isinstance(options, dict):
            return {"reader": reader, "place": options}
        columns = {key: column for key, column in options.items() if key not in ("path", "values", "at")}
        place = {"place": options["path"]} if "path" in options else {}
        at = {"at": options["at"]} if "at" in options else {}
        return {"reader": reader, **place, "columns": columns, "values": options.get("values", []), **at}
    return item


def _list_of_readers(value: Any) -> Any:
    return [{reader: options} for reader, options in value.items()] if isinstance(value, dict) else value


class Collected(Strict):
    """Files written by a command that a reader turns into metrics and evaluation items."""

    reader: Text = Field(description="The name of a reader (see docs/how-to/wrap-a-command.md).")
    place: Annotated[Text, AfterValidator(_inside)] = Field(
        default=".", description="File, folder or pattern, such as `eval/*.jsonl`, in the command's output folder."
    )
    columns: dict[str, Text] = Field(
        default={}, description="For a table: the name of the column for each role, as in {item: id}."
    )
    values: list[Text] = Field(
        default=[], description="For a table: the columns that hold values; by default all numeric columns."
    )
    at: Literal["last"] | int | None = Field(
        default=None,
        description="The step of the final values, or `last`; by default the step of the model that the run kept, or "
        "the last step if the run does not state one.",
    )


_COLLECTED = {
    "anyOf": [
        {"type": "string"},
        {"type": "object", "additionalProperties": {"type": ["string", "object"]}, "maxProperties": 1},
    ]
}


class StageDefinition(Strict):
    """One stage of a run, which runs a Python module or any command."""

    entry: Module | None = Field(default=None, description="The module that defines `run(stage)`.")
    command: Text | Annotated[list[Text], Field(min_length=1)] | None = Field(
        default=None,
        description="Instead of `entry`: a command line, as text or as a list of words, that runs without a shell. Its "
        "placeholders are {config}, {overrides}, {value:KEY}, {seed}, {output} and {input:NAME}.",
    )
    code: list[Annotated[Text, AfterValidator(_relative)]] = Field(
        default=[],
        description="For a command: its code, as a list of files, folders and patterns. If the code changes, the stage "
        "runs again.",
    )
    collect: Annotated[
        list[Annotated[Collected, BeforeValidator(_reader_and_place), WithJsonSchema(_COLLECTED)]],
        BeforeValidator(_list_of_readers),
    ] = Field(
        default=[],
        description="For a command: readers for the files that it writes, as `name`, `name: path` or `name: "
        "{path: path, item: column, values: [column]}`.",
    )
    steps: Text | None = Field(
        default=None, description="For a command: the configuration key that holds the command's number of steps."
    )
    time_limit: int | None = Field(
        default=None,
        ge=1,
        description="For a command: the minutes after which it and all processes that it started are stopped.",
    )
    inputs: dict[StageName, Text] = Field(
        default={}, description="For each input, an earlier stage or `asset:<config key>`."
    )
    reads: list[Text] = Field(default=[], description="Top-level config keys that the stage may read.")
    seeded: bool = Field(description="Whether the stage's result depends on the seed.")
    resources: Resources = Field(default=Resources(), description="Resources that one job requests.")

    @model_validator(mode="after")
    def _entry_or_command(self) -> Self:
        if (self.entry is None) == (self.command is None):
            raise ValueError("needs exactly one of `entry` and `command`; add one, or remove one")
        if self.command is None:
            command_keys = [key for key in ("code", "collect", "steps", "time_limit") if getattr(self, key)]
            if command_keys:
                problem = f"`{command_keys[0]}` needs a `command`, but this stage runs the module {self.entry}"
                raise ValueError(f"{problem}; remove `{command_keys[0]}`, or replace `entry` by `command`")
            return self
        placeholders(self.words)
        return self

    @property
    def words(self) -> list[str]:
        """The words of the command, with placeholders."""
        assert self.command is not None
        return split(self.command)

    @property
    def module(self) -> str:
        """The module that runs the stage."""
        return self.entry or COMMAND_ENTRY


class Exclusion(Strict):
    """Settings that cannot be combined: if the condition `if` holds, `forbid` and `forbid_change` are refused."""

    if_: dict[str, Any] = Field(
        alias="if",
        min_length=1,
        description="Values by dotted key. The condition holds if the configuration has all these values.",
    )
    forbid: dict[str, Any] = Field(
        default={},
        description="Values by dotted key. If the condition holds, a configuration with all these values is refused.",
    )
    forbid_change: list[Text] = Field(
        default=[],
        description="Dotted keys that a variant may not change together with a key of the condition.",
    )
    because: Text = Field(description="The reason, which the error message shows.")

    @model_validator(mode="after")
    def _complete(self) -> Self:
        if not (self.forbid or self.forbid_change):
            raise ValueError("the exclusion forbids nothing; give `forbid` or `forbid_change`")
        return self

    def named_keys(self) -> list[str]:
        """Return all dotted keys that the exclusion names, in its condition and in what it forbids."""
        return [*self.if_, *self.forbid, *self.forbid_change]


class Target(Strict):
    """The direction of a metric that is best at the number `target`, instead of at a maximum or minimum."""

    target: float


def read_direction(command: str, text: str) -> Literal["max", "min"] | Target:
    """Return the direction in the text `max`, `min` or `target:NUMBER`. Raises ConfigError for any other text."""
    if text in ("max", "min"):
        return "max" if text == "max" else "min"
    name, _, number = text.partition(":")
    try:
        if name == "target" and math.isfinite(float(number)):
            return Target(target=float(number))
    except ValueError:
        pass
    remedy = "write max, min, or a target such as target:0.5"
    raise ConfigError(command, "--direction", text, "is not a valid direction", remedy)


class Guardrail(Strict):
    """A metric that a change must not make worse, however much it improves the primary metric."""

    metric: Text = Field(description="The name of the value to guard; the primary metric's items must have it, too.")
    direction: Literal["max", "min"] | Target
    margin: float = Field(gt=0, lt=1e100, description="The smallest worsening that matters.")


_LATER = ("guardrails", "samples", "pass_at", "cons_at", "transform", "seeds", "claim")


class Analysis(Strict):
    """The analysis plan, which says how comparisons are judged and is fixed before there are results."""

    value: Text = Field(description="The name of the item value that is the primary metric.")
    protocol: Text = Field(default="test", description="The protocol of the primary metric's items.")
    subsets: list[Text] = Field(
        default=["all"],
        min_length=1,
        description="The subsets of items; the statistic is the mean over these subsets.",
    )
    direction: Literal["max", "min"] | Target
    margin: Annotated[float, Field(gt=0, lt=1e100)] | None = Field(
        description="The smallest difference that matters. If it is null, no verdict is `equivalent`, and the "
        "gate refuses the study."
    )
    alpha: float = Field(
        default=0.05,
        gt=0,
        lt=0.5,
        description="The bound on the error rate over all comparisons; `error` selects the kind of error rate.",
    )
    error: Literal["fwer", "fdr"] = Field(
        default="fwer",
        description="What alpha bounds: fwer, the chance of any false better or worse in the study (family-wise error "
        "rate); fdr, the expected share of false verdicts among better and worse (false discovery rate).",
    )
    seeds: Literal["paired", "independent"] | None = Field(
        default=None,
        description="Whether the two compared runs with the same seed share something, such as data order or "
        "initialisation (paired), or not (independent). By default paired, except for imported runs whose seeds are "
        "not known.",
    )
    claim: Literal["recipe", "checkpoints"] | None = Field(
        default=None,
        description="Whether a verdict is about the recipe with any seed (recipe, the default) or only about these "
        "checkpoints (checkpoints).",
    )
    rare: float = Field(
        default=0.5,
        gt=0,
        lt=1,
        description="`equivalent` needs enough seeds to rule out that more than this share of all seeds behave "
        "differently: at alpha 0.05, 5 seeds for a half, 11 for a quarter, 29 for a tenth.",
    )
    correction: Literal["max-t", "holm"] = Field(
        default="max-t",
        description="The correction for the number of comparisons in the study; `max-t` takes into account which "
        "parents and items the comparisons share.",
    )
    variance: Literal["moderated", "own"] = Field(
        default="moderated",
        description="The variance between seeds: the comparison's own estimate (own), or an estimate that is moderated "
        "by the study's other variants (moderated).",
    )
    comparisons: Literal["parent", "root"] | list[tuple[Text, Text]] = Field(
        default="parent",
        description="What is compared: each variant with its parent (parent), each with its root (root), or a list of "
        "[child, parent] pairs.",
    )
    interim_analyses: list[Annotated[int, Field(ge=3)]] = Field(
        default=[],
        description="Increasing numbers of seeds at which `add-seeds` may judge and stop; by default there is one "
        "analysis, with all seeds.",
    )
    combinations: dict[str, Annotated[list[Text], Field(min_length=2)]] = Field(
        default={},
        description="For each combined variant, the variants of the same parent whose effects should add up.",
    )
    guardrails: list[Guardrail] = Field(
        default=[], description="Metrics that must not get worse; each is tested in every comparison."
    )
    samples: Annotated[int, Field(ge=1)] | Annotated[list[Text], Field(min_length=1)] | None = Field(
        default=None,
        description="The number of samples averaged in an item's value, or the configuration keys whose product is "
        "this number.",
    )
    pass_at: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Judge the chance that at least one of this many samples is right, instead of the samples' mean.",
    )
    cons_at: Annotated[int, Field(ge=1)] | None = Field(
        default=None,
        description="Judge the chance that the majority of this many samples is right; a tie counts half.",
    )
    transform: Literal["log"] | None = Field(
        default=None,
        description="log: judge the natural logarithm of the items' values (losses, lengths, latencies), which must be "
        "above 0. Effect and margin are then log ratios: 0.05 is about 5%.",
    )

    @model_serializer(mode="wrap")
    def _without_unused(self, plain: SerializerFunctionWrapHandler) -> dict[str, Any]:
        """Leave out unused keys of `_LATER`, so that a plan has the same digest as before these keys existed."""
        content: dict[str, Any] = plain(self)
        return {key: value for key, value in content.items() if value or key not in _LATER}

    @property
    def k(self) -> int:
        """The number of samples that pass@k or cons@k draws; 0 if means of samples are compared."""
        return self.pass_at or self.cons_at or 0

    @property
    def outcome(self) -> str:
        """The outcome of an item's samples that is compared, such as `pass@4`; empty if it is their mean."""
        return f"{'pass' if self.pass_at else 'cons'}@{self.k}" if self.k else ""

    @property
    def named(self) -> str:
        """The name of what is compared, such as `accuracy`, `pass@4 of accuracy` or `log of latency`."""
        made = self.outcome or self.transform
        return f"{made} of {self.value}" if made else self.value

    def samples_in(self, config: Mapping[str, Any]) -> int | None:
        """Return the number of samples per item in a configuration.

        Returns None if `samples` is not set, or if one of its keys does not hold a whole number in the configuration.
        """
        if not isinstance(self.samples, list):
            return self.samples
        counts = [dotted.get(config, key, None) for key in self.samples]
        return math.prod(counts) if all(type(number) is int for number in counts) else None

    @model_validator(mode="after")
    def _samples_are_right_or_wrong(self) -> Self:
        if self.pass_at and self.cons_at:
            raise ValueError("`pass_at` and `cons_at` cannot be combined; leave one out")
        if self.k and (self.samples is None or self.direction != "max"):
            raise ValueError(f"{self.outcome} needs `samples` and `direction: max`; set both")
        if isinstance(self.samples, int) and self.k > self.samples:
            least = f"items have {self.samples}; reduce {'pass_at' if self.pass_at else 'cons_at'}"
            raise ValueError(f"{self.outcome} needs {self.k} samples, but {least}")
        if self.transform and (self.k or isinstance(self.direction, Target)):
            raise ValueError("`transform: log` cannot be combined with pass_at, cons_at or a target; leave one out")
        return self

    @model_validator(mode="after")
    def _agrees(self) -> Self:
        names = [self.named, *(rail.metric for rail in self.guardrails)]
        if twice := [name for name in names if names.count(name) > 1]:
            raise ValueError(f"guardrails: {twice[0]} is the primary metric or occurs twice; name each metric once")
        if any(later <= earlier for earlier, later in pairwise(self.interim_analyses)):
            raise ValueError(f"interim_analyses must be increasing numbers, not {self.interim_analyses}")
        pairs = self.comparisons if isinstance(self.comparisons, list) else [("child", "parent")]
        if not pairs or len({frozenset(pair) for pair in pairs}) < len(pairs) or any(a == b for a, b in pairs):
            shown = ", ".join(f"[{a}, {b}]" for a, b in pairs)
            raise ValueError(
                f"comparisons must be one or more pairs of different variants, each pair once, not [{shown}]"
            )
        return self


class Range(Strict):
    """A range of healthy values, with both bounds included; None means no bound. Only finite values are healthy."""

    min: float | None = None
    max: float | None = None

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {stated(self.min)} is above max {stated(self.max)}")
        return self


_ONE_OR_MORE = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1, "uniqueItems": True}]
}


class HealthRule(Strict):
    """A range in which a training metric should stay; see `ablation.contract.health` for how it is checked."""

    id: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$")]
    stage: Annotated[StageName, WithJsonSchema(_ONE_OR_MORE)] = Field(
        description="The stage that logs the metric. A list makes one rule per stage; from the second stage on, the "
        "rule's id ends with the stage's name."
    )
    metric: Text = Field(description="The metric's name, or a shell pattern; every metric that matches is checked.")
    measure: Literal["value", "change", "ratio"] = Field(
        default="value",
        description="What is judged: the value, its change from the reference, or its ratio to the reference.",
    )
    reference: Text | None = Field(
        default=None, description="The metric that serves as the reference; null: the first value of the judged metric."
    )
    range: Range = Field(
        default=Range(), description="The range of healthy values; without bounds, every finite value is healthy."
    )
    abs: bool = Field(default=False, description="Whether to judge the absolute value.")
    window: int = Field(
        default=1, ge=1, description="How many consecutive logged values must lie outside the range to break the rule."
    )
    after: int | None = Field(default=None, description="Steps up to and including this one are ignored.")
    severity: Literal["note", "warn", "abort"] = Field(
        description="What a broken rule does: `note` and `warn` report it, `abort` also ends the stage as diverged."
    )
    diagnosis: Text = Field(description="What a broken rule means.")
    remedy: Text = Field(description="What to try if the rule is broken.")

    @model_validator(mode="after")
    def _reference_is_used(self) -> Self:
        if self.reference is not None and self.measure == "value":
            raise ValueError("`reference` needs `measure: change` or `measure: ratio`; set one, or remove `reference`")
        return self


def _rule_per_stage(rules: Any) -> Any:
    """Return the rules as written, but split a rule that lists several stages into one rule per stage."""
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


_LABEL: str = Field(
    default_factory=lambda data: data.get("metric", ""), description="The label; by default the metric."
)


class ColumnDefinition(Strict):
    """One column of the table: a metric of the last stage."""

    metric: Text = Field(description="The metric, as <protocol>/<subset>/<metric>.")
    label: Text = _LABEL
    published: str | None = Field(
        default=None, description="The column of the published table that has the same metric."
    )
    change: bool = Field(
        default=False,
        description="Whether to add a column with the change from the parent's mean in percent, also for "
        "published values.",
    )


class ReferenceDefinition(Strict):
    """A reference row above the variants. Its metrics are those of the columns, with parts of their names replaced."""

    label: Text
    replace: dict[str, str] = Field(min_length=1)


class MeansOver(Strict):
    """The protocols whose values are means over several policies of each run, and the tables' name for policies."""

    key: Text = Field(description="The configuration key that holds the number of policies.")
    protocols: list[Text] = Field(min_length=1, description="Protocols whose values are means over the policies.")
    of: Text = Field(default="policies", description="What the tables call the policies, in the plural.")


class TableDefinition(Strict):
    """The table that compares the variants."""

    columns: list[ColumnDefinition] = Field(min_length=1)
    reference: ReferenceDefinition | None = None
    means_over: MeansOver | None = None


class CurveDefinition(Strict):
    """A metric whose learning curves are drawn."""

    metric: Text
    label: Text = _LABEL


class FigurePanel(CurveDefinition):
    """One panel of a figure."""

    log: bool = Field(
        default=False,
        description="For `lines` and `each`: use a logarithmic axis, which leaves out values of 0 and below.",
    )
    variants: list[Text] | None = Field(
        default=None,
        min_length=1,
        description="For `subsets` and `distributions`: the variants to show in this panel, in this order; null: the "
        "figure's variants.",
    )


class FigureAxis(Strict):
    """Another metric on a panel's horizontal axis; the stage that logs the panel's metric must log it, too."""

    metric: Text
    label: Text


class FigureDefinition(Strict):
    """A separate figure, with one panel per metric and a line, a bar or boxes per variant."""

    name: Annotated[str, Field(pattern=r"^[a-z][a-z0-9-]*$", description="The figure's file name.")]
    kind: Literal["lines", "each", "bars", "subsets", "distributions"] = Field(
        description="lines: values by step; each: values by step, with a panel per variant that also shows its "
        "parent; bars: the mean over the steps; subsets: a final metric by subset; distributions: "
        "quantiles of item values of any stage, one box per subset. Metrics of the last two have the form "
        "<protocol>/*/<name>."
    )
    title: Text
    panels: list[FigurePanel] = Field(min_length=1)
    x: FigureAxis | None = Field(
        default=None, description="For `lines` and `each`: the metric on the horizontal axis; null: the step."
    )
    axis: Text | None = Field(default=None, description="For `subsets`: the label of the horizontal axis.")
    columns: int = Field(default=2, ge=1, le=6, description="Number of panels side by side.")
    variants: list[Text] = Field(
        default=[], description="The variants to show (default: all). The figure has the order of the variant tree."
    )

    def names(self) -> list[str]:
        """Return the names of all variants that the figure and its panels select."""
        return [*self.variants, *(name for panel in self.panels for name in panel.variants or ())]

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        over_subsets = self.kind in ("subsets", "distributions")
        for panel in self.panels:
            parts = panel.metric.split("/")
            if over_subsets and (len(parts) != 3 or parts[1] != "*" or "*" in parts[0] + parts[2]):
                raise ValueError(f"panels: kind {self.kind} needs metrics <protocol>/*/<name>, not {panel.metric!r}")
            if panel.variants is not None and not over_subsets:
                raise ValueError(f"panels: `variants` has no effect with kind {self.kind}; remove it")
            if panel.variants is not None and self.variants:
                raise ValueError("`variants` of a figure cannot be combined with those of a panel; leave one out")
        if self.kind == "each" and len(self.panels) != 1:
            panels = f"has {len(self.panels)} panels, but kind each takes only one, which it draws for each variant"
            raise ValueError(f"{panels}; keep only one panel")
        if self.kind not in ("lines", "each") and any(panel.log for panel in self.panels):
            raise ValueError(f"panels: `log` has no effect with kind {self.kind}; remove it")
        if self.x is not None and self.kind not in ("lines", "each"):
            raise ValueError(f"`x` has no effect with kind {self.kind}; remove it")
        if self.axis is not None and self.kind != "subsets":
            raise ValueError(f"`axis` has no effect with kind {self.kind}; remove it")
        return self


class StudyDefinition(Strict):
    """A study's question, and how its results are judged and shown.

    This part of `_study.yaml` is also stored in plan.json and in the database, unlike the keys of `StudyFile`.
    """

    title: Text
    question: Text
    source: Text | None = Field(default=None, description="Where the question and the variants come from.")
    table: TableDefinition
    curves: list[CurveDefinition] = Field(default=[])
    figures: list[FigureDefinition] = Field(
        default=[], description="Figures in addition to those that every study has: curves, metric and variant-tree."
    )
    analysis: Analysis
    health: Annotated[list[HealthRule], BeforeValidator(_rule_per_stage)] = Field(default=[])
    trained_model: StageName | None = Field(
        default=None,
        description="The subfolder to which a stage writes its model as a Hugging Face folder, for `ablation export`.",
    )

    def fields_of(self, kind: type["StudyDefinition"]) -> dict[str, Any]:
        """Return {field: value} of the fields of the base class `kind`, to make another subclass from them."""
        return {name: getattr(self, name) for name in kind.model_fields}


class StudyFile(StudyDefinition):
    """The content of `_study.yaml`: the definition of the study, and keys that are needed only for planning."""

    config: Annotated[str, Field(pattern=_IN_A_MODULE)] | None = Field(
        default=None, description="The config model, as module:Class; by default `base` gives the keys and types."
    )
    parts: Annotated[str, Field(pattern=_IN_A_MODULE)] | None = Field(
        default=None,
        description="A function `parts(config, stage)`, as module:function, that returns {slot: dotted name of the "
        "code}.",
    )
    base: dict[str, Any] = Field(
        default={}, description="Values for every root variant, in place of the config model's defaults."
    )
    factors: dict[str, list[Text]] = Field(
        default={}, description="Named groups of keys; each group counts as one factor."
    )
    exclusions: list[Exclusion] = Field(default=[])
    stages: Annotated[
        dict[StageName, StageDefinition],
        Field(min_length=1),
        BeforeValidator(lambda stages: stages, json_schema_input_type=dict[StageName, StageDefinition] | str),
    ] = Field(
        description="The stages in order, of which the last one gives the results; or a name, which takes the stages "
        "from configs/studies/<name>.yaml."
    )
    published: str | None = Field(
        default=None, description="The <name> of configs/published/<name>.yaml, which holds the source's numbers."
    )
    dirty_tree: Literal["allow", "warn", "refuse"] = Field(
        default="warn",
        description="Whether stages start with uncommitted changes: yes (allow), with a warning (warn) or no (refuse).",
    )

    @model_validator(mode="after")
    def _stages_agree(self) -> Self:
        earlier: set[str] = set()
        for name, stage in self.stages.items():
            if stage.entry is not None and self.config is None:
                raise ValueError(
                    f"stages.{name}.entry: a module needs a config model; add `config: module:Class` to the study"
                )
            for source in stage.inputs.values():
                if not source.startswith(ASSET_PREFIX) and source not in earlier:
                    problem = f"{source!r} is neither an earlier stage nor asset:<config key>"
                    raise ValueError(f"stages.{name}.inputs: {problem}; name one of them")
            earlier.add(name)
        ids = [rule.id for rule in self.health]
        for rule in self.health:
            if rule.stage not in self.stages:
                known = f"choose from {', '.join(self.stages)}"
                raise ValueError(f"health.{rule.id}.stage: the stage {rule.stage!r} does not exist; {known}")
            if ids.count(rule.id) > 1:
                raise ValueError(f"health: the id {rule.id!r} occurs twice; give each rule its own id")
        return self

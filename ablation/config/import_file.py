"""The form of `study.yaml` for imported runs, or for evaluations that `compare --study` judges.

The file has the question, the analysis plan, and rules that assign runs to variants. Only the analysis plan has
required keys; everything else that the file leaves out is derived from the runs. Unknown keys are errors.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from pydantic import Field, field_validator

from ablation.config.names import Strict, Text, is_safe_name, known_direction, suggest
from ablation.config.study_schema import Analysis, CurveDefinition, TableDefinition
from ablation.config.validation import validate
from ablation.config.yaml_io import load_yaml
from ablation.contract.errors import ConfigError
from ablation.contract.rows import LOGGED, LOGGED_VALUE

_LISTS = ("ignore", "leave_out", "allow")
_MAPS = ("metrics", "parents", "columns")


class RunRules(Strict):
    """Rules that give the seed and variant of each imported run, and select its settings and metrics."""

    seed: Text | None = Field(
        default=None,
        description="Where to find the seed: a dotted key of the configuration; name:REGEX, a regular expression "
        "whose group finds the seed in the run's name; or number, to number a variant's runs by start time.",
    )
    variant: Text | None = Field(
        default=None,
        description="Where to find the variant: a dotted key, or name:REGEX as for `seed`. By default, runs that "
        "have the same configuration except for the seed belong to one variant.",
    )
    ignore: list[Text] = Field(default=[], description="Dotted keys to ignore when configurations are compared.")
    leave_out: list[Text] = Field(
        default=[], description="Runs to leave out, as shell patterns for their names or ids."
    )
    metrics: dict[Text, Text] = Field(default={}, description="Metrics to rename, as `new name: name in the log`.")
    parents: dict[Text, Text | None] = Field(default={}, description="The parent of each variant, or null for a root.")
    columns: dict[Text, Text] = Field(
        default={}, description="For a table of runs: the name of the column for each role, such as seed or variant."
    )
    url: Text | None = Field(
        default=None,
        description="Address of a run's page in its experiment tracker, with {id} for the run's id, such as "
        "https://wandb.ai/TEAM/PROJECT/runs/{id}. The report links to this page.",
    )
    allow: list[Literal["prompt"]] = Field(
        default=[], description="Differences between compared runs to accept because they are what you are testing."
    )
    at: int | Literal["last", "best", "common"] | None = Field(
        default=None,
        description="The step at which final metrics are taken: last (the run's last logged step), best (the step "
        "of its best model), common (the last step that all runs logged), or a number. By default, the step of the "
        "model that the run kept, or the last step if the run does not state one.",
    )

    @field_validator("url")
    @classmethod
    def _names_the_run(cls, url: str | None) -> str | None:
        if url is not None and not (url.startswith(("https://", "http://")) and "{id}" in url):
            raise ValueError("must begin with https:// or http:// and contain {id}")
        return url


class Evaluations(Strict):
    """Options for reading and weighting evaluation files, which `compare --study` takes from study.yaml."""

    item: Text | None = None
    filter: Text | None = None
    cluster: Text | None = None
    tasks: list[Text] = Field(default=[], description="The tasks to compare; by default all tasks in the files.")
    at: Text | None = None
    weight: Literal["tasks", "items"] | None = None
    allow: list[Literal["prompt", "target", "task", "identical", "scale"]] = Field(default=[])
    common_items: bool = False
    errors: Literal["refuse", "leave-out", "fail"] = "refuse"


class NamedVariant(Strict):
    """A variant declared in `study.yaml`, and the runs that belong to it."""

    parent: Text | None = None
    why: Text | None = None
    label: Text | None = Field(
        default=None, description="What the variant changes, in a few words for tables and figures."
    )
    where: dict[Text, Any] = Field(
        default={}, description="Values by dotted key. A run with all of these values belongs to the variant."
    )
    runs: list[Text] = Field(
        default=[],
        description="Shell patterns for the names of the variant's runs. For `compare --study`: files, folders or "
        "patterns, relative to the folder of study.yaml.",
    )


class ImportFile(Strict):
    """The content of `study.yaml`."""

    name: Text | None = None
    title: Text | None = None
    question: Text | None = None
    source: Text | None = None
    analysis: dict[str, Any] = Field(
        default={},
        description="The analysis plan, as in _study.yaml; `metric` (a name or a list of names) may replace value, "
        "protocol and subsets.",
    )
    table: TableDefinition | None = None
    curves: list[CurveDefinition] | None = None
    factors: dict[str, list[Text]] = Field(
        default={}, description="Named groups of keys; each group counts as one factor."
    )
    runs: RunRules = RunRules()
    evaluations: Evaluations = Evaluations()
    variants: dict[Text, NamedVariant] = Field(default={})


def read_import_file(path: Path) -> tuple[str, ImportFile]:
    """Return the study's name and the content of `study.yaml`. Raises ConfigError if the file is not valid."""
    written = validate(ImportFile, load_yaml(path), path)
    name = written.name or (path.resolve().parent.name if path.stem in ("study", "_study") else path.stem)
    for variant in written.variants:
        checked_name(variant, path, "variants", "variant")
    return checked_name(name, path), written


def checked_name(name: str, where: Path | str, key: str = "name", kind: str = "study") -> str:
    """Return the name if it is valid for a study, or for a variant. Raises ConfigError for an invalid name."""
    if not is_safe_name(name):
        remedy = "use letters, digits, '.', '-' and '_', and do not start with '.' or '-'"
        raise ConfigError(where, key, name, f"is not a valid {kind} name", remedy)
    return name


def with_options(written: ImportFile, mapped: list[str], analysis: Mapping[str, Any]) -> ImportFile:
    """Return study.yaml changed by options `--map KEY=VALUE` (`mapped`) and by values of the analysis plan.

    Raises ConfigError if a key is unknown or a value is not valid.
    """
    rules: dict[str, Any] = written.runs.model_dump()
    for pair in mapped:
        key, equals, value = pair.partition("=")
        group, _, rest = key.partition(".")
        allowed = [*RunRules.model_fields, *(f"{name}.NAME" for name in _MAPS)]
        if not equals or not value or group not in RunRules.model_fields or bool(rest) != (group in _MAPS):
            raise ConfigError("--map", pair, None, "is not KEY=VALUE with a known key", suggest(key, allowed))
        if group in _MAPS:
            rules[group] = {**rules[group], rest: None if (group, value) == ("parents", "none") else value}
        else:
            rules[group] = value.split(",") if group in _LISTS else value
    if isinstance(rules["at"], str) and rules["at"].isdecimal() and len(rules["at"]) < 19:
        rules["at"] = int(rules["at"])
    update = {"runs": validate(RunRules, rules, "--map"), "analysis": _joined(written.analysis, analysis)}
    return written.model_copy(update=update)


def _joined(before: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """Return an analysis plan with the values of `over`, where a metric replaces items, and items replace a metric."""
    items = {"value", "protocol", "subsets"}
    gone = items if "metric" in over else {"metric"} if items & set(over) else set()
    return {key: value for key, value in before.items() if key not in gone} | dict(over)


def with_known_direction(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return an analysis plan with the direction that its metrics' names imply, unless the plan states a direction."""
    metrics = values.get("metric") or values.get("value") or []
    directions = {known_direction(str(name)) for name in (metrics if isinstance(metrics, list) else [metrics])}
    known = {"direction": directions.pop()} if len(directions) == 1 and None not in directions else {}
    return known | dict(values)


def analysis_of(values: Mapping[str, Any], file: Path | str) -> Analysis:
    """Return a checked analysis plan. Raises ConfigError if a value is invalid, or if it names both a metric and items.

    A final metric is judged as the only item of a subset with the metric's name. Its intervals then cover only the
    noise between seeds, and verdicts say so.
    """
    plan = dict(values)
    metrics = plan.pop("metric", None)
    if metrics is not None:
        if conflicting := {"value", "protocol", "subsets"} & set(plan):
            problem = f"cannot be combined with {', '.join(sorted(conflicting))}"
            raise ConfigError(file, "analysis.metric", metrics, problem, "leave out the metric, or the other keys")
        subsets = [metrics] if isinstance(metrics, str) else metrics
        plan = {"value": LOGGED_VALUE, "protocol": LOGGED, "subsets": subsets, **plan}
    return validate(Analysis, plan, file, "analysis.")

"""Health rules. In YAML, under `health:` of a study (each also has id, stage, diagnosis and remedy):

- {metric: critic/d_acc, range: {min: 0.5, max: 0.9}, window: 5, severity: warn}
- {metric: actor/pg_loss, abs: true, range: {min: 0.001}, window: 5, severity: warn}        # of the absolute value
- {metric: "edit/*/ss_distance", measure: change, range: {max: 0.1}, severity: warn}        # away from its first value
- {metric: response_length/mean, measure: ratio, reference: teacher/length, range: {min: 0.5, max: 2}, severity: warn}
- {metric: train/loss, severity: abort}                                                     # no range: must be finite
"""

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields
from fnmatch import fnmatchcase
from typing import Any, Literal

Severity = Literal["note", "warn", "abort"]
Measure = Literal["value", "change", "ratio"]
SEVERITIES = ("note", "warn", "abort")
MEASURES = ("value", "change", "ratio")


@dataclass(frozen=True)
class Rule:
    """A range that a metric must stay in.

    id: its name. stage: the stage that logs the metric ("": any).
    metric: its name; a shell pattern (`edit/*/ss_distance`) stands for each metric that matches, on its own.
    min, max: inclusive bounds of the measured quantity; None: no bound. A value that is not finite is always outside.
    abs: bound the absolute value of the measured quantity.
    measure: the `value` itself, its `change` (value minus reference) or its `ratio` to the reference: the metric
    named by `reference` at the same step (or its last step before), by default the metric's own first finite value.
    window: this many consecutive logged values must be outside (a short excursion is not a fault); a single value that
    is not finite suffices. after: steps up to and including this one are ignored.
    """

    metric: str
    id: str = ""
    stage: str = ""
    min: float | None = None
    max: float | None = None
    abs: bool = False
    measure: Measure = "value"
    reference: str | None = None
    window: int = 1
    after: int | None = None
    severity: Severity = "warn"
    diagnosis: str = ""
    remedy: str = ""

    def covers(self, metric: str) -> bool:
        """Tell whether the rule applies to the metric of this name."""
        return metric == self.metric or fnmatchcase(metric, self.metric)

    def is_outside(self, quantity: float) -> bool:
        """Tell whether a measured quantity (see `measure`) breaks the rule."""
        if not math.isfinite(quantity):
            return True
        size = math.fabs(quantity) if self.abs else quantity
        return (self.min is not None and size < self.min) or (self.max is not None and size > self.max)

    def describe(self) -> str:
        """Return the healthy range in a few characters, for example `|actor/pg_loss| >= 0.001`."""
        subject = self.metric if self.measure == "value" else f"{self.measure} of {self.metric}"
        if self.measure != "value" and self.reference:
            subject += f" to {self.reference}"
        subject = f"|{subject}|" if self.abs else subject
        if self.min is None and self.max is None:
            return f"{subject} finite"
        if self.min is not None and self.max is not None:
            return f"{subject} in [{self.min:g}, {self.max:g}]"
        return f"{subject} <= {self.max:g}" if self.min is None else f"{subject} >= {self.min:g}"


_KEYS = (*(f.name for f in fields(Rule) if f.name not in ("min", "max")), "range")


def parse_rules(declared: Iterable[Mapping[str, Any]]) -> list[Rule]:
    """Return the rules of a study. Raises ValueError, with the rule's place and a remedy, for one that is malformed."""
    return [parse_rule(rule, f"health[{index}]") for index, rule in enumerate(declared)]


def parse_rule(declared: Mapping[str, Any], where: str = "health rule") -> Rule:
    """Return one rule. Raises ValueError for an unknown key, a wrong type, an empty range or a window below 1."""
    if not isinstance(declared, Mapping):
        raise ValueError(f"{where} = {declared!r}: not a map; write `{{metric: ..., max: ..., severity: warn}}`")
    for key in declared:
        _require(key in _KEYS, where, str(key), declared[key], f"unknown key; use one of {', '.join(_KEYS)}")
    values = {key: value for key, value in declared.items() if value is not None and key != "range"}
    values.update(_parse_range(declared.get("range") or {}, where))
    for key in ("metric", "id", "stage", "reference", "diagnosis", "remedy"):
        _require(isinstance(values.get(key, ""), str), where, key, values.get(key), "must be text")
    _require(bool(values.get("metric")), where, "metric", values.get("metric"), "must name a metric")
    for key, least in (("window", 1), ("after", None)):
        whole = isinstance(values.get(key, 1), int) and not isinstance(values.get(key), bool)
        large = whole and (least is None or values.get(key, 1) >= least)
        _require(
            large, where, key, values.get(key), f"must be a whole number{'' if least is None else ' of at least 1'}"
        )
    _require(isinstance(values.get("abs", False), bool), where, "abs", values.get("abs"), "must be true or false")
    for key, words in (("severity", SEVERITIES), ("measure", MEASURES)):
        _require(values.get(key, words[0]) in words, where, key, values.get(key), f"must be one of {', '.join(words)}")
    rule = Rule(**values)
    alone = rule.reference is not None and rule.measure == "value"
    _require(not alone, where, "reference", rule.reference, "needs `measure: change` or `measure: ratio`")
    return rule


def _parse_range(declared: Any, where: str) -> dict[str, float]:
    known = isinstance(declared, Mapping) and set(declared) <= {"min", "max"}
    _require(known, where, "range", declared, "must be a map of min and max")
    bounds = {key: _finite(value, where, f"range.{key}") for key, value in declared.items() if value is not None}
    ordered = bounds.get("min", -math.inf) <= bounds.get("max", math.inf)
    _require(ordered, where, "range", declared, "min must not be above max")
    return bounds


def _finite(value: Any, where: str, key: str) -> float:
    try:
        number = float("nan") if isinstance(value, bool) else float(value)  # YAML reads 1e-6 as text
    except (TypeError, ValueError):
        number = float("nan")
    _require(math.isfinite(number), where, key, value, "must be a finite number")
    return number


def _require(holds: bool, where: str, key: str, value: Any, problem: str) -> None:
    if not holds:
        raise ValueError(f"{where}: {key} = {value!r}: {problem}")

"""Check health rules, which are ranges of healthy metrics: abort rules while a stage trains, all rules afterwards.

In YAML, under `health:` of a study (each also has id, stage, diagnosis and remedy):

- {metric: critic/d_acc, range: {min: 0.5, max: 0.9}, window: 5, severity: warn}
- {metric: actor/pg_loss, abs: true, range: {min: 0.001}, window: 5, severity: warn}        # of the absolute value
- {metric: "edit/*/ss_distance", measure: change, range: {max: 0.1}, severity: warn}        # away from its first value
- {metric: response_length/mean, measure: ratio, reference: teacher/length, range: {min: 0.5, max: 2}, severity: warn}
- {metric: train/loss, severity: abort}                                                     # no range: must be finite
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from math import isfinite, nan
from typing import Any, Literal

Point = tuple[int, float]


@dataclass(frozen=True)
class Rule:
    """A range that a metric must stay in.

    id: its name. stage: the stage that logs the metric ("": any).
    metric: its name; a shell pattern (`edit/*/ss_distance`) applies to each matching metric separately.
    min, max: inclusive bounds of the measured quantity; None: no bound. A value that is not finite is always outside.
    abs: bound the absolute value of the measured quantity.
    measure: the `value` itself, its `change` (value minus reference) or its `ratio` to the reference.
    reference: name of a metric, whose latest value is the reference; None: the metric's own first finite value.
    window: this many consecutive logged values must be outside, so that short excursions do not count; a single value
    that is not finite suffices. after: steps up to and including this one are ignored.
    """

    metric: str
    id: str = ""
    stage: str = ""
    min: float | None = None
    max: float | None = None
    abs: bool = False
    measure: Literal["value", "change", "ratio"] = "value"
    reference: str | None = None
    window: int = 1
    after: int | None = None
    severity: Literal["note", "warn", "abort"] = "warn"
    diagnosis: str = ""
    remedy: str = ""

    def covers(self, metric: str) -> bool:
        """Return whether the rule applies to the metric of this name."""
        return metric == self.metric or fnmatchcase(metric, self.metric)

    def is_outside(self, quantity: float) -> bool:
        """Return whether a measured quantity (see `measure`) breaks the rule."""
        if not math.isfinite(quantity):
            return True
        size = math.fabs(quantity) if self.abs else quantity
        return (self.min is not None and size < self.min) or (self.max is not None and size > self.max)

    def describe(self) -> str:
        """Return the healthy range as text, for example `|actor/pg_loss| >= 0.001`."""
        subject = self.metric if self.measure == "value" else f"{self.measure} of {self.metric}"
        if self.measure != "value" and self.reference:
            subject += f" to {self.reference}"
        subject = f"|{subject}|" if self.abs else subject
        if self.min is None and self.max is None:
            return f"{subject} finite"
        if self.min is not None and self.max is not None:
            return f"{subject} in [{self.min:g}, {self.max:g}]"
        return f"{subject} <= {self.max:g}" if self.min is None else f"{subject} >= {self.min:g}"


def parse_rules(declared: Iterable[Mapping[str, Any]]) -> list[Rule]:
    """Return the rules in `declared`, mappings with the fields of `ablation.config.study_schema.HealthRule`."""
    return [
        Rule(**{key: value for key, value in rule.items() if key != "range"}, **(rule.get("range") or {}))
        for rule in declared
    ]


@dataclass(frozen=True)
class Event:
    """Consecutive values of a metric that broke a rule, at least as many as the rule's window.

    value: the quantity furthest outside (the first that is not finite, if any). last_step: the last step outside.
    """

    rule: Rule
    metric: str
    first_step: int
    last_step: int
    value: float

    def reason(self) -> str:
        """Return the observed value, the healthy range, and the rule's diagnosis and remedy as one line."""
        single = self.first_step == self.last_step
        steps = f"step {self.first_step}" if single else f"steps {self.first_step}-{self.last_step}"
        words = "; ".join(filter(None, (self.rule.diagnosis, self.rule.remedy)))
        seen = f"{self.metric} = {self.value:.4g} at {steps} (healthy: {self.rule.describe()})"
        return f"{seen}: {words}" if words else seen


class Monitor:
    """Health check of the metrics of one run as they are logged."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self._rules = list(rules)
        self._watches: dict[str, list[_Watch]] = {}
        self._references = {rule.reference for rule in self._rules if rule.reference}
        self._latest: dict[str, float] = {}

    def observe(self, step: int, values: Mapping[str, float]) -> list[Event]:
        """Check a step's values; return the events that begin or continue at this step. Steps must not decrease."""
        self._latest.update((name, value) for name, value in values.items() if name in self._references)
        events = []
        for name, value in values.items():
            for watch in self._watches_of(name):
                event = watch.update(step, value, self._latest.get(watch.rule.reference or ""))
                if event is not None:
                    events.append(event)
        return events

    def _watches_of(self, metric: str) -> list["_Watch"]:
        if metric not in self._watches:
            self._watches[metric] = [_Watch(rule, metric) for rule in self._rules if rule.covers(metric)]
        return self._watches[metric]


def evaluate(rules: Iterable[Rule], series: Mapping[str, Sequence[Point]]) -> list[Event]:
    """Return all events of a run, sorted by first step; an uninterrupted stretch outside a range is one event.

    series: {metric: (step, value) pairs in the order of steps}. Rules of metrics that were not logged give no event.
    """
    events: list[Event] = []
    for rule in rules:
        reference = series.get(rule.reference or "", ())
        for metric in series:
            if rule.covers(metric):
                events.extend(_events_of(rule, metric, series[metric], reference))
    return sorted(events, key=lambda event: (event.first_step, event.metric))


def _events_of(rule: Rule, metric: str, points: Sequence[Point], reference: Sequence[Point]) -> list[Event]:
    watch, position, latest = _Watch(rule, metric), 0, None
    events: list[Event] = []
    for step, value in points:
        while position < len(reference) and reference[position][0] <= step:
            latest = reference[position][1]
            position += 1
        event = watch.update(step, value, latest)
        if event is None:
            continue
        if events and events[-1].first_step == event.first_step:
            events[-1] = event
        else:
            events.append(event)
    return events


class _Watch:
    """The current stretch of one metric outside the range of one rule."""

    def __init__(self, rule: Rule, metric: str) -> None:
        self.rule, self.metric = rule, metric
        self._first_value: float | None = None
        self._first_step = 0
        self._length = 0
        self._worst = nan

    def update(self, step: int, value: float, reference: float | None) -> Event | None:
        """Check a value; return the stretch outside the range if it is at least as long as the window, else None."""
        rule = self.rule
        if rule.after is not None and step <= rule.after:
            return None
        quantity = value if rule.measure == "value" else self._measure(value, reference)
        if quantity is None or not rule.is_outside(quantity):
            self._length = 0
            return None
        if self._length == 0:
            self._first_step, self._worst = step, quantity
        elif isfinite(self._worst) and (not isfinite(quantity) or self._excess(quantity) > self._excess(self._worst)):
            self._worst = quantity
        self._length += 1
        if self._length < rule.window and isfinite(self._worst):
            return None
        return Event(rule, self.metric, self._first_step, step, self._worst)

    def _measure(self, value: float, reference: float | None) -> float | None:
        """Return the change from the reference, or the ratio to the reference; None without a reference.

        A value that is not finite is returned unchanged, and the ratio to a reference of zero is NaN.
        """
        if self._first_value is None and isfinite(value):
            self._first_value = value
        base = reference if self.rule.reference else self._first_value
        if not isfinite(value):
            return value
        if base is None:
            return None
        if self.rule.measure == "change":
            return value - base
        return value / base if base else nan

    def _excess(self, quantity: float) -> float:
        size = abs(quantity) if self.rule.abs else quantity
        low, high = self.rule.min, self.rule.max
        return max(low - size if low is not None else 0.0, size - high if high is not None else 0.0)

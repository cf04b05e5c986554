"""Rules, checked by hand on short series."""

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ablation.contract.health import Monitor, Rule, evaluate, parse_rules

NAN, INF = float("nan"), float("inf")


def spans(rule, values, **others):
    """Steps (first, last) of each event of a series logged at steps 0, 1, 2, ..."""
    series = {name: list(enumerate(column)) for name, column in {rule.metric: values, **others}.items()}
    return [(event.first_step, event.last_step) for event in evaluate([rule], series)]


def test_bounds_are_inclusive():
    assert spans(Rule("m", min=0.5, max=0.9), [0.5, 0.9]) == []


@pytest.mark.parametrize("value", [NAN, INF, -INF])
def test_a_value_that_is_not_finite_trips_at_once(value):
    assert spans(Rule("loss", window=5), [1, value, 1]) == [(1, 1)]
    assert spans(Rule("loss", min=0, max=1, window=5), [1, value, 1]) == [(1, 1)]


def test_ratio_to_another_metric_takes_its_last_step_before():
    rule = Rule("length", measure="ratio", reference="teacher", min=0.5, max=2.0)
    series = {"length": [(0, 500.0), (2, 90.0), (4, 201.0), (6, 201.0)], "teacher": [(1, 100.0), (5, 150.0)]}
    assert [(e.first_step, e.last_step, e.value) for e in evaluate([rule], series)] == [(4, 4, 2.01)]


def test_a_pattern_stands_for_each_metric_on_its_own():
    rule = Rule("edit/*/ss", max=1, window=2)
    series = {"edit/a/ss": [(0, 2.0), (1, 0.0)], "edit/b/ss": [(0, 2.0), (1, 2.0)], "train/ss": [(0, 9.0), (1, 9.0)]}
    assert [event.metric for event in evaluate([rule], series)] == ["edit/b/ss"]


def test_steps_up_to_after_are_not_looked_at():
    assert spans(Rule("m", max=1, after=2), [5, 5, 5, 5, 0]) == [(3, 3)]


@given(
    st.lists(st.sampled_from([0.0, 2.0, -2.0, NAN, INF]), max_size=30),
    st.integers(1, 4),
    st.sampled_from(["value", "change", "ratio"]),
    st.booleans(),
)
def test_running_and_finished_agree(values, window, measure, use_abs):
    rule = Rule("m", min=-1, max=1, window=window, measure=measure, abs=use_abs)
    monitor, last = Monitor([rule]), {}
    for step, value in enumerate(values):
        for event in monitor.observe(step, {"m": value}):
            last[event.first_step] = event.last_step
    assert [*last.items()] == spans(rule, values)


@given(st.lists(st.floats(allow_nan=True), max_size=30), st.integers(1, 4))
def test_against_the_definition(values, window):
    """Independent: cut the series into stretches of bad values, and keep those long or broken enough."""
    bad = [not math.isfinite(value) or abs(value) > 1 for value in values]
    expected, start = [], None
    for step, flag in enumerate([*bad, False]):
        if flag and start is None:
            start = step
        if not flag and start is not None:
            stretch = values[start:step]
            if len(stretch) >= window or not all(map(math.isfinite, stretch)):
                expected.append((start, step - 1))
            start = None
    assert spans(Rule("m", min=-1, max=1, window=window), values) == expected


def test_the_reason_names_value_steps_range_diagnosis_and_remedy():
    (rule,) = parse_rules([{"metric": "m", "range": {"max": 1}, "diagnosis": "too big", "remedy": "lower lr"}])
    (event,) = evaluate([rule], {"m": [(4, 2.5), (5, 2.0)]})
    assert event.reason() == "m = 2.5 at steps 4-5 (healthy: m <= 1): too big; lower lr"

"""Logged numbers as a table, against a dictionary."""

import math
import random

import pytest

from ablation.readers.run import METRIC_ROWS, metric_table


@pytest.mark.parametrize("count", [0, 1, 2, 50, 2000])
def test_against_a_dictionary(count):
    draw = random.Random(count)
    names = ["loss", "a/ü", "", "Loss", "a b", "zz"]
    rows = [(draw.randint(-5, 40), draw.choice(names), draw.random()) for _ in range(count)]
    table = metric_table(iter(rows))
    values = {(step, name): value for step, name, value in rows}
    assert table.schema == METRIC_ROWS
    assert [tuple(row.values()) for row in table.to_pylist()] == [(*key, values[key]) for key in sorted(values)]


def test_extremes():
    rows = [(2**63 - 1, "a", math.nan), (-(2**63), "a", -math.inf), (0, "a", True), (0, "a", 7)]
    table = metric_table(rows)
    assert table["step"].to_pylist() == [-(2**63), 0, 2**63 - 1]
    assert table["value"].to_pylist()[:2] == [-math.inf, 7.0]
    assert math.isnan(table["value"].to_pylist()[2])
    assert table["value"].null_count == 0

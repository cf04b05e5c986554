"""The variant tree as the page draws it: lanes, and the axis of effects."""

import pytest

from ablation.show.page.comparisons import forest_axis, graph_rows


def test_a_branch_with_children_goes_down_in_its_own_lane():
    rows = graph_rows({"r": None, "a": "r", "a1": "a", "b": "r", "b1": "b", "b2": "b1"})
    assert [(row.variant, row.lines) for row in rows] == [
        ("r", ("bottom", "none")),
        ("a", ("full", "bottom")),
        ("a1", ("full", "top")),
        ("b", ("full", "none")),
        ("b1", ("full", "none")),
        ("b2", ("top", "none")),
    ]


def test_a_chain_of_many_variants_and_an_unknown_parent():
    chain = {f"v{i}": f"v{i - 1}" if i else "elsewhere" for i in range(3000)}
    rows = graph_rows(chain)
    assert len(rows) == 3000
    assert {row.lane for row in rows} == {0}


def test_the_axis_holds_all_bounds_but_one_wide_interval_hides_no_other():
    axis = forest_axis([0.01, 0.02, 0.04], margin=0.01)
    assert axis.limit == pytest.approx(0.042)
    assert axis.x(0) == axis.width / 2
    assert axis.x(axis.limit) == axis.width - axis.pad
    assert axis.ticks == pytest.approx([-0.02, 0, 0.02])
    wide = forest_axis([0.01, 0.01, 0.02, 0.02, 9.0], margin=None)
    assert wide.limit == pytest.approx(0.063)
    assert wide.x(9.0) == wide.width - wide.pad
    assert forest_axis([], margin=0.02).limit == pytest.approx(0.04)
    assert forest_axis([float("nan")], margin=None).limit > 0
    assert forest_axis([0.0], margin=None).limit > 0

"""The variant tree as the page draws it: lanes, the picture in small, the axis of effects, counts of verdicts."""

import pytest

from ablation.show.page.comparisons import ShownComparison, draw_forest, forest_axis, graph_rows


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


def test_the_forest_has_the_best_effect_on_top_and_shows_the_corrected_interval():
    def judged(child, verdict, effect, joint=None):
        record = {
            "verdict": verdict,
            "effect": effect,
            "low": effect and effect - 0.01,
            "high": effect and effect + 0.01,
        }
        if joint:
            record |= {"joint_low": effect - joint, "joint_high": effect + joint}
        return ShownComparison(child, "r", verdict, record, ())

    comparisons = [
        judged("a", "worse", -0.1, 0.05),
        judged("b", "not run", None),
        judged("c", "equivalent", 0.05, 0.05),
    ]
    axis = forest_axis([0.2], margin=None)
    forest = draw_forest(comparisons, axis)
    assert (forest.count, forest.height) == (2, 20)
    x = axis.x
    assert forest.paths == [
        ("equivalent", f"M{x(0.04)} 5.0H{x(0.06)}", f"M{x(0.05)} 5.0h0"),  # is judged without correction
        ("worse", f"M{x(-0.15)} 15.0H{x(-0.05)}", f"M{x(-0.1)} 15.0h0"),
    ]


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

"""A few short sentences for each study: words, order, counts and numbers."""

import pytest

from ablation.config.study_schema import Analysis
from ablation.judge.comparisons import JointSteps
from ablation.show.answer import findings, sentences


def comparison(child, verdict, effect=0.01, half=0.005, **words):
    known = {"parent": "v1", "child": child, "verdict": verdict, "effect": effect, "seeds": 5} | words
    return known | {"low": effect - half, "high": effect + half}


PLAN = Analysis(value="ss", protocol="edited", subsets=["all"], direction="max", margin=0.02)


def said(*comparisons, joint=()):
    return sentences(findings(comparisons, PLAN, joint))


def test_what_moved_is_named_with_its_interval_the_largest_first_and_the_rest_is_counted():
    better = [comparison(name, "better", effect) for name, effect in (("a", 0.01), ("b", 0.03), ("c", 0.02))]
    assert said(*better, comparison("d", "worse", -0.04)) == (
        "b is better than v1 by 0.0300 [0.0250, 0.0350]; 2 more are better. d is worse than v1 by 0.0400 [0.0350, "
        "0.0450]."
    )


def test_steps_that_are_shown_only_together_come_after_single_changes_and_before_counts():
    joint = [JointSteps("base", "z", 86, -0.0500, -0.0800, -0.0200)]
    others = [comparison(name, "undecided") for name in ("c", "d")]
    assert said(comparison("a", "better"), *others, joint=joint) == (
        "a is better than v1 by 0.0100 [0.0050, 0.0150]. z is worse than base: -0.050 [-0.080, -0.020], but none of "
        "the 86 steps on the path is significant. 2 changes are undecided."
    )


def test_the_interval_beside_a_corrected_verdict_is_the_corrected_one():
    joint = {"joint_low": 0.002, "joint_high": 0.018}
    assert said(comparison("a", "better", **joint)) == "a is better than v1 by 0.0100 [0.0020, 0.0180]."


def test_an_equivalent_variant_that_is_worse_by_less_than_the_margin_is_no_secret():
    """None is; one of two; a single one; one in either direction."""
    equal, worse = comparison("a", "equivalent", 0.001, p_adjusted=0.9), {"p_adjusted": 0.01}
    lost, won = comparison("b", "equivalent", -0.015, **worse), comparison("c", "equivalent", 0.012, **worse)
    one = "is equivalent (within 0.02)"
    assert said(equal) == f"1 change {one}."
    assert said(equal, lost) == "2 changes are equivalent (within 0.02), one of them worse by less than the margin."
    assert said(lost) == f"1 change {one}, but worse by less than the margin."
    assert said(lost, won, lost) == (
        "3 changes are equivalent (within 0.02), 2 of them worse by less than the margin, one of them better by less "
        "than the margin."
    )


def test_what_is_open_says_what_the_cheapest_needs():
    needs = {"c": {"seeds_needed": 40}, "d": {"seeds_needed": 8}, "e": {}}
    open_ = [comparison(name, "undecided", **need) for name, need in needs.items()]
    assert said(comparison("b", "equivalent", 0.001), *open_) == (
        "1 change is equivalent (within 0.02). 3 changes are undecided; about 3 more seeds would settle d if the "
        "true effect equals the estimate."
    )
    assert said(comparison("e", "undecided", seeds_needed=5)) == "1 change is undecided."  # it has as many


def test_a_guardrail_that_a_change_made_worse_is_told_with_its_verdict():
    lost, held = {"guardrails": "but worse in length"}, {"guardrails": "guardrails hold"}
    assert said(comparison("a", "better", 0.02, **lost), comparison("b", "better", 0.01, **held)) == (
        "a is better than v1 by 0.0200 [0.0150, 0.0250], but worse in length; 1 more is better."
    )
    both = {"guardrails": "and worse in length"}
    assert said(comparison("a", "worse", -0.02, **both), comparison("b", "worse", -0.01, **both)) == (
        "a is worse than v1 by 0.0200 [0.0150, 0.0250], and worse in length; 1 more is worse, and worse in a guardrail."
    )
    equal = [comparison("a", "equivalent", **lost), comparison("b", "equivalent", **held)]
    assert said(*equal, comparison("c", "undecided", **lost)) == (
        "2 changes are equivalent (within 0.02), 1 of them worse in a guardrail. 1 change is undecided, but worse in a "
        "guardrail."
    )


@pytest.mark.parametrize(
    ("comparisons", "text"),
    [
        ([], "Nothing has been judged yet."),
        ([comparison("v2", "invalid")], "1 change cannot be compared."),
        ([comparison("a", "not run"), comparison("b", "not run")], "2 changes have not run yet."),
        ([comparison("a", "confounded"), comparison("b", "confounded")], "2 changes mix several factors."),
    ],
)
def test_studies_without_a_verdict_say_so(comparisons, text):
    assert said(*comparisons) == text

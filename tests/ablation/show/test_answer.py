"""A few short sentences for each study: words, order, counts and numbers."""

import pandas as pd
import pytest

from ablation.judge.verdicts import COMPARISON_COLUMNS
from ablation.show.answer import answer


def comparison(child, verdict, effect=0.01, half=0.005, **words):
    known = {"parent": "v1", "child": child, "verdict": verdict, "effect": effect, "seeds": 5} | words
    return known | {"low": effect - half, "high": effect + half}


def said(*comparisons):
    return answer(
        pd.DataFrame(comparisons, columns=[*COMPARISON_COLUMNS, "guardrails"]).astype({"seeds_needed": "Int64"}),
        margin=0.02,
    )


def test_what_moved_is_named_with_its_interval_the_largest_first_and_the_rest_is_counted():
    comparisons = [
        comparison("a", "better", 0.01),
        comparison("b", "better", 0.03),
        comparison("c", "better", 0.02),
        comparison("d", "worse", -0.04),
    ]
    assert said(*comparisons) == (
        "b is better than v1 by 0.0300 [0.0250, 0.0350]. c is better than v1 by 0.0200 [0.0150, 0.0250]. 1 more is "
        "better. d is worse than v1 by 0.0400 [0.0350, 0.0450]."
    )


def test_what_is_open_says_what_the_cheapest_needs():
    open_ = [
        comparison("c", "undecided", seeds_needed=40),
        comparison("d", "undecided", seeds_needed=8),
        comparison("e", "undecided"),
    ]
    assert said(comparison("b", "equivalent", 0.001), *open_) == (
        "1 change makes no difference. 3 changes are undecided. Look at d next: 3 more seeds would decide an effect as "
        "large as the one seen."
    )
    assert said(comparison("e", "undecided", seeds_needed=5)) == "1 change is undecided."  # it has as many


def test_a_guardrail_that_a_change_made_worse_is_told_with_its_word():
    lost, held = {"guardrails": "but worse in length"}, {"guardrails": "guardrails hold"}
    assert said(comparison("a", "better", 0.02, **lost), comparison("b", "better", 0.01, **held)) == (
        "a is better than v1 by 0.0200 [0.0150, 0.0250], but worse in length. b is better than v1 by 0.0100 [0.0050, "
        "0.0150]."
    )
    assert said(
        comparison("a", "equivalent", **lost),
        comparison("b", "equivalent", **held),
        comparison("c", "undecided", **lost),
    ) == ("2 changes make no difference, 1 of them worse in a guardrail. 1 change is undecided, worse in a guardrail.")


@pytest.mark.parametrize(
    ("comparisons", "text"),
    [
        ([], "Nothing has been judged yet."),
        ([comparison("v2", "invalid")], "1 change cannot be compared."),
        ([comparison("a", "not run"), comparison("b", "not run")], "2 changes still have to run."),
        ([comparison("a", "confounded"), comparison("b", "confounded")], "2 changes mix several factors."),
    ],
)
def test_studies_without_a_verdict_say_so(comparisons, text):
    assert said(*comparisons) == text

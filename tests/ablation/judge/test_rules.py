"""A change of what verdicts and intervals say of the same numbers needs a line in `ablation.config.judging_rules`."""

from dataclasses import replace

import numpy as np
import pytest

from ablation.config.judging_rules import RULES
from ablation.judge.comparisons import judge_comparisons
from tests.ablation.judge.studies import measurements, normal_study

# p, low, high of one comparison each, under the last of so many rules.
KNOWN = 27


def logged(seeds):
    gains = 0.02 * np.random.default_rng(3).standard_normal((12, seeds)) * np.linspace(0.5, 4, 12)[:, None]
    values = {f"v{n}": {"loss": row[:, None]} for n, row in enumerate(gains)}
    return measurements(values, {name: None if name == "v0" else "v0" for name in values})


STUDIES = {
    "items": (lambda: normal_study(6, 5, 200), (0.967803, -0.050669, 0.070669)),
    "clusters": (lambda: normal_study(6, 3, 200, size=5), (0.728927, -0.099934, 0.049934)),
    "target": (lambda: normal_study(6, 5, 200, rate=0.5, direction={"target": 0.5}), (0.777922, -0.065748, 0.024982)),
    "logged": (lambda: logged(3), (0.973403, -0.093132, 0.046397)),
    "more seeds": (lambda: logged(6), (0.987501, -0.029486, 0.066806)),
}


@pytest.mark.parametrize("name", STUDIES)
def test_numbers_are_those_of_the_last_rule(name):
    made, known = STUDIES[name]
    comparison = judge_comparisons(made())[3]
    assert len(RULES) == KNOWN
    assert (comparison.p_adjusted, comparison.low, comparison.high) == pytest.approx(known, rel=1e-4)


ROUNDED = 1 + 1e-7 * np.array([[0.0], [9.0], [-1.0], [4.0], [2.0]])
VARIED = np.array([[0.31], [0.28], [0.33], [0.3], [0.29]])


@pytest.mark.parametrize("seeds", [2, 5])
@pytest.mark.parametrize(
    ("parent", "child", "said"),
    [
        (0.3 * ROUNDED, 0.7 * ROUNDED[::-1], "a and b have the same value in every seed"),
        (0.3 * ROUNDED, 0.3 * ROUNDED, "a and b have the same value in every seed"),
        (VARIED, 0.7 * ROUNDED, "b has the same value in every seed"),
        (VARIED, VARIED + 0.4, "the difference is the same in every seed"),
        (0 * VARIED, 0 * VARIED + 1, "the difference is the same in every seed"),
        (0 * VARIED, VARIED, ""),  # no seed leaves the end of the scale
        (VARIED * ROUNDED, VARIED + 0.4, "the difference is the same in every seed"),
        (VARIED * ROUNDED, VARIED, None),
        (VARIED * (1 + 30 * (ROUNDED - 1)), VARIED + 0.4, ""),
        (VARIED, VARIED, None),
    ],
)
def test_runs_of_one_value_that_never_varies_decide_nothing(parent, child, said, seeds):
    """Programs that ignore their seed, up to what rounding leaves: without this, p would be next to 0."""
    values = {"a": {"loss": parent[:seeds]}, "b": {"loss": child[:seeds]}}
    [comparison] = judge_comparisons(measurements(values, {"a": None, "b": "a"}))
    if said:
        assert (comparison.verdict, comparison.effect) == ("undecided", pytest.approx((child - parent)[:seeds].mean()))
        assert np.isnan(
            [comparison.p, comparison.p_adjusted, comparison.low, comparison.joint_low, comparison.mde]
        ).all()
        assert comparison.why.startswith(
            f"{said}, so seed-to-seed noise is unknown; check that the runs use their seeds"
        )
    elif said is None:
        assert comparison.verdict == ("equivalent" if seeds == 5 else "undecided")
    else:
        assert np.isfinite(comparison.p)
        assert "seeds?" not in comparison.why


def test_what_would_decide_a_final_metric_is_seeds():
    values = {"a": {"loss": VARIED}, "b": {"loss": VARIED[::-1] + 1e-5}}
    [comparison] = judge_comparisons(measurements(values, {"a": None, "b": "a"}, protocol="logged", margin=0.001))
    assert "; detecting an effect this size would take more than 1,000 seeds" in comparison.why


def test_a_variant_that_does_not_use_its_seeds_leaves_the_noise_of_the_others_alone():
    others = {name: {"loss": VARIED * scale} for name, scale in [("a", 1), ("b", 1.1), ("c", 0.9), ("d", 1.2)]}
    parents = {"a": None, "b": "a", "c": "a", "d": "a"}
    alone = judge_comparisons(measurements(others, parents, error="fdr"))
    beside = judge_comparisons(measurements(others | {"e": {"loss": 0.7 * ROUNDED}}, parents | {"e": "a"}, error="fdr"))
    assert [(comparison.p, comparison.variance) for comparison in alone] == [
        (comparison.p, comparison.variance) for comparison in beside[:3]
    ]
    assert alone[0].variance == "moderated"


def test_groups_whose_seeds_are_all_the_same_decide_nothing():
    """Six copies of one evaluation each; a perfect score is none."""
    rng = np.random.default_rng(0)
    one, other = ((rng.uniform(size=200) < rate).astype(float)[None].repeat(6, axis=0) for rate in (0.4, 0.7))
    values = {"a": one, "b": other, "c": one, "d": np.ones_like(one), "e": rng.uniform(size=(6, 200)) < 0.9}
    parents = {name: None if name == "a" else "a" for name in values}
    study = measurements({name: {"all": of} for name, of in values.items()}, parents)
    comparisons = judge_comparisons(study)
    assert [comparison.verdict for comparison in comparisons] == ["undecided", "equivalent", "better", "better"]
    assert "check that the runs use their seeds" in comparisons[0].reason
    imported = judge_comparisons(replace(study, planned=False))[3]  # nobody says that there were six runs
    assert "all 6 seeds of a have the same value on every item, so they count as one run" in imported.reason
    assert imported.p > comparisons[3].p

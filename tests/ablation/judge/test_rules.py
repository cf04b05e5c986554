"""A change of what words and intervals say of the same numbers needs a line in `ablation.config.judging_rules`."""

import numpy as np
import pytest

from ablation.config.judging_rules import RULES
from ablation.judge.edges import judge_edges
from tests.ablation.judge.studies import measurements, normal_study

# p, low, high of one edge each, under the last of so many rules.
KNOWN = 11


def logged(seeds):
    gains = 0.02 * np.random.default_rng(3).standard_normal((12, seeds)) * np.linspace(0.5, 4, 12)[:, None]
    values = {f"v{n}": {"loss": row[:, None]} for n, row in enumerate(gains)}
    return measurements(values, {name: None if name == "v0" else "v0" for name in values})


STUDIES = {
    "items": (lambda: normal_study(6, 5, 200), (0.966903, -0.050669, 0.070669)),
    "clusters": (lambda: normal_study(6, 3, 200, size=5), (0.727527, -0.099934, 0.049934)),
    "target": (lambda: normal_study(6, 5, 200, rate=0.5, direction={"target": 0.5}), (0.77632, -0.065748, 0.024982)),
    "logged": (lambda: logged(3), (0.9734, -0.093132, 0.046397)),
    "more seeds": (lambda: logged(6), (0.983502, -0.029486, 0.066806)),
}


@pytest.mark.parametrize("name", STUDIES)
def test_numbers_are_those_of_the_last_rule(name):
    made, known = STUDIES[name]
    edge = judge_edges(made())[3]
    assert len(RULES) == KNOWN
    assert (edge.p_adjusted, edge.low, edge.high) == pytest.approx(known, rel=1e-4)


@pytest.mark.parametrize("seeds", [2, 5])
def test_runs_of_one_value_whose_difference_never_varies_decide_nothing(seeds):
    """Programs that ignore their seed: without this, p would be 0."""
    parent = np.full((seeds, 1), 0.3)
    values = {"a": {"loss": parent}, "b": {"loss": parent + 0.4}, "c": {"loss": parent}}
    better, same = judge_edges(measurements(values, {"a": None, "b": "a", "c": "a"}))
    assert (better.verdict, better.effect) == ("undecided", pytest.approx(0.4))
    assert np.isnan([better.p, better.p_adjusted, better.low, better.joint_low, better.mde]).all()
    assert "exactly the same difference in every seed" in better.reason
    assert same.verdict == ("equivalent" if seeds == 5 else "undecided")

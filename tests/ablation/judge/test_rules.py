"""A change of what words and intervals say of the same numbers needs a line in `ablation.config.judging_rules`."""

import numpy as np
import pytest

from ablation.config.judging_rules import RULES
from ablation.judge.edges import judge_edges
from tests.ablation.judge.studies import measurements, normal_study

# p, low, high of one edge each, under the last of so many rules.
KNOWN = 10


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

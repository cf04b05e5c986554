"""pass@k of few samples: as rarely false as it is promised where means differ and pass@k does not."""

import numpy as np

import ablation
from tests.simulations.sizes import assert_shares, sized

SAMPLES, K = 4, 2


def drawn(rng, rates, seeds=5):
    """Samples [seeds, items, samples], right at the items' rates."""
    return rng.random((seeds, len(rates), SAMPLES)) < rates[None, :, None]


def verdicts(replicates, items=300, **outcome):
    """Verdicts of a model that is sure of 3 items of 4 against one that has even chances: pass@2 is 0.75 of both."""
    rng, found = np.random.default_rng(11), []
    for _ in range(replicates):
        sure, even = (drawn(rng, rates) for rates in (1.0 * (rng.random(items) < 0.75), np.full(items, 0.5)))
        found.append(ablation.judge(sure, even, margin=0.01, direction="max", changed_items=0, **outcome).verdict)
    return found


@sized(fast=6, slow=25)
def test_the_same_pass_at_k_is_no_difference_where_the_means_differ(replicates):
    assert verdicts(2) == ["better"] * 2
    wrong = np.mean([verdict in ("better", "worse") for verdict in verdicts(replicates, pass_at=K)])
    assert_shares({"pass@2": wrong}, replicates, high=0.05)

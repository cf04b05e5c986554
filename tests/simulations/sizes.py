"""How many replicates a simulation has: few in `make test`, more in `make test-rest`, many in `make simulations`.

Few replicates of one world find gross faults only; the mean over all worlds of a test finds what shifts them all, as
faults of the code do: of 20 worlds with 50 replicates each, in 97% of cases a rate of 9% where 5% are promised.
"""

from collections.abc import Mapping
from math import ceil, floor, sqrt

import numpy as np
import pytest
from scipy.stats import binom, norm


def sized(*, fast: int = 0, slow: int = 0, long: int = 0) -> pytest.MarkDecorator:
    """Give a test its `replicates`: one form for each of the three that is named."""
    marks = {"fast": [], "slow": [pytest.mark.slow, pytest.mark.rest], "long": [pytest.mark.slow, pytest.mark.long]}
    forms = {"fast": fast, "slow": slow, "long": long}
    wanted = [pytest.param(count, marks=marks[name], id=name) for name, count in forms.items() if count]
    return pytest.mark.parametrize("replicates", wanted)


def error(rate: float, replicates: int) -> float:
    """Three standard errors of a share."""
    return 3 * sqrt(rate * (1 - rate) / replicates)


def assert_shares(shares: Mapping[str, float], replicates: int, low: float = 0.0, high: float = 1.0) -> None:
    """Hold the share of each world, and their mean, between the bounds, but for what three standard errors allow."""
    wrong = {name: share for name, share in shares.items() if not _within(share, replicates, low, high)}
    assert not wrong, f"not within {low} and {high}"
    mean = float(np.mean([*shares.values()]))
    assert _within(mean, replicates * len(shares), low, high), f"on average {mean}, not within {low} and {high}"


def _within(share: float, replicates: int, low: float, high: float) -> bool:
    """As a binomial count: of few replicates, and of rare events, the normal bounds would be too narrow."""
    count = round(share * replicates, 6)
    below, above = binom.cdf(ceil(count), replicates, low), binom.sf(floor(count) - 1, replicates, high)
    return bool(min(below, above) >= norm.sf(3))

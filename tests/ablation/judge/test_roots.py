"""Roots against scipy's: the same floats, and the same errors."""

import numpy as np
import pytest
from scipy import optimize

from ablation.judge.roots import bisect, brent

SHAPES = [
    lambda x, a, b: a * x + b * x**3 + 0.3,
    lambda x, a, b: float(np.tanh(a * x) + b),
    lambda x, a, b: 0.5 - float(np.exp(x) / (np.exp(x) + abs(a))),
    lambda x, a, b: a * x**5,
    lambda x, a, b: (x > b) - 0.5 + 1e-3 * a,
]


def outcome(find, *arguments, **named):
    try:
        return find(*arguments, **named)
    except (RuntimeError, ValueError) as error:
        return type(error)


@pytest.mark.parametrize(("own", "theirs"), [(brent, optimize.brentq), (bisect, optimize.bisect)])
def test_the_same_float_as_scipy(own, theirs):
    rng, found = np.random.default_rng(0), 0
    for number in range(2000):
        a, b, shift, low, high = rng.normal(size=5) * [1, 1, 3, 10, 10]
        shape, xtol = SHAPES[number % len(SHAPES)], 10.0 ** -rng.integers(2, 16)
        function = lambda x, shape=shape, a=a, b=b, shift=shift: shape(x - shift, a, b)  # noqa: E731
        expected = outcome(theirs, function, low, high, xtol=xtol, rtol=1e-15)
        assert outcome(own, function, low, high, xtol=xtol, rtol=1e-15) == expected
        found += isinstance(expected, float)
    assert found > 500


@pytest.mark.parametrize("find", [brent, bisect])
@pytest.mark.parametrize(("function", "error"), [(lambda x: float("nan"), "NaN"), (lambda x: 1.0, "one sign")])
def test_no_root(find, function, error):
    with pytest.raises(ValueError, match=error):
        find(function, 0.0, 1.0, xtol=1e-9)

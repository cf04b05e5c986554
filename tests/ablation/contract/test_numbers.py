"""Numbers as people read them: the digits, the sign, and that no end of an interval is drawn in."""

import math
from decimal import Decimal

import numpy as np
import pytest

from ablation.contract import numbers
from ablation.contract.numbers import alone, bound, decimals_for, estimate, fixed, interval, percent, together

NAN, INF = math.nan, math.inf


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (estimate(0.0211, 0.00504, 0.03711), ("+0.021", "[+0.005, +0.038]")),  # noise 0.016
        (estimate(1234.5, 1200.2, 1269.9), ("+1234", "[+1200, +1270]")),
        (estimate(0.1234567, NAN, NAN), ("+0.1235", "-")),
        (estimate(None, None, None), ("-", "-")),
        (estimate(0.2, -INF, 0.4), ("+0.2000", "[-inf, +0.4000]")),
        (estimate(4e-6, -2e-3, 2e-3), ("0.0000", "[-0.0020, +0.0020]")),
        (estimate(7003.21, 7003.2, 7003.22), ("+7003.21", "[+7003.20, +7003.22]")),  # at most six digits
        (interval(0.00004, 0.03, 3), "[+0.00004, +0.030]"),  # excludes zero, and shows it
        (interval(-0.03, -1e-9, 3), "[-0.030, -1e-09]"),
        (interval(-1e-17, 0.03, 3), "[0.000, +0.030]"),  # an error of floating point is zero
        (interval(0.1 + 0.2, 0.1 * 3, 1), "[+0.3, +0.3]"),
        (fixed(-0.00001, 4, "+"), "0.0000"),
        (fixed(-0.0, 0, "+"), "0"),
        (fixed(np.float64(0.5), 2), "0.50"),
        (fixed(INF, 2), "inf"),
        (fixed(True, 2), "-"),
        (decimals_for([0.4], [0.012, 0.03, 0.5]), 3),
        (decimals_for([0.4], [NAN, None, 0.0]), 4),
        (decimals_for([]), 3),
        (together([0.132, -0.0049, NAN], "+"), ["+0.1320", "-0.0049", "-"]),
        (together([0, 1, 12.0]), ["0", "1", "12"]),
        (alone(12345.6), "12346"),
        (alone(0.0123456, "+"), "+0.01235"),
        (numbers.rough(0.01349), "0.013"),
        (numbers.rough(7003), "7003"),
        (numbers.stated(0.0170), "0.017"),
        (numbers.p_value(0.0123), "0.012"),
        (numbers.p_equals(0.0), "p < 1e-300"),
        (numbers.p_equals(NAN), "p = -"),
        (percent(0.004), "< 1%"),
        (percent(0.9999), "> 99%"),
        (percent(0.99996, 1), "> 99.9%"),
        (percent(1.0), "100%"),
        (percent(-0.1, 1, "+"), "-10.0%"),
        (numbers.shares(0.1201, NAN), "[12%, -]"),
        (numbers.shares(-0.311, 0.3001), "[-32%, 31%]"),
        (numbers.confidence(0.001), "99.9%"),
        (numbers.confidence(0.05, 2), "90%"),
        (numbers.plural(0, "run"), "no runs"),
        (numbers.plural(1, "run"), "1 run"),
        (numbers.counted(1292, "item"), "1,292 items"),
        (numbers.duration(0.31), "0.3 s"),
        (numbers.device_time(1.5, 2.0), "1.5 h of device time (3.00)"),
    ],
)
def test_numbers_as_people_read_them(shown, expected):
    assert shown == expected


def test_no_interval_is_drawn_in_and_no_end_becomes_zero():
    rng = np.random.default_rng(0)
    ends = rng.choice([-1, 1], 4000) * 10 ** rng.uniform(-9, 3, 4000)
    for value, decimals in zip(ends.tolist(), rng.integers(0, 6, 4000).tolist(), strict=True):
        low, high = (Decimal(bound(value, decimals, up=up)) for up in (False, True))
        assert low <= Decimal(repr(value)) <= high
        assert (low != 0) == (high != 0) == (abs(value) > 1e-9 * 10.0**-decimals)
        assert high - low <= Decimal(10) ** -decimals

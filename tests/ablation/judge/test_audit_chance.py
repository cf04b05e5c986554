"""Recomputed tests, the best of many rows, rows too alike, duplicates and last digits."""

import numpy as np
import pytest
from scipy import stats

from ablation.audit import audit
from ablation.audit.chance import chance_findings
from ablation.audit.patterns import digit_findings, duplicate_findings
from ablation.audit.recomputed import find_tests
from ablation.audit.table import Table
from tests.ablation.judge.published import claim, of_kind, published


@pytest.mark.parametrize(
    ("text", "p"),
    [
        ("t(28) = 2.20, p = .036", 2 * stats.t.sf(2.20, 28)),
        ("F(2, 45) = 3.21, p = .05", stats.f.sf(3.21, 2, 45)),
        ("chi2(3, N = 90) = 7.81, p = .05", stats.chi2.sf(7.81, 3)),
        ("χ²(3) = 7.81, p < .06", stats.chi2.sf(7.81, 3)),
        ("z = -2.33, p = .02", 2 * stats.norm.sf(2.33)),
        ("r(38) = .32, p = .044", 2 * stats.t.sf(0.32 * (38 / (1 - 0.32**2)) ** 0.5, 38)),
    ],
)
def test_p_is_that_of_the_statistic(text, p):
    [stated] = find_tests(f"We found {text}, as expected.")
    assert stated.p_of(stated.value.value) == pytest.approx(p, rel=1e-9)
    assert stated.range[0] <= p <= stated.range[1]
    assert stated.agrees(*stated.range)


@pytest.mark.parametrize(
    ("text", "severity", "said"),
    [
        ("t(28) = 2.20, p = .04", None, ""),
        ("t(28) = 2.20, p < .05", None, ""),
        ("t(28) = 2.20, p = .01", "warn", "the statistic gives p = 0.0358 to 0.0366."),
        ("t(28) = 1.20, p = .04", "error", "gives p = 0.238 to 0.242, on the other side of 0.05."),
        ("t(28) = 2.20, p > .05", "error", "on the other side of 0.05."),
        ("t(28) = 2.20, p = .018", "note", "the printed one is one-sided."),
        ("t = 2.20, p = .5", None, ""),  # without degrees of freedom nothing can be said
        ("F(2) = 2.20, p = .5", None, ""),
        ("z = 0.0, p = 1.00", None, ""),
    ],
)
def test_stated_tests(text, severity, said):
    file = published({"v": ["0.5"]}, target=None, items={}, columns=["a"], tests=[{"variant": "v", "text": text}])
    found = of_kind(audit(file), "test")
    assert [finding.severity for finding in found] == ([severity] if severity else [])
    assert all(finding.sentence.endswith(said) for finding in found)


def test_a_p_value_that_no_pairing_of_the_items_gives():
    rows = {"old": ["0.50", "0.500", "0.50"], "new": ["0.60", "0.500", "0.55"]}  # 2 of 20 items, 2.2 with rounding
    for p, wrong in (("0.20", True), ("0.25", False), ("0.5", False)):
        found = of_kind(audit(published(rows, [claim(percent=20, p=p)], target=None)), "test")
        assert bool(found) is wrong, p
        assert all("however they pair, p is at least 0.25." in finding.sentence for finding in found)


def noisy(rows, spread, seed=0, items=(400, 900)):
    rng = np.random.default_rng(seed)
    return {
        f"v{i}": [
            f"{min(max(rng.binomial(n, 0.6 + spread * rng.normal()), 0), n) / n:.4f}" if spread >= 0 else f"{0.6:.4f}"
            for n in items
        ]
        for i in range(rows)
    }


def check(findings, rows, **more):
    """The findings of one check on a table of two columns."""
    more = {"target": None, "items": {"a": 400, "b": 900}, "columns": ["a", "b"]} | more
    return list(findings(Table.of(published(rows, **more))))


def spreads(rows, **more):
    return [finding for finding in check(chance_findings, rows, **more) if finding.kind == "spread"]


def bests(rows, **more):
    return [finding for finding in check(chance_findings, rows, **more) if finding.kind == "chance"]


def test_the_best_of_k_is_the_binomial_maximum():
    rows = {f"v{i}": ["0.6000"] for i in range(9)} | {"best": ["0.6500"]}
    [finding] = bests(rows, items={"a": 400}, columns=["a"])
    p = 1 - stats.binom.cdf(259, 400, 0.605) ** 10
    assert f"as good as printed in {p:.2g}"[:-1] in finding.sentence
    assert p == pytest.approx(float(finding.sentence.rsplit("in ", 1)[1].split()[0]), rel=0.1)


def test_rows_that_differ_less_than_sampling_allows():
    assert not [f for seed in range(4) for f in spreads(noisy(8, 0, seed))]
    alike = {f"v{i}": [f"{(240 + i % 2) / 400:.4f}", f"{540 / 900:.4f}"] for i in range(8)}
    found = spreads(alike)
    assert [finding.column for finding in found] == ["a", "b"]
    # variance of eight values half an item from their mean: 2/7 items^2; twice that are the items that differ
    assert "all but about 0.6 of the 400 items alike" in found[0].sentence


def test_distances_near_their_target_vary_less_and_are_not_accused():
    rng = np.random.default_rng(1)
    rows = {f"v{i}": [f"{abs(rng.binomial(n, 0.5) / n - 0.5):.4f}" for n in (400, 900)] for i in range(10)}
    assert not spreads(rows, target="0.5")


def test_duplicate_rows_and_columns():
    rows = noisy(6, 0.05) | {"copy": noisy(6, 0.05)["v3"]}
    [finding] = check(duplicate_findings, rows)
    assert (finding.variant, finding.severity) == ("copy", "warn")
    assert "v3 and copy are the same in all 2 columns" in finding.sentence
    few = {f"v{i}": ["0.5", "0.5"] for i in range(6)}  # of two items each, equal rows are nothing
    found = check(duplicate_findings, few, items={"a": 2, "b": 2})
    assert found
    assert all(finding.severity == "note" for finding in found)
    same = {name: [row[0], row[0]] for name, row in noisy(6, 0.05).items()}
    assert any("The columns a and b are the same" in f.sentence for f in check(duplicate_findings, same))


def test_last_digits():
    for seed in range(5):  # of real counts, also where few items leave but few digits
        assert not check(digit_findings, noisy(20, 0.05, seed))
        rng = np.random.default_rng(seed)
        few = {f"v{i}": [f"{rng.integers(11) / 10:.3f}", f"{rng.integers(21) / 20:.3f}"] for i in range(20)}
        assert not check(digit_findings, few, items={"a": 10, "b": 20})
    rng = np.random.default_rng(0)
    round_ones = {f"v{i}": [f"{0.5 + 0.005 * rng.integers(40):.3f}" for _ in range(2)] for i in range(20)}
    [finding] = check(digit_findings, round_ones, items={"a": 777, "b": 913})
    assert "40 numbers" in finding.sentence
    assert "ends" in finding.sentence

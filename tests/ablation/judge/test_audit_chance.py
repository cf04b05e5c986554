"""The best of many rows, rows too alike, and last digits."""

import numpy as np
import pytest
from scipy import stats

from ablation.audit.noise import chance_findings, digit_findings
from ablation.audit.table import Table
from tests.ablation.judge.published import published


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

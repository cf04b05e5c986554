"""The audit against hand-made tables, enumeration and published examples, and what it finds in the debias table."""

from fractions import Fraction
from itertools import combinations_with_replacement, product

import numpy as np
import pytest
from scipy.stats import binomtest

from ablation.audit import audit
from ablation.audit.claims import best_case_p, noise_of_difference
from ablation.audit.counts import Evaluation, attainable
from ablation.config.printed import Printed
from ablation.config.published_schema import load_published
from ablation.contract.errors import ConfigError
from tests.ablation.judge.published import claim, of_kind, published
from tests.repository import ROOT

HALF = Fraction(1, 2)
DEBIAS = ROOT / "configs" / "published" / "debias.yaml"


def unattainable(findings):
    return of_kind(findings, "attainability")


@pytest.fixture(scope="module")
def debias():
    return audit(load_published(DEBIAS))


def test_debias_baseline_mean_is_not_the_mean_of_its_parts(debias):
    [finding] = of_kind(debias, "mean")
    assert (finding.variant, finding.severity) == ("baseline", "error")
    assert "0.0277" in finding.sentence
    assert "(0.0170 + 0.0410 + 0.0200) / 3 = 0.0260" in finding.sentence


def test_debias_religion_values_are_unattainable(debias):
    religion = {f.variant: f for f in of_kind(debias, "attainability") if f.column == "religion"}
    assert set(religion) >= {"v3", "v4", "v5", "v6", "v7", "v8", "v8.1", "v9"}
    assert "0.0024 is not |k/77 - 0.5| for any integer k (nearest: 0.0065)" in religion["v8"].sentence
    # 77 items in passes of 32, 32 and 13 can average to it, and the audit says so.
    assert "but it can be the mean over batches of 128, each averaged over batches of 32" in religion["v8"].sentence
    assert [religion[name].severity for name in ("v8", "v5")] == ["note", "warn"]
    assert "nor a mean over batches of 128, each averaged over batches of 32" in religion["v5"].sentence
    assert (
        "no mean of per-run distances can give this number, because all per-run distances are at least"
        in religion["v5"].sentence
    )
    assert "distances over batches needs at least 4 runs" in religion["v5"].sentence


def test_debias_attainable_values_are_those_of_batches(debias):
    """BiasEdit averages passes of 32 within edits of 128: 962 items give multiples of 1 / 3072."""
    race = {abs(Fraction(n, 3072) - Fraction(1, 2)) for n in range(3073)}
    lattice = attainable(962, (128, 32), Fraction(1, 2))
    assert {Fraction(n, lattice.denominator) for n in lattice.numerators} <= race
    notes = [finding.sentence for finding in of_kind(debias, "share")]
    assert [next(n for n in (11, 6) if f"; {n} of 13 printed" in note) for note in notes] == [11, 6, 6]
    [v1] = [finding for finding in of_kind(debias, "attainability", "v1") if finding.column == "race"]
    assert "0.0395 can be |k/962 - 0.5| for an integer k, but not the mean over batches of 128" in v1.sentence


def test_a_bound_that_only_rounding_keeps():
    standing = {"variant": "v", "column": "mean", "below": "0.05", "text": "below 0.05"}
    rows = {"v": ["0.050", "0.050", "0.050"]}
    [finding] = of_kind(audit(published(rows, standings=[standing])), "claim")
    assert finding.severity == "warn"
    assert finding.sentence.endswith("called below 0.05, which can only be true if the number was rounded up.")
    assert not of_kind(audit(published(rows, standings=[standing | {"below": "0.06"}])), "claim")
    with pytest.raises(ConfigError, match="row w or column mean is missing from the table"):
        published(rows, standings=[standing | {"variant": "w"}])


def test_a_mean_within_rounding_is_no_finding():
    # The parts and the mean are rounded; 0.15015 rounds to either.
    for mean, found in (("0.1502", 0), ("0.1501", 0), ("0.1504", 1), ("0.15", 0), ("0.150", 0), ("0.151", 1)):
        assert len(of_kind(audit(published({"v": ["0.1001", "0.2002", mean]})), "mean")) == found, mean


def test_a_mean_weighted_by_items_is_told_from_a_wrong_one():
    [finding] = of_kind(audit(published({"v": ["0.1000", "0.2000", "0.1667"]})), "mean")  # (20 x .1 + 40 x .2) / 60
    assert finding.severity == "note"
    assert finding.sentence.endswith("the reported mean weights each part by its number of items.")


def test_a_column_of_sums_is_a_total_and_no_wrong_mean():
    rows = {"a": ["0.10", "0.20", "0.30"], "b": ["0.15", "0.25", "0.41"], "c": ["0.15", "0.25", "0.44"]}
    [finding] = of_kind(audit(published(rows)), "mean")
    assert finding.sentence == "c: the total is reported as 0.44, but 0.15 + 0.25 = 0.40."
    del rows["c"], rows["a"]
    assert not of_kind(audit(published(rows)), "mean")


def test_attainable_values_by_enumeration():
    def values(*of):
        lattice = attainable(*of)
        return [number / lattice.denominator for number in lattice.numerators]

    assert values(4) == [0, 0.25, 0.5, 0.75, 1]
    assert values(4, (), Fraction(1, 2)) == [0, 0.25, 0.5]
    assert values(3, (), Fraction(3, 10)) == pytest.approx([1 / 30, 0.3, 11 / 30, 0.7])
    # 5 items in batches of 2, 2 and 1: every outcome, averaged as the source averages.
    every = {np.mean([np.mean(o[:2]), np.mean(o[2:4]), o[4]]) for o in product((0, 1), repeat=5)}
    assert values(5, (2,)) == pytest.approx(sorted({round(v, 12) for v in every}))
    assert attainable(4, (2,)) == attainable(4)
    # Of the 7 batches of 4 and 3, these in passes of 2: 2, 2 and 2, 1.
    every = {
        np.mean([np.mean([np.mean(o[:2]), np.mean(o[2:4])]), np.mean([np.mean(o[4:6]), o[6]])])
        for o in product((0, 1), repeat=7)
    }
    assert values(7, (4, 2)) == pytest.approx(sorted({round(v, 12) for v in every}))


def test_the_target_is_declared_and_not_read_off_a_name():
    rows = {"v": ["0.01", "0.30", "0.2"]}
    for name in ("distance", "accuracy"):
        assert not unattainable(audit(published({"v": ["0.05", "0.025", "0.0375"]}, metric=name)))
        [finding, *_] = unattainable(audit(published(rows, metric=name, target="0.3")))
        assert "|k/20 - 0.3| for" in finding.sentence


def test_claimed_percentages():
    rows = {"old": ["0.100", "0.200", "0.150"], "new": ["0.050", "0.200", "0.125"]}
    assert not of_kind(audit(published(rows, [claim(percent=-50)])), "claim")
    [finding] = of_kind(audit(published(rows, [claim(percent=-60)])), "claim")
    assert "0.050 / 0.100 - 1 = -50.0%" in finding.sentence
    # 0.125 / 0.15 - 1 = -16.67%: both -17 and -16.7 are right, -14 is not, given three digits; nor is -16.0.
    exact = {"old": ["0.150", "0.2", "0.175"], "new": ["0.125", "0.2", "0.1625"]}
    for percent, wrong in (("-17", False), ("-16.7", False), ("-14", True), ("-16.0", True), ("-16.7%", False)):
        assert bool(of_kind(audit(published(exact, [claim(percent=percent)])), "claim")) is wrong, percent


@pytest.mark.parametrize("net", [1, 2, 5, 9])
def test_best_case_p_is_the_exact_sign_test(net):
    assert best_case_p(net) == pytest.approx(binomtest(net, net).pvalue)


def test_noise_of_a_difference_by_hand():
    assert noise_of_difference([0.5, 0.5], 100) == pytest.approx((0.5 / 100) ** 0.5)


def test_with_77_items_no_mean_of_distances_is_below_a_half_of_one_item():
    evaluation = Evaluation(77, (32,), HALF)
    for text in ("0.0040", "0.0024", "0.0064"):  # each distance is at least 0.5 / 77 = 0.00649
        assert evaluation.plain.fewest_runs(Printed.of(text)) is None
    assert evaluation.plain.fewest_runs(Printed.of("0.0065")) == 1
    assert evaluation.batched.fewest_runs(Printed.of("0.0040")) == 1
    rows = {"v": ["0.0040", "0.0500", "0.0270"]}
    [finding, *_] = of_kind(audit(published(rows, items={"a": 77, "b": 40})), "attainability")
    said = "no mean of per-run distances can give this number, because all per-run distances are at least 0.00649"
    assert said in finding.sentence
    assert "a mean rate with this distance from the target needs at least 21 runs" in finding.sentence
    assert finding.severity == "warn"
    [finding, *_] = of_kind(audit(published(rows, items={"a": 77, "b": 40}, runs=20)), "attainability")
    assert finding.severity == "error"
    assert (
        "0.0040 is neither the mean over 20 runs of |k/77 - 0.5| nor the distance between the mean rate"
        in finding.sentence
    )


@pytest.mark.parametrize(("items", "batch", "target"), [(7, (), None), (7, (), HALF), (5, (2,), None), (5, (2,), HALF)])
@pytest.mark.parametrize("text", ["0.10", "0.117", "0.33", "0.4", "0.214", "0.433"])
def test_the_fewest_runs_by_enumeration(items, batch, target, text):
    evaluation, number = Evaluation(items, batch, target), Printed.of(text)
    for lattice in (evaluation.plain, evaluation.batched):
        values = [Fraction(n, lattice.denominator) for n in lattice.numerators]
        for runs in (1, 2, 3):
            means = {sum(chosen) / runs for chosen in combinations_with_replacement(values, runs)}
            expected = any(number.low <= mean <= number.high for mean in means)
            assert lattice.can_be_mean(number.low, number.high, runs) is expected
        fewest = next((r for r in range(1, 51) if lattice.can_be_mean(number.low, number.high, r)), None)
        assert lattice.fewest_runs(number) == fewest
    rates = [Fraction(k, items) for k in range(items + 1)]
    for runs in (1, 2, 3):
        means = {sum(chosen) / runs - (target or 0) for chosen in combinations_with_replacement(rates, runs)}
        expected = any(number.low <= abs(mean) <= number.high for mean in means)
        assert evaluation.can_be_of_mean(number, runs) is expected


def test_grimmer_finds_what_no_three_runs_have():
    def found(cell, **more):
        rows = {"v": [cell, "0.500", "0.500"]}
        return of_kind(audit(published(rows, target=None, items={"a": 20, "b": 40}, **more)), "grimmer")

    assert not found("0.500 ± 0.050", runs=3)  # 9, 10 and 11 of 20
    [finding] = found("0.500 ± 0.060", runs=3)
    assert (finding.severity, finding.column) == ("error", "a")
    assert "0.500 ± 0.060 cannot be the mean and standard deviation of 3 values of k/20" in finding.sentence
    [finding] = found("0.500 ± 0.041", runs=3)  # sqrt(2/3) of an item: numpy's own standard deviation
    assert finding.severity == "note"
    assert "only if the divisor of the standard deviation is 3, not 2" in finding.sentence
    [finding] = found("0.500 ± 0.700", runs=3)
    assert "the standard deviation is at most 0.612" in finding.sentence
    assert not found("0.500 ± 0.060")  # without the number of runs nothing can be said

"""Counts, sums of runs and GRIMMER, against enumeration and published examples."""

from fractions import Fraction
from itertools import combinations_with_replacement

import pytest

from ablation.audit import audit
from ablation.audit.counts import Evaluation
from ablation.config.printed import Printed
from tests.ablation.judge.published import of_kind, published

HALF = Fraction(1, 2)


def test_with_77_items_no_mean_of_distances_is_below_a_half_of_one_item():
    evaluation = Evaluation(77, (32,), HALF)
    for text in ("0.0040", "0.0024", "0.0064"):  # each distance is at least 0.5 / 77 = 0.00649
        assert evaluation.fewest_runs(Printed.of(text)) is None
    assert evaluation.fewest_runs(Printed.of("0.0065")) == 1
    assert evaluation.fewest_runs(Printed.of("0.0040"), batched=True) == 1
    rows = {"v": ["0.0040", "0.0500", "0.0270"]}
    [finding, *_] = of_kind(audit(published(rows, items={"a": 77, "b": 40})), "attainability")
    said = "no mean of per-run distances can, whatever the number of runs, since each is at least 0.00649"
    assert said in finding.sentence
    assert "the distance of a mean rate takes at least 21 runs" in finding.sentence
    assert finding.severity == "warn"
    [finding, *_] = of_kind(audit(published(rows, items={"a": 77, "b": 40}, runs=20)), "attainability")
    assert finding.severity == "error"
    assert "0.0040 is neither the mean over 20 runs of |k/77 - 0.5| nor of their mean rate" in finding.sentence


@pytest.mark.parametrize(("items", "batch", "target"), [(7, (), None), (7, (), HALF), (5, (2,), None), (5, (2,), HALF)])
@pytest.mark.parametrize("text", ["0.10", "0.117", "0.33", "0.4", "0.214", "0.433"])
def test_the_fewest_runs_by_enumeration(items, batch, target, text):
    evaluation, number = Evaluation(items, batch, target), Printed.of(text)
    for batched in (False, True) if batch else (False,):
        lattice = evaluation.batched if batched else evaluation.plain
        values = [Fraction(n, lattice.denominator) for n in lattice.numerators]
        for runs in (1, 2, 3):
            means = {sum(chosen) / runs for chosen in combinations_with_replacement(values, runs)}
            expected = any(number.low <= mean <= number.high for mean in means)
            assert evaluation.can_be_mean(number, runs, batched=batched) is expected
        fewest = evaluation.fewest_runs(number, batched=batched)
        assert fewest == next((r for r in range(1, 51) if evaluation.can_be_mean(number, r, batched=batched)), None)
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
    assert "0.500 ± 0.060 is the mean and standard deviation of no 3 values of k/20" in finding.sentence
    [finding] = found("0.500 ± 0.041", runs=3)  # sqrt(2/3) of an item: numpy's own standard deviation
    assert finding.severity == "note"
    assert "only if the standard deviation divides by 3, not by 2" in finding.sentence
    [finding] = found("0.500 ± 0.700", runs=3)
    assert "it is at most 0.612" in finding.sentence
    assert not found("0.500 ± 0.060")  # without the number of runs nothing can be said

"""The audit against hand-made tables, and what it must find in the published debias table."""

import dataclasses
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binomtest

from tracker.config.study_schema import Analysis
from tracker.config.yaml_io import load_yaml
from tracker.judge.audit import Measured, MeasuredCell, attainable, audit, best_case_p, noise_of_difference

DEBIAS = Path(__file__).parents[3] / "configs" / "published" / "debias.yaml"


def table(rows, claims=(), metric="ss_distance", batch_size=None, items=None):
    items = items or {"a": 20, "b": 40}
    published = {
        "source": "x",
        "metric": metric,
        "model": "m",
        "items": items,
        "columns": [*items, "mean"],
        "rows": rows,
    }
    return published | {"claims": list(claims), "batch_size": batch_size}


def of_kind(findings, kind, variant=None):
    return [f for f in findings if f.kind == kind and variant in (None, f.variant)]


@pytest.fixture(scope="module")
def debias():
    return audit(load_yaml(DEBIAS))


def test_debias_baseline_mean_is_not_the_mean_of_its_parts(debias):
    [finding] = of_kind(debias, "mean")
    assert (finding.variant, finding.severity) == ("baseline", "error")
    assert "0.0277" in finding.sentence
    assert "(0.0170 + 0.0410 + 0.0200) / 3 = 0.0260" in finding.sentence


def test_debias_religion_values_are_unattainable(debias):
    religion = {f.variant: f for f in of_kind(debias, "attainability") if f.column == "religion"}
    assert set(religion) >= {"v3", "v4", "v5", "v6", "v7", "v8", "v8.1", "v9"}
    assert "0.0024 is not |k/77 - 0.5| for any integer k (nearest: 0.0065)" in religion["v8"].sentence
    # 37 + 40 items of 77 in batches of 32, 32 and 13 can average to it, and the audit says so.
    assert "batches of 32" in religion["v8"].sentence
    assert religion["v8"].severity == "warn"
    assert religion["v5"].severity == "error"  # not even as a mean of batch means


def test_debias_v3_to_v9_are_indistinguishable(debias):
    [finding] = of_kind(debias, "group")
    for name in ("v3", "v4", "v5", "v6", "v7", "v8", "v8.1", "v9"):
        assert f" {name}," in finding.sentence.replace("(", " ").replace(")", ",")
    assert "0.0028 = 2.7 of 962 items" in finding.sentence
    for variant in ("v4", "v5", "v6", "v7", "v8", "v8.1", "v9"):
        for finding in of_kind(debias, "noise", variant):
            assert "no sign test can be significant" in finding.sentence


def test_debias_claim_that_rests_on_the_wrong_mean(debias):
    [finding] = of_kind(debias, "claim")
    assert finding.variant == "v1"
    assert "0.0245 / 0.0260 - 1 = -5.8%" in finding.sentence


def test_every_finding_is_one_sentence(debias):
    for finding in debias:
        assert finding.sentence.endswith(".")
        assert "\n" not in finding.sentence
        assert finding.severity in ("error", "warn", "note")


def test_a_mean_within_rounding_is_no_finding():
    assert not of_kind(audit(table({"v": [0.1001, 0.2002, 0.1502]})), "mean")  # 0.15015 rounds to either
    assert of_kind(audit(table({"v": [0.1001, 0.2002, 0.1504]})), "mean")


def test_attainable_values_by_enumeration():
    assert attainable(4, None, None).tolist() == [0, 0.25, 0.5, 0.75, 1]
    assert attainable(4, None, 0.5) == pytest.approx([0, 0.25, 0.5])
    # 5 items in batches of 2, 2 and 1: every outcome, averaged as the source averages.
    every = {np.mean([np.mean(o[:2]), np.mean(o[2:4]), o[4]]) for o in product((0, 1), repeat=5)}
    assert attainable(5, 2, None) == pytest.approx(sorted({round(v, 12) for v in every}))
    assert attainable(4, 2, None).tolist() == attainable(4, None, None).tolist()


def test_a_rate_of_its_items_is_attainable_and_its_neighbour_is_not():
    assert not of_kind(audit(table({"v": [0.05, 0.025, 0.0375]})), "attainability")
    [finding] = of_kind(audit(table({"v": [0.06, 0.025, 0.0425]})), "attainability")
    assert (finding.column, finding.severity) == ("a", "error")
    rates = audit(table({"v": [0.7123, 0.725, 0.7187]}, metric="accuracy"))
    assert [f.column for f in of_kind(rates, "attainability")] == ["a"]
    assert "k/20 for any integer k (nearest: 0.7000 and 0.7500)" in of_kind(rates, "attainability")[0].sentence


def test_claimed_percentages():
    rows = {"old": [0.1, 0.2, 0.15], "new": [0.05, 0.2, 0.125]}
    right = {"variant": "new", "against": "old", "column": "a", "percent": -50, "text": ""}
    assert not of_kind(audit(table(rows, [right])), "claim")
    [finding] = of_kind(audit(table(rows, [right | {"percent": -60}])), "claim")
    assert "0.050 / 0.100 - 1 = -50.0%" in finding.sentence
    # 0.125 / 0.15 - 1 = -16.67%: both -17 and -16.7 are right, -16 and -16.6 are not, given three digits.
    exact = {"old": [0.15, 0.2, 0.175], "new": [0.125, 0.2, 0.1625]}
    for percent, wrong in ((-17, False), (-16.7, False), (-14, True)):
        assert bool(of_kind(audit(table(exact, [right | {"percent": percent}])), "claim")) is wrong


@pytest.mark.parametrize("net", [1, 2, 5, 9])
def test_best_case_p_is_the_exact_sign_test(net):
    assert best_case_p(net) == pytest.approx(binomtest(net, net).pvalue)
    # More disagreeing items with the same net difference only weaken the evidence.
    assert binomtest(net + 3, net + 6).pvalue >= best_case_p(net)


def test_best_case_p_favours_the_claim_between_integers():
    assert best_case_p(2.7) == best_case_p(3) == 0.25
    assert best_case_p(0.3) == best_case_p(0) == 1.0


def test_noise_of_a_difference_by_hand():
    assert noise_of_difference([0.5, 0.5], 100) == pytest.approx((0.5 / 100) ** 0.5)


def test_a_large_difference_is_not_called_noise():
    claim = {"variant": "new", "against": "old", "column": "a", "percent": -100, "text": ""}
    findings = audit(table({"old": [0.5, 0.5, 0.5], "new": [0.0, 0.0, 0.0]}, [claim]))
    assert not of_kind(findings, "noise")
    assert not of_kind(findings, "group")


def test_reproduction_compares_like_with_like_only():
    published = table({"v": [0.05, 0.025, 0.0375]})
    ours = {"v": {"a": MeasuredCell(0.1, 0.04, 0.16, 3), "b": MeasuredCell(0.1, 0.08, 0.12, 1)}}
    inside, outside = of_kind(audit(published, Measured(ours)), "reproduction")
    assert "reproduced" in inside.sentence
    assert inside.severity == "note"
    assert "differs" in outside.sentence
    assert "1 seed:" in outside.sentence
    assert outside.severity == "warn"
    for finding in of_kind(audit(published, Measured(ours, "ours is at scale demo")), "reproduction"):
        assert "not comparable, ours is at scale demo" in finding.sentence


DELTAS = [{"variant": "v1", "against": "v0", "column": "a", "low": -0.02, "high": -0.01, "text": "a decline"}]


@pytest.mark.parametrize(
    ("low", "high", "difference", "severity", "said"),
    [
        (-0.03, -0.015, "", "note", "the intervals overlap."),
        (-0.01, 0.02, "", "note", "the intervals overlap."),  # they touch
        (0.0, 0.02, "", "warn", "the intervals do not overlap."),
        (-0.05, -0.03, "", "warn", "the intervals do not overlap."),
        (
            0.0,
            0.02,
            "ours is at scale demo",
            "note",
            "not overlap, but they are not comparable, ours is at scale demo.",
        ),
    ],
)
def test_reported_differences_stand_beside_ours_as_intervals(low, high, difference, severity, said):
    published = {"source": "x", "metric": "accuracy", "model": "m", "items": {}, "columns": ["a"], "deltas": DELTAS}
    ours = Measured({}, difference, {("v1", "v0", "a"): MeasuredCell((low + high) / 2, low, high, 3)})
    [finding] = audit(published, ours)
    assert (finding.kind, finding.severity) == ("reproduction", severity)
    assert "v1 minus v0, a: reported -0.02 to -0.01 (a decline), measured" in finding.sentence
    assert finding.sentence.endswith(said)
    assert audit(published) == []  # nothing measured, nothing to compare
    assert audit(published, Measured({}, "")) == []


def test_our_own_difference_is_paired_and_in_the_metrics_sense():
    from tracker.judge.audit_measured import _delta
    from tracker.judge.verdicts import Study

    values = {  # items 0 and 1; v1 is better on item 0 in both seeds
        ("v0", 0): {"a": pd.Series([0.0, 1.0], ["i", "j"])},
        ("v0", 1): {"a": pd.Series([0.0, 0.0], ["i", "j"])},
        ("v1", 0): {"a": pd.Series([1.0, 1.0], ["i", "j"])},
        ("v1", 1): {"a": pd.Series([1.0, 0.0], ["i", "j"])},
    }
    for direction in ("max", "min"):  # never turned into a gain
        study = Study(
            **{
                **{field.name: None for field in dataclasses.fields(Study)},
                "analysis": Analysis(value="hit", protocol="test", subsets=["a"], direction=direction, margin=0.1),
                "variants": pd.DataFrame({"variant": ["v0", "v1"]}),
                "values": values,
                "states": {run: ("ok", "") for run in values},
                "aborted": {},
                "duplicates": frozenset(),
            }
        )
        cell = _delta(study, {"variant": "v1", "against": "v0", "column": "a"})
        assert cell.value == pytest.approx(0.5)
        assert cell.low <= cell.value <= cell.high
        assert _delta(study, {"variant": "v1", "against": "v9", "column": "a"}) is None
        assert _delta(study, {"variant": "v1", "against": "v0", "column": "b"}) is None

"""A ledger of attempts: the model against a plain computation and against simulated ledgers whose truth is known."""

import numpy as np
import pytest

from ablation.campaign.past import Attempt, pooled_sd, settle


def ledger(rng, gains, sd=1.0):
    """Attempts as a person, or a program, keeps them, and the true value of each; less is better."""
    name, true, best = "base", 0.0, sd * rng.normal()
    attempts, truth = [Attempt("base", -best, True)], {"base": 0.0}
    for number, gain in enumerate(gains):
        value = true + gain
        measured = value + sd * rng.normal()
        truth[f"c{number}"] = value
        attempts.append(Attempt(f"c{number}", -measured, measured > best))
        if measured > best:
            name, true, best = f"c{number}", value, measured
    return attempts, truth, name


def test_repeats_tell_the_noise():
    rows = [("a", 1.0), ("b", 5.0), ("a", 3.0), ("b", 5.0), ("b", 8.0), ("c", None)]
    assert pooled_sd([Attempt(name, value, False) for name, value in rows]) == pytest.approx(np.sqrt((2 + 6) / 3))
    assert np.isnan(pooled_sd([Attempt("a", 1.0, True)]))


def test_crashes_and_broken_attempts_change_nothing():
    attempts, *_ = ledger(np.random.default_rng(2), np.random.default_rng(3).normal(-1, 1, 30))
    more = [*attempts, Attempt("x", None, False), Attempt("broken", 400.0, False)]
    assert [keep.likely for keep in settle(more, 1.0, -1).keeps] == pytest.approx(
        [keep.likely for keep in settle(attempts, 1.0, -1).keeps], rel=1e-6
    )


def test_a_repeat_that_confirms_a_gain_makes_it_likelier():
    attempts, *_ = ledger(np.random.default_rng(4), np.random.default_rng(5).normal(-1, 1, 30))
    keep = settle(attempts, 1.0, -1).keeps[-1]
    again = settle([*attempts, Attempt(keep.attempt.name, keep.attempt.value, True)], 1.0, -1).keeps[-1]
    assert again.measured == keep.measured
    assert keep.likely < again.likely < keep.measured


@pytest.mark.parametrize(("mean", "spread"), [(-1.0, 1.0), (-0.3, 0.3), (-2.0, 2.0), (0.0, 0.01)])
def test_simulated_ledgers(mean, spread):
    """Intervals cover, shrunken gains are unbiased where measured ones are not, and wrong keeps are counted right."""
    rng, covered, bias, measured, wrong = np.random.default_rng(9), [], [], [], []
    for _ in range(100):
        attempts, truth, champion = ledger(rng, rng.normal(mean, spread, 60))
        settled = settle(attempts, 1.0, -1)
        covered.append(settled.low <= truth[champion] <= settled.high)
        bias.append(settled.likely - truth[champion])
        measured.append(settled.measured - truth[champion])
        wrong.append(settled.wrong - sum(truth[each.attempt.name] <= truth[each.parent] for each in settled.keeps))
    assert np.mean(covered) >= 0.95 - 3 * np.sqrt(0.95 * 0.05 / 100)
    for off in (bias, wrong):
        assert abs(np.mean(off)) < 3 * np.std(off) / 10 + 0.02
    assert np.mean(measured) > 1

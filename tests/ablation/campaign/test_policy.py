"""The referee's decisions one by one, and its numbers against scipy and hand computation."""

import math

import pytest
from scipy import stats

from ablation.campaign.policy import Levels, Referee, Rules, t_quantile, t_tail


def told(asked, *answers):
    """Answer the batches of a trial; return its purposes, the runs of the last batch, and the decision."""
    purposes, batch = [], next(asked)
    for answer in answers:
        purposes.append(batch.purpose)
        last = batch.runs
        try:
            batch = asked.send(answer)
        except StopIteration as done:
            return purposes, last, done.value
    raise AssertionError(f"it asks for {batch.purpose}, too")


def fresh(**rules):
    return Referee(Rules(**rules), "base", [9.0, 10.0, 11.0])


@pytest.mark.parametrize("freedom", [1, 2, 3, 4, 5, 10, 31, 200])
def test_students_t(freedom):
    for t in (-2.0, 0.0, 0.5, 2.0, 7.0):
        assert t_tail(t, freedom) == pytest.approx(stats.t.sf(t, freedom), abs=1e-14)
    for tail in (0.3, 0.025, 0.0004):
        assert t_quantile(tail, freedom) == pytest.approx(stats.t.isf(tail, freedom), rel=1e-9)


def test_levels_without_a_claim_never_exceed_the_start():
    levels = Levels(Rules())
    spent = []
    for _ in range(20_000):
        spent.append(levels.next())
        levels.spend(False)
    assert spent[0] == pytest.approx(0.05 / 2.2857, rel=1e-3)  # zeta(1.6) = 2.2857
    assert 0.0495 < math.fsum(spent) < 0.05


def test_each_claim_earns_levels():
    levels = Levels(Rules(decay=2.0))
    weight = [6 / math.pi**2 / k**2 for k in (1, 2, 3)]
    levels.spend(True)
    assert levels.next() == pytest.approx(0.05 * weight[1] + 0.05 * weight[0])
    levels.spend(True)
    assert levels.next() == pytest.approx(0.05 * weight[2] + 0.05 * weight[1] + 0.1 * weight[0])


def test_a_trial_within_the_noise_goes_back_after_one_run():
    purposes, _, decision = told(fresh().trial("t"), [10.6])
    assert (purposes, decision.word, decision.against) == (["screen"], "reset", 10.0)
    assert decision.error == pytest.approx(math.sqrt(4 / 3))


def test_a_lucky_first_run_does_not_stand():
    referee = fresh()
    _, runs, decision = told(referee.trial("t"), [13.0], [10.0, 10.5])
    assert (decision.word, decision.again, referee.provisional) == ("reset", 10.25, "base")
    assert runs == (("t", 4), ("t", 5))  # seeds that nothing has used


def test_a_step_is_provisional_until_fresh_pairs_show_it():
    referee = fresh(patience=2)
    assert told(referee.trial("t"), [12.0], [11.2, 11.6])[2].word == "step"
    assert (referee.provisional, referee.verified) == ("t", "base")
    pairs = [9.5, 13.5, 13.0, 10.0, 10.5, 13.2, 13.8, 9.9, 10.1, 13.4]
    _, runs, decision = told(referee.trial("u"), [13.5], [13.5, 13.0], pairs[: 2 * 4])
    assert runs[:4] == (("base", 9), ("u", 9), ("u", 10), ("base", 10))  # one seed a pair; old new new old
    assert (decision.word, referee.verified) == ("verified", "u")
    assert decision.verification.gain == pytest.approx((4 + 3 + 2.7 + 3.9) / 4)
    assert 0 < decision.verification.stated <= decision.verification.gain


def test_a_step_that_fresh_runs_do_not_bear_out_goes_back_to_the_verified_champion():
    referee = fresh(patience=1)
    _, _, decision = told(referee.trial("t"), [12.0], [11.5, 11.6], [10, 9.9, 9.8, 10.1, 10, 9.7, 9.9, 10.2, 10, 9.5])
    assert (decision.word, referee.provisional, decision.kept) == ("back", "base", False)


@pytest.mark.parametrize("answers", [([None],), ([12.0], [11.0, None])])
def test_a_crash_is_no_step(answers):
    referee = fresh()
    assert told(referee.trial("t"), *answers)[2].word == "crash"
    assert referee.provisional == "base"


def test_a_trial_that_fixes_its_seed_is_found():
    referee = fresh()
    assert told(referee.trial("t"), [13.0], [13.0, 13.0])[2].word == "constant"
    coarse = Referee(Rules(), "base", [10.0, 11.0, 10.0])  # a metric of few values: three equal ones happen
    assert told(coarse.trial("t"), [11.2], [11.2, 11.2])[2].word == "step"


def test_without_noise_a_difference_is_exact_and_nothing_is_claimed():
    referee = Referee(Rules(), "base", [10.0, 10.0, 10.0])
    assert told(referee.trial("t"), [10.0])[2].word == "reset"
    assert told(referee.trial("u"), [10.001], [10.001, 10.001])[2].word == "step"
    assert (referee.provisional, referee.verified, referee.verifications) == ("u", "base", [])
    assert next(referee.verify(4), None) is None


def test_a_simplification_is_equivalent_or_it_goes_back():
    same, worse = [10, 10.1, 9.9, 10, 10.2, 10, 9.8, 9.9], [10, 8.0, 8.1, 10, 10.2, 8, 8, 9.9]
    better = [20 - value for value in worse]
    for values, word in ((same, "verified"), (worse, "reset"), (better, "reset")):
        referee = Referee(Rules(least=4), "base", [9.9, 10.0, 10.1])
        assert told(referee.simplification("t", margin=1.0), [9.7], values)[2].word == word
    assert told(Referee(Rules(), "base", [9.9, 10.0, 10.1]).simplification("t", margin=1.0), [11.2])[2].word == "reset"


def test_an_equivalence_is_two_one_sided_tests():
    """The larger p-value decides, here that of being worse by the margin; nothing is corrected for being shown."""
    referee = Referee(Rules(), "base", [9.9, 10.0, 10.1])
    done = told(referee.simplification("t", margin=1.0), [9.7], [10, 9.5, 9.6, 10, 10, 9.4, 9.5, 10])[2].verification
    assert done.gain == pytest.approx(-0.5)
    below, above = (stats.t.sf((1 + sign * done.gain) / done.error, done.freedom) for sign in (1, -1))
    assert done.p == pytest.approx(max(below, above)) == pytest.approx(below)
    assert done.stated == done.gain


def test_a_crash_of_either_side_in_a_verification_is_not_shown():
    for place in (0, 1):
        values = [10, 15, 15, 10, 10, 15, 15, 10]
        values[place] = None
        referee = fresh(patience=1)
        assert not told(referee.trial("t"), [15.0], [15.0, 15.1], values)[2].verification.shown


def test_what_is_spent_is_levels_over_claims():
    levels = Levels(Rules(decay=2.0))
    first = levels.next()
    levels.spend(False)
    second = levels.next()
    levels.spend(True)
    third = levels.next()
    levels.spend(True)
    assert levels.spent == pytest.approx((first + second + third) / 2)
    assert levels.spent < 0.1


def test_a_simplification_that_would_take_too_many_runs_says_how_many():
    with pytest.raises(StopIteration) as done:
        next(fresh().simplification("t", margin=0.1))
    assert done.value.value.word == "costly"
    assert done.value.value.cost > 500

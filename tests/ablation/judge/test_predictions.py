"""The chance that more seeds decide an edge: by hand, and against seeds that are then drawn."""

from dataclasses import replace
from math import inf, nan

import numpy as np
import pytest

from ablation.judge.budget import Found, Rule, decided_at, effect_variance, level_left, predict
from ablation.judge.edges import Correction, judge_edges
from ablation.judge.measurements import Problem
from ablation.judge.significance import Noise, half_width, look_weights, p_value
from tests.ablation.judge.studies import normal_study

FOUR = Found(0.02, Noise(1e-4, inf, 0.0), 4)  # a known spread of 0.02 from seed to seed


def test_significance_by_hand():
    # Shrunk by 3e-4 / (3e-4 + 1e-4) = 3/4: the mean over 16 seeds is expected at .02 (1/4 + 3/4 * 3/4) = .01625, with
    # the standard deviation 3/4 sqrt(3/4 * 1e-4 + 1e-4 * 4/12) = .0078062; significant beyond 1.96 * .005 = .0097998.
    # Phi(.82627) + Phi(-3.3370) = .79567 + .00042
    assert decided_at(FOUR, Rule(16, 0.05, nan, 0.05), 3e-4) == pytest.approx(0.79609, abs=2e-5)


def test_equivalence_by_hand():
    # The interval of ± .0097998 lies inside ± .0147 for means up to .0049002: Phi(-1.45395) - Phi(-2.70942) = .06961
    both = decided_at(FOUR, Rule(16, 0.05, 0.0147, 0.05), 3e-4)
    assert both == pytest.approx(0.79609 + 0.06961, abs=3e-5)


def test_items_that_stay_the_same_repeat_the_effect():
    noise = Noise(1e-4, inf, 3e-4)
    # Items alone shrink it no less: 3e-4 / 4e-4. What is significant is now beyond 1.96 sqrt(.25e-4 + 3e-4) = .035335.
    # Phi((.01625 - .035335) / .0078062) = Phi(-2.4449) = .00725
    assert decided_at(replace(FOUR, noise=noise), Rule(16, 0.05, nan, 0.05), 0.0) == pytest.approx(0.00725, abs=2e-5)


@pytest.mark.parametrize(("unseen", "chance"), [(0.001, 1.0), (0.01, 0.0)])
def test_without_any_difference_only_the_bound_on_what_went_unseen_counts(unseen, chance):
    # half width: -ln(.025) = 3.69 clusters, .0037 or .037, and the margin is .02
    same = Found(0.0, Noise(0.0, 3.0, 0.0, inf, unseen), 4)
    assert decided_at(same, Rule(8, 0.05, 0.02, 0.05), 1e-4) == chance


def test_an_unknown_variance_counts_against_an_edge_that_a_known_one_would_decide():
    clear = replace(FOUR, centre=0.04)
    rule = Rule(8, 0.05, nan, 0.05)
    chances = [decided_at(replace(clear, noise=Noise(1e-4, df, 0.0)), rule, 1e-3) for df in (2.0, 5.0, 50.0, inf)]
    assert chances == sorted(chances)
    assert chances[2] == pytest.approx(chances[3], abs=0.02)


def test_effects_spread_by_what_their_noise_does_not_explain():
    found = [Found(effect, Noise(1e-4, 3.0, 1e-4), 4) for effect in (0.02, -0.04)]
    assert effect_variance(found) == pytest.approx((4e-4 + 16e-4) / 2 - 2e-4)
    assert effect_variance([replace(edge, centre=0.001) for edge in found]) == 0.0
    assert effect_variance([]) == 0.0


def test_the_chance_is_that_of_seeds_drawn_later():
    rng = np.random.default_rng(3)
    seeds, later, tau, sd, rule = 4, 8, 0.02, 0.03, Rule(8, 0.05, 0.03, 0.05)
    chances, outcomes = [], []
    for _ in range(500):
        draws = rng.normal(0, tau) + rng.normal(0, sd, later)
        first = Found(draws[:seeds].mean(), Noise(draws[:seeds].var(ddof=1) / seeds, seeds - 1, 0.0), seeds)
        chances.append(decided_at(first, rule, tau**2))
        noise = Noise(draws.var(ddof=1) / later, later - 1, 0.0)
        inside = abs(draws.mean()) + half_width(noise, rule.interval_level) <= rule.margin
        outcomes.append(inside or p_value(draws.mean(), noise) <= rule.level)
    predicted, happened = np.array(chances), np.array(outcomes)
    assert predicted.mean() == pytest.approx(happened.mean(), abs=0.06)  # three standard errors
    likely = predicted > np.quantile(predicted, 0.75)
    assert predicted[likely].mean() == pytest.approx(happened[likely].mean(), abs=0.12)
    assert happened[likely].mean() > happened[~likely].mean() + 0.15


def test_only_undecided_edges_have_chances_and_only_at_later_looks():
    study = normal_study(seeds=5, looks=[3, 5, 8, 10], margin=0.001)
    edges = judge_edges(study)
    undecided = [(edge.child, edge.parent) for edge in edges if edge.verdict == "undecided"]
    edges[0] = replace(edges[0], factors=("lr", "loss"))
    edges[1] = replace(edges[1], problem=Problem("a run failed"))
    chances = predict(study, edges)
    assert [*chances] == undecided[2:]
    assert all([*by_look] == [8, 10] for by_look in chances.values())
    assert all(0 <= chance <= 1 for by_look in chances.values() for chance in by_look.values())


def test_seeds_between_two_looks_count_with_the_variance_that_the_next_look_will_use():
    study = normal_study(seeds=4, looks=[3, 5, 8], margin=0.001)
    edges = judge_edges(study)
    assert any(edge.variance == "moderated" for edge in edges)
    found = {(edge.child, edge.parent): Found(edge.estimate.centre, edge.noise, 4) for edge in edges}
    spread, share = effect_variance([*found.values()]), look_weights([3, 5, 8])[8]
    rule = Rule(8, level_left(study, edges) * share, 0.001, 0.05 * share)
    for edge, chances in predict(study, edges).items():
        assert chances[8] == decided_at(found[edge], rule, spread)


def test_the_level_left_steps_down_and_counts_edges_before_their_first_look():
    study = normal_study(seeds=5, correction="holm", looks=[5, 10])
    edges = judge_edges(study)  # five
    assert level_left(study, edges) == pytest.approx(0.05 / 5)
    vars(edges[0])["p_adjusted"] = 0.001
    assert level_left(study, edges) == pytest.approx(0.05 / 4)
    fewer = normal_study(seeds=3, correction="holm", looks=[5, 10])
    assert level_left(fewer, judge_edges(fewer)) == pytest.approx(0.05 / 5)
    assert Correction.of(study, edges).level == pytest.approx(0.05 / 5)


def test_each_word_found_leaves_more_to_the_next_where_the_error_is_per_word():
    study = normal_study(seeds=5, error="per_word", looks=[5, 10])
    edges = judge_edges(study)
    assert level_left(study, edges) == Correction.of(study, edges).level == pytest.approx(0.05 / 5)
    vars(edges[0])["p_adjusted"] = 0.001
    assert level_left(study, edges) == pytest.approx(0.05 * 2 / 5)

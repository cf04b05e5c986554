"""Rewards, weights, advantages and losses of the study demonstrations against hand computation and slow code."""

import itertools
import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import rankdata

from ablation.contract.parts import load
from trainers.demonstrations.config import Reward
from trainers.objectives import formula
from trainers.objectives.centred_advantages import centred_advantages
from trainers.objectives.position_advantages import position_advantages
from trainers.objectives.rank_advantages import rank_advantages
from trainers.objectives.selection import (
    best_only,
    position_normalised,
    positives,
    rce_loss,
    rce_weights,
    smoothed_cross_entropy,
    tau_at,
    trained_queries,
)
from trainers.objectives.selection_grpo import grpo_loss
from trainers.objectives.zscore_advantages import zscore_advantages

# A right sequence, a wrong one with half the soft accuracy, and a loss of information.
CORRECT = [1.0, 0.0, 0.0]
ACC = [0.9, 0.5, 0.0]
INFO = [0.05, 0.3, -0.2]


def rewards(mode, correct=CORRECT, acc=ACC, info=INFO, **settings):
    tensors = [torch.tensor([values], dtype=torch.float64) for values in (correct, acc, info)]
    rewarded = load({"reward": formula(f"{mode}_rewards")})["reward"]
    return rewarded(*tensors, Reward(mode=mode, **settings))[0].tolist()


@pytest.mark.parametrize(
    ("mode", "settings", "expected"),
    [
        ("legacy", {}, [0.05, 0.3, -0.2]),
        ("hard_plus_soft", {}, [1.9, 0.5, 0.0]),
        ("hard_plus_soft", {"hard_weight": 2.0, "soft_weight": 0.5}, [2.45, 0.25, 0.0]),
        ("hard_plus_soft_v2", {}, [2.9, 0.5, 0.0]),
        ("hard_plus_soft_v2", {"hard_weight": 0.5, "soft_weight": 2.0}, [2.8, 1.0, 0.0]),
        ("separated", {}, [2.9, 0.5, 0.0]),
        # 2 * 0.25 + 0.5 * 0.9 = 0.95 is lifted to 2; 4 * 0.5 = 2 is held at 1
        ("separated", {"hard_weight": 0.25, "soft_weight": 0.5}, [2.0, 0.25, 0.0]),
        ("separated", {"soft_weight": 4.0}, [5.6, 1.0, 0.0]),
        # half of min(1, 10 info) plus half of (correct + acc / 2): 0.25 + 0.725, 0.5 + 0.125, -1
        ("hybrid", {}, [0.975, 0.625, -1.0]),
        ("hybrid", {"alpha": 1.0, "info_scale": 2.0}, [0.1, 0.6, -0.4]),
        ("hybrid", {"info_floor": 0.0}, [0.975, 0.625, 0.0]),  # the loss of -0.2 counts as 0: within [0, 1]
        # half of (info + 0.1) / 0.2 within [0, 1] plus half of 2 correct + acc: 0.375 + 1.45, 0.5 + 0.25, 0
        ("hybrid_separated", {}, [1.825, 0.75, 0.0]),
        ("legacy", {"info_weight": 0.0, "correct_weight": 1.0}, [1.0, 0.0, 0.0]),  # scheme 5
        ("legacy", {"info_weight": 2.0, "correct_weight": 0.5}, [0.6, 0.6, -0.4]),
    ],
)
def test_rewards_by_hand(mode, settings, expected):
    assert rewards(mode, **settings) == pytest.approx(expected)


@pytest.mark.parametrize("advantages", [rank_advantages, zscore_advantages])
def test_equal_rewards_give_no_signal(advantages):
    assert advantages(torch.full((2, 8), 0.1)).tolist() == [[0.0] * 8] * 2


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=9))
def test_ranks_by_position_are_those_of_the_seeds_argsort(values):
    """Causes 2 and 3 of the demonstrations notes: argsort().argsort(), downwards for advantages, upwards for RCE."""
    rewards, last = torch.tensor([values], dtype=torch.float64), len(values) - 1
    ranks = rankdata([-value for value in values], method="ordinal") - 1
    np.testing.assert_allclose(position_advantages(rewards)[0], 1 - 2 * ranks / last)
    np.testing.assert_allclose(position_normalised(rewards)[0], (rankdata(values, method="ordinal") - 1) / last)


def test_the_best_sequence_is_the_first_of_the_highest():
    assert best_only(torch.tensor([[0.3, 9.0, 9.0], [0.0, -2.0, -1.0]])).tolist() == [[0, 1, 0], [1, 0, 0]]


@given(st.lists(st.integers(-3, 3), min_size=2, max_size=9))
def test_rank_advantages_match_scipy_midranks(values):
    found = rank_advantages(torch.tensor([values], dtype=torch.float64))[0].numpy()
    ranks = rankdata([-value for value in values], method="average") - 1
    np.testing.assert_allclose(found, 1 - 2 * ranks / (len(values) - 1))
    assert found.sum() == pytest.approx(0.0)


def test_zscores_by_hand():
    found = zscore_advantages(torch.tensor([[0.0, 1.0, 2.0], [0.0, 0.01, 0.02]]))
    assert found[0].tolist() == pytest.approx([-1.0, 0.0, 1.0])  # sample standard deviation 1
    assert found[1].tolist() == pytest.approx([-0.1, 0.0, 0.1], abs=1e-6)  # 0.01 is below the floor of 0.1
    assert centred_advantages(torch.tensor([[0.0, 1.0, 5.0]])).tolist() == [[-2.0, -1.0, 3.0]]


def test_conditional_drops_the_queries_below_the_ratio_and_counts_rewards_above_the_threshold():
    """As the source writes it: (beam_rewards > threshold), whether right or not."""
    right = positives(torch.zeros(3, 5), torch.tensor([[1.0, 0, 0, 0, 0], [0] * 5, [1.0, 1, 1, 1, 1]]), None)
    assert trained_queries(right, 0.2).tolist() == [True, False, True]  # 1 of 5 is enough
    assert trained_queries(right, 0.21).tolist() == [False, False, True]
    assert trained_queries(right, 0.0).all()
    rewards_ = torch.tensor([[0.1, 0.0, -0.2, 0.3], [0.0, 0.0, 0.0, 0.0]])
    correct = torch.ones(2, 4)
    assert positives(rewards_, correct, 0.0).tolist() == [[True, False, False, True], [False] * 4]
    assert trained_queries(positives(rewards_, correct, 0.0), 0.5).tolist() == [True, False]
    assert trained_queries(positives(rewards_, correct, 0.1), 0.5).tolist() == [False, False]


def test_rce_weights_pick_the_best_as_tau_goes_to_zero():
    values = torch.tensor([[0.2, 0.5, 0.4], [1.0, -1.0, 0.0]])
    assert rce_weights(values, 1e-3).argmax(-1).tolist() == [1, 0]
    assert rce_weights(values, 1e-3).amax(-1).tolist() == pytest.approx([1.0, 1.0])
    assert rce_weights(values, 1e6)[0].tolist() == pytest.approx([1 / 3] * 3, abs=1e-5)
    hand = [math.exp(v / 0.5) for v in (0.2, 0.5, 0.4)]
    assert rce_weights(values, 0.5)[0].tolist() == pytest.approx([h / sum(hand) for h in hand])


def test_tau_is_linear_from_start_to_end():
    assert [tau_at(step, 4, 2.0, 0.5) for step in range(4)] == pytest.approx([2.0, 1.5, 1.0, 0.5])
    assert tau_at(0, 1, 2.0, 0.5) == 0.5


def test_smoothed_cross_entropy_by_hand():
    # one sequence of two steps among three candidates: first 1, then 0 of what is left
    probabilities = [[0.2, 0.5, 0.3], [0.6, 0.0, 0.4]]
    logps = torch.tensor([[[[math.log(p) if p else -1e9 for p in row] for row in probabilities]]])
    pointers, free = torch.tensor([[[1, 0]]]), torch.tensor([[[[True, True, True], [True, False, True]]]])
    first = 0.9 * -math.log(0.5) + 0.1 * -(math.log(0.2) + math.log(0.5) + math.log(0.3)) / 3
    second = 0.9 * -math.log(0.6) + 0.1 * -(math.log(0.6) + math.log(0.4)) / 2
    found = smoothed_cross_entropy(logps, pointers, free, 0.1)
    assert found.item() == pytest.approx((first + second) / 2, rel=1e-6)


def test_rce_loss_weighs_sequences_within_their_query():
    weights = rce_weights(torch.tensor([[0.0, 100.0], [100.0, 0.0]]), 0.5)
    loss = rce_loss(weights, torch.tensor([[1.0, 2.0], [4.0, 8.0]]))
    assert loss.item() == pytest.approx((2.0 + 4.0) / 2)


def slow_grpo(logps, old, reference, advantages, *, clip_low, clip_high, kl_coef):
    losses = []
    for query, sequence, step in itertools.product(*map(range, logps.shape)):
        new, a = logps[query, sequence, step], advantages[query, sequence]
        ratio = (new - old[query, sequence, step]).exp()
        difference = reference[query, sequence, step] - new
        kl = difference.exp() - difference - 1
        losses.append(-min(ratio * a, max(min(ratio, 1 + clip_high), 1 - clip_low) * a) + kl_coef * kl)
    return sum(losses) / len(losses)


def test_grpo_loss_and_its_gradient_match_slow_code():
    generator = torch.Generator().manual_seed(0)
    logps, old, reference = (torch.randn(3, 4, 2, generator=generator, dtype=torch.float64) * 0.4 - 2 for _ in range(3))
    advantages = torch.randn(3, 4, generator=generator, dtype=torch.float64)
    logps.requires_grad_()
    loss, figures = grpo_loss(logps, old, reference, advantages, clip_low=0.2, clip_high=0.2, kl_coef=0.1)
    expected = slow_grpo(logps, old, reference, advantages, clip_low=0.2, clip_high=0.2, kl_coef=0.1)
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, logps), torch.autograd.grad(expected, logps))
    assert 0 < figures["clip_fraction"].item() < 1

"""Objectives of policy optimisation: values by hand.

What verl, TRL and the notes define as well is compared with them in tests/trainers/policy (test_published.py and
test_sources.py), and not computed here once more.
"""

import pytest
import torch

from trainers.objectives.aggregation import aggregate, decayed_sum, masked_mean
from trainers.objectives.batch_normalized_advantages import batch_normalized_advantages
from trainers.objectives.ema_smoothing import ema_smoothing
from trainers.objectives.gae import terminal_rewards
from trainers.objectives.kl import adapt_coefficient
from trainers.objectives.normalized_advantages import normalized_advantages
from trainers.objectives.overlong_penalty import overlong_penalty
from trainers.objectives.relative_advantages import relative_advantages

EXACT = {"rtol": 0, "atol": 1e-12}


def test_relative_advantages_by_hand():
    rewards = torch.tensor([1.0, 3.0, 8.0, 0.1, 0.1, 0.1])
    torch.testing.assert_close(relative_advantages(rewards, 3), torch.tensor([-3.0, -1.0, 4.0, 0.0, 0.0, 0.0]), **EXACT)


def test_equal_rewards_give_exactly_zero_in_single_precision():
    # 0.1 * 3 / 3 is not 0.1 in float32: without care its z-score would be of order 1 after division by 1e-8
    rewards = torch.full((7,), 0.1)
    for advantages in (relative_advantages, normalized_advantages):
        assert (advantages(rewards, 7) == 0).all()


def test_batch_normalized_advantages_are_those_of_rl_hand():
    """`compute_relative_advantages`, then the z-score of `train_step`, in RL_HAND/gspo/gspo.py."""
    rewards = torch.randn(24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    relative = (rewards.view(-1, 4) - rewards.view(-1, 4).mean(1, keepdim=True)).view(-1)
    expected = (relative - relative.mean()) / (relative.std() + 1e-8)
    torch.testing.assert_close(batch_normalized_advantages(rewards, 4), expected, **EXACT)
    assert batch_normalized_advantages(torch.full((8,), 0.1), 4).tolist() == [0.0] * 8


def test_normalized_advantages_need_a_group():
    with pytest.raises(ValueError, match="group_size = 1"):
        normalized_advantages(torch.ones(2), 1)


def test_the_reward_of_a_response_is_at_its_last_token():
    rewards = terminal_rewards(torch.tensor([1.0, -2.0]), torch.tensor([[1.0, 1.0, 0.0], [1.0, 1.0, 1.0]]))
    assert rewards.tolist() == [[0, 1, 0], [0, 0, -2]]


@pytest.mark.parametrize("decay", [0.0, 0.1, 0.95 * 0.99, 1.0])
@pytest.mark.parametrize("length", [1, 2, 7, 300])
def test_decayed_sum_is_the_loop_over_tokens(decay, length):
    values = torch.randn(3, length, dtype=torch.float64, generator=torch.Generator().manual_seed(0)).requires_grad_()
    total, columns = torch.zeros(3, dtype=torch.float64), []
    for t in range(length):
        total = values[:, t] + decay * total
        columns.append(total)
    expected, found = torch.stack(columns, 1), decayed_sum(values, decay)
    torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)
    weights = torch.arange(3.0 * length, dtype=torch.float64).view(3, length)
    gradients = [torch.autograd.grad((weights * each).sum(), values)[0] for each in (found, expected)]
    torch.testing.assert_close(*gradients, rtol=1e-12, atol=1e-9)


def test_variance_reduction_by_hand():
    ratio = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    _, diagnostics = ema_smoothing(ratio, torch.ones(1, 2), beta=0.75)  # w' = 1, 2.5
    assert diagnostics["ema/raw_weights_variance"].value() == 1.0
    assert diagnostics["ema/smoothed_weights_variance"].value() == 0.75**2
    assert diagnostics["ema/variance_reduction_ratio"].value() == 1 - 0.75**2
    _, diagnostics = ema_smoothing(torch.ones(1, 2), torch.ones(1, 2), beta=0.75)
    assert diagnostics["ema/variance_reduction_ratio"].value() is None


@pytest.mark.parametrize(
    ("coefficient", "measured", "expected"),
    [(0.2, 0.021, 0.3), (0.2, 0.02, 0.2), (0.2, 0.005, 0.2), (0.2, 0.0049, 0.1), (0.9, 1.0, 1.0), (0.011, 0.0, 0.01)],
)
def test_kl_controller_by_hand(coefficient, measured, expected):
    assert adapt_coefficient(coefficient, measured, target=0.01) == pytest.approx(expected)


def test_overlong_penalty_by_hand():
    penalty = overlong_penalty(torch.tensor([5, 8, 9, 10, 12]), max_length=10, buffer=2)
    assert penalty.tolist() == [0.0, 0.0, -0.5, -1.0, -1.0]


def test_aggregation_by_hand():
    values, mask = torch.tensor([[1.0, 3.0], [8.0, 99.0]]), torch.tensor([[1, 1], [1, 0]])
    assert aggregate(values, mask, "token_mean").item() == 4.0
    assert aggregate(values, mask, "sequence_mean").item() == 5.0
    assert masked_mean(values, torch.zeros(2, 2)).item() == 0.0
    with pytest.raises(ValueError, match="sequence_mean"):
        aggregate(values, mask, "mean")

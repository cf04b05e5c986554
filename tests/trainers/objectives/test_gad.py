"""The four discriminator losses and the correlation, against hand computation in plain Python."""

import math

import pytest
import torch

from trainers.objectives.discriminators import Scores, pair_diagnostics, pool, ranking_loss, within_group_correlation
from trainers.objectives.final_discriminator import final_discriminator
from trainers.objectives.original_discriminator import original_discriminator
from trainers.objectives.v1_discriminator import v1_discriminator
from trainers.objectives.v2_discriminator import v2_discriminator

VALUES_T = torch.tensor([[1.0, 2.0, 3.0], [0.5, -0.5, 9.0], [4.0, 4.0, 9.0]], dtype=torch.float64)
MASK_T = torch.tensor([[1, 1, 1], [1, 1, 0], [1, 1, 0]])
VALUES_S = torch.tensor([[-1.0, 0.0], [2.0, 7.0], [-6.0, 7.0]], dtype=torch.float64)
MASK_S = torch.tensor([[1, 1], [1, 0], [1, 0]])
SUM_T, SUM_S = [6.0, 0.0, 8.0], [-1.0, 2.0, -6.0]
MEAN_T, MEAN_S = [2.0, 0.0, 4.0], [-0.5, 2.0, -6.0]
DIFF = [2.5, -2.0, 10.0]


def log_sigmoid(x):
    return -math.log1p(math.exp(-x)) if x > 0 else x - math.log1p(math.exp(x))


@pytest.fixture
def scores():
    return pool(VALUES_T, MASK_T, "mean"), pool(VALUES_S, MASK_S, "mean")


def test_an_empty_response_has_score_zero():
    for pooling in ("mean", "sum", "last", "last_per_token"):
        scores = pool(torch.ones(1, 2), torch.zeros(1, 2), pooling)
        assert (scores.raw.item(), scores.pooled.item()) == (0.0, 0.0)


def test_original_is_bradley_terry_on_sums(scores):
    loss, diagnostics = original_discriminator(*scores)
    expected = [-log_sigmoid(t - s) for t, s in zip(SUM_T, SUM_S, strict=True)]
    assert loss.tolist() == pytest.approx(expected, abs=1e-12)
    assert diagnostics["critic/ranking_loss"].tolist() == pytest.approx(expected, abs=1e-12)


def test_v1_has_a_lower_hinge_on_means(scores):
    loss, diagnostics = v1_discriminator(*scores)
    expected = [max(0.0, 1 - d) - 0.5 * log_sigmoid(d / 2) for d in DIFF]
    assert loss.tolist() == pytest.approx(expected, abs=1e-12)
    assert diagnostics["critic/hinge_loss_lower"].tolist() == [0.0, 3.0, 0.0]


@pytest.mark.parametrize(
    ("pooling", "raw", "pooled"),
    [
        ("mean", SUM_T, MEAN_T),
        ("sum", SUM_T, SUM_T),
        ("last", [3.0, -0.5, 4.0], [3.0, -0.5, 4.0]),
        ("last_per_token", [3.0, -0.5, 4.0], [1.0, -0.25, 2.0]),
    ],
)
def test_pooling_says_which_tokens_count_and_what_they_are_divided_by(pooling, raw, pooled):
    scores = pool(VALUES_T, MASK_T, pooling)
    assert scores.raw.tolist() == raw
    assert scores.pooled.tolist() == pooled


def test_v2_adds_an_upper_hinge(scores):
    loss, diagnostics = v2_discriminator(*scores)
    expected = [max(0.0, 1 - d) + max(0.0, d - 5) - 0.5 * log_sigmoid(d / 2) for d in DIFF]
    assert loss.tolist() == pytest.approx(expected, abs=1e-12)
    assert diagnostics["critic/hinge_loss_upper"].tolist() == [0.0, 0.0, 5.0]
    # Seed 002, 21.2: the bound held the wrong difference.
    raw, diagnostics = v2_discriminator(*scores, upper_on="raw")
    assert diagnostics["critic/hinge_loss_upper"].tolist() == [2.0, 0.0, 9.0]  # 7, -2, 14 above 5
    assert (raw - loss).tolist() == pytest.approx([2.0, 0.0, 4.0])


def test_final_ranks_means_regularises_raw_sums_and_penalises_confidence(scores):
    loss, diagnostics = final_discriminator(*scores)
    expected = [
        -1.5 * log_sigmoid(d / 2) + 0.005 * (t * t + s * s) + 0.5 * max(0.0, d - 1.5) ** 2
        for d, t, s in zip(DIFF, SUM_T, SUM_S, strict=True)
    ]
    assert loss.tolist() == pytest.approx(expected, abs=1e-12)
    assert diagnostics["critic/diff_penalty"].tolist() == pytest.approx([1.0, 0.0, 72.25])


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({"temperature": 1.0}, -1.5 * log_sigmoid(2.5) + 0.005 * 37 + 0.5),
        ({"score_reg": 0.01}, -1.5 * log_sigmoid(1.25) + 0.01 * 37 + 0.5),
        ({"penalty_threshold": 0.5}, -1.5 * log_sigmoid(1.25) + 0.005 * 37 + 0.5 * 4.0),
        ({"ranking_weight": 2.0}, -2.0 * log_sigmoid(1.25) + 0.005 * 37 + 0.5),
    ],
)
def test_each_setting_of_final_changes_its_own_part(scores, settings, expected):
    loss, _ = final_discriminator(*scores, **settings)
    assert loss[0].item() == pytest.approx(expected)


def test_the_ranking_loss_is_log_two_at_no_difference_and_flat_beyond_the_clamp():
    diff = torch.tensor([0.0, 30.0, 20.0, -50.0], dtype=torch.float64, requires_grad=True)
    loss = ranking_loss(diff, 2.0)
    assert loss[0].item() == pytest.approx(math.log(2))
    assert loss[1].item() == loss[2].item()  # 15 and 10 are both clamped to 10
    loss.sum().backward()
    assert diff.grad[1] == diff.grad[3] == 0
    assert diff.grad[0] == pytest.approx(-0.25)


def test_accuracy_is_a_win_and_a_tie_is_half_of_one():
    teacher = Scores(torch.tensor([9.0, 1.0, 5.0]), torch.tensor([0.3, 0.5, 0.2]))
    student = Scores(torch.tensor([1.0, 9.0, 5.0]), torch.tensor([0.4, 0.1, 0.2]))
    found = pair_diagnostics(teacher, student)
    assert found["critic/d_acc"].tolist() == [0.0, 1.0, 0.5]
    assert found["critic/d_acc_raw"].tolist() == [1.0, 0.0, 0.5]  # 21.3: by sums
    assert found["critic/score_diff"].tolist() == pytest.approx([-0.1, 0.4, 0.0])
    assert found["critic/raw_score_diff"].tolist() == [8.0, -8.0, 0.0]


def test_correlation_is_within_groups_only():
    # Between the groups scores and quality rise together; within them they are opposed.
    scores = torch.tensor([1.0, 2.0, 11.0, 12.0])
    quality = torch.tensor([2.0, 1.0, 12.0, 11.0])
    assert within_group_correlation(scores, quality, 2).item() == pytest.approx(-1)
    by_hand = (-1 * -1 + 0 * 1 + 1 * 0) / math.sqrt(2 * 2)
    found = within_group_correlation(torch.tensor([1.0, 2.0, 3.0]), torch.tensor([0.0, 2.0, 1.0]), 3)
    assert found.item() == pytest.approx(by_hand)


def test_correlation_of_equal_values_is_undefined_and_not_noise():
    third = torch.full((3,), 1 / 3)
    assert math.isnan(within_group_correlation(third + 0.1, torch.tensor([1.0, 2.0, 3.0]), 3).item())

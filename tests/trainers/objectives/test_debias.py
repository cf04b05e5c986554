"""Objectives of study `debias` by hand computation."""

import math

import pytest
import torch

from tests.make_stage import part_names
from trainers.debias.config import DebiasConfig, Grpo
from trainers.objectives.balanced_reward import balanced_reward
from trainers.objectives.curriculum import active_rcs_phase, rcs_alpha, rcs_weight
from trainers.objectives.debias import (
    combine,
    edit_loss,
    fairness_gap,
    grpo_loss,
    mean_token_kl,
    retention_loss,
)
from trainers.objectives.directional_probability_reward import directional_probability_reward
from trainers.objectives.directional_reward import directional_reward

ANTI = torch.tensor([-2.0, -3.0])
STEREO = torch.tensor([-1.0, -3.5])


def test_edit_loss_by_hand():
    # 0.5 (ln 0.5 + 1) + 0.25 (ln 0.25 + 2), for one item with p_stereo 0.5, lp_anti -1, p_anti 0.25, lp_stereo -2
    loss = edit_loss(*(torch.tensor([x]) for x in (0.25, -1.0, 0.5, -2.0)))
    assert loss.item() == pytest.approx(0.5 * (math.log(0.5) + 1) + 0.25 * (math.log(0.25) + 2))


def test_retention_loss_by_hand_and_without_gradient_to_the_reference():
    reference = torch.tensor([0.2, 0.4], dtype=torch.float64, requires_grad=True)
    edited = torch.tensor([-1.5, -1.0], dtype=torch.float64, requires_grad=True)
    loss = retention_loss(edited, reference)
    assert loss.item() == pytest.approx((0.2 * (math.log(0.2) + 1.5) + 0.4 * (math.log(0.4) + 1.0)) / 2)
    loss.backward()
    assert reference.grad is None
    torch.testing.assert_close(edited.grad, torch.tensor([-0.1, -0.2], dtype=torch.float64))


def test_rewards_and_fairness_by_hand():
    assert directional_reward(ANTI, STEREO).item() == pytest.approx((-1.0 + 0.5) / 2)
    assert directional_reward(STEREO, ANTI) == -directional_reward(ANTI, STEREO)
    gaps = [math.exp(-2) - math.exp(-1), math.exp(-3) - math.exp(-3.5)]
    assert directional_probability_reward(ANTI, STEREO).item() == pytest.approx(sum(gaps) / 2)
    assert balanced_reward(ANTI, STEREO).item() == pytest.approx(0.5 - (1.0 + 0.5) / 2)
    assert balanced_reward(STEREO, ANTI) == balanced_reward(ANTI, STEREO)
    assert fairness_gap(ANTI, STEREO).item() == pytest.approx((1.0 + 0.5) / 2)


def test_grpo_terms_by_hand():
    kl = mean_token_kl(torch.tensor([0.1, 0.3]), torch.tensor([0.4]))
    assert kl.item() == pytest.approx((0.2 + 0.4) / 2)
    loss = grpo_loss(torch.tensor(0.2), kl, beta=0.1, gamma=1.5)
    assert loss.item() == pytest.approx(-1.5 * 0.2 + 0.1 * 0.3)
    assert combine(torch.tensor(2.0), loss, weight=0.3).item() == pytest.approx(0.7 * 2.0 + 0.3 * -0.27)


@pytest.mark.parametrize(("distance", "expected"), [(0.0, 0.5), (0.0199, 0.5), (0.02, 1.0), (0.0499, 1.0), (0.05, 2.0)])
def test_rcs_alpha_at_its_thresholds(distance, expected):
    assert rcs_alpha(distance, (0.02, 0.05), (0.5, 1.0, 2.0)) == expected


def test_rcs_weight_grows_with_difficulty_and_never_falls_below_one():
    assert rcs_weight(-0.25, 2.0) == pytest.approx(1 + 2.0 * 0.75)
    assert rcs_weight(0.5, 2.0) == 1.0
    assert rcs_weight(3.0, 2.0) == 1.0  # the directional reward can exceed 0.5
    assert rcs_weight(-0.25, 0.0) == 1.0


def test_rcs_phases_begin_at_their_fraction():
    phases = [(0.0, "a", "a"), (0.3, "b", "b"), (0.6, "c", "c")]
    active = [active_rcs_phase(epoch / 100, phases)[1] for epoch in (0, 29, 30, 59, 60, 99)]
    assert active == ["a", "a", "b", "b", "c", "c"]  # epochs 1-30, 31-60, 61-100 of v9


def test_settings_of_the_grpo_loss_have_no_effect_at_weight_0():
    """A variant that changes them would be a copy of its parent."""
    idle = DebiasConfig().without_effect()
    assert set(idle) == {f"grpo.{name}" for name in Grpo.model_fields} - {"grpo.weight"}
    assert part_names(DebiasConfig(grpo=Grpo(reward="balanced")), "train") == part_names(DebiasConfig(), "train") == {}
    assert DebiasConfig(grpo=Grpo(weight=0.1)).without_effect() == {}


def test_the_curriculum_is_a_part_of_variants_that_have_one_and_of_no_others():
    rewarded = {"grpo": {"weight": 0.1}}
    adaptive = {"mode": "adaptive", "thresholds": [0.02, 0.05], "alphas": [0, 1, 2]}
    found = [part_names(DebiasConfig(**rewarded, **more), "train") for more in ({}, {"rcs": adaptive})]
    assert found[1].keys() - found[0].keys() == {"rcs_alpha", "rcs_weight"}
    assert found[0].items() <= found[1].items()

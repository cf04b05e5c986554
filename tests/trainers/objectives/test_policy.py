"""Objectives of policy optimisation: values by hand, gradients, invariances, and the equalities between variants.

What verl, TRL and the notes define as well is compared with them in tests/trainers/policy (test_published.py and
test_sources.py), and not computed here once more.
"""

import math
from functools import partial
from typing import Any

import pytest
import torch

from trainers.objectives.amic import amic, arithmetic_ratio
from trainers.objectives.asymmetric_clip_surrogate import asymmetric_clip_surrogate
from trainers.objectives.batch_normalized_advantages import batch_normalized_advantages
from trainers.objectives.clip_surrogate import clip_surrogate
from trainers.objectives.ema_smoothing import ema_smoothing
from trainers.objectives.gradient_adaptive import gradient_adaptive_weights
from trainers.objectives.gspo_ratio import gspo_ratio
from trainers.objectives.gspo_token_ratio import gspo_token_ratio
from trainers.objectives.normalized_advantages import normalized_advantages
from trainers.objectives.overlong_penalty import overlong_penalty
from trainers.objectives.policy import adapt_coefficient, aggregate, decayed_sum, k3, masked_mean
from trainers.objectives.ptrw_surrogate import ptrw_surrogate
from trainers.objectives.relative_advantages import relative_advantages
from trainers.objectives.temporal_decay import temporal_decay_weights
from trainers.objectives.token_ratio import token_ratio
from trainers.policy.grpo import Objective

CLIP = partial(clip_surrogate, clip_low=0.2, clip_high=0.2)
UNCLIPPED = partial(clip_surrogate, clip_low=1e9, clip_high=1e9)
EXACT = {"rtol": 0, "atol": 1e-12}


def mean_ratio(ratio, mask):
    return arithmetic_ratio(ratio, mask), {}


TOKEN = {"ratio": token_ratio, "surrogate": CLIP}
PTRW = partial(ptrw_surrogate, sigma=0.2)
ATTENTION = partial(gradient_adaptive_weights, temperature=1.0)
DECAY = partial(temporal_decay_weights, gamma=0.95, normalize="mean")
# Every variant of both studies, as fields of Objective.
VARIANTS = {
    "grpo": TOKEN,
    "gspo": TOKEN | {"ratio": gspo_ratio},
    "gspo_token": TOKEN | {"ratio": gspo_token_ratio},
    "amic": TOKEN | {"sequence_ratio": amic},
    "ema": TOKEN | {"ema_smoothing": partial(ema_smoothing, beta=0.9)},
    "gradient_adaptive": TOKEN | {"gradient_adaptive": ATTENTION},
    "temporal": TOKEN | {"temporal_decay": DECAY},
    "ptrw": TOKEN | {"surrogate": PTRW, "sequence_ratio": mean_ratio},
    "asymmetric": TOKEN | {"surrogate": partial(asymmetric_clip_surrogate, pos=0.3, neg=0.1)},
    "dapo": TOKEN | {"surrogate": partial(clip_surrogate, clip_low=0.2, clip_high=0.28), "aggregation": "token_mean"},
    "aggressive": TOKEN | {"surrogate": PTRW, "sequence_ratio": amic, "gradient_adaptive": ATTENTION},
}


@pytest.fixture
def batch():
    """Six responses of 1 to 7 tokens, ratios far enough from 1 to be clipped on either side."""
    generator = torch.Generator().manual_seed(3)
    lengths = torch.tensor([7, 3, 1, 5, 7, 2])
    mask = (torch.arange(7) < lengths[:, None]).double()
    logps = -torch.rand(6, 7, generator=generator, dtype=torch.float64) * 2 - 0.05
    old_logps = logps + 0.3 * torch.randn(6, 7, generator=generator, dtype=torch.float64)
    advantages = torch.tensor([1.0, -1.0, 0.5, -0.3, 2.0, -2.0], dtype=torch.float64)
    return logps, old_logps, advantages, mask


def loss_and_gradient(batch, logps=None, *, denominator=None, **settings):
    logps = (batch[0] if logps is None else logps).clone().requires_grad_()
    loss, diagnostics = Objective(**settings)(logps, *batch[1:], denominator=denominator)
    loss.backward()
    return loss.detach(), logps.grad, {name: statistic.value() for name, statistic in diagnostics.items()}


def assert_same(batch, first, second, tolerance=1e-6):
    (loss_a, grad_a, _), (loss_b, grad_b, _) = loss_and_gradient(batch, **first), loss_and_gradient(batch, **second)
    torch.testing.assert_close(loss_a, loss_b, rtol=0, atol=tolerance)
    torch.testing.assert_close(grad_a, grad_b, rtol=0, atol=tolerance)


# --- advantages -------------------------------------------------------------------------------------------------


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
    with pytest.raises(ValueError, match="group_size 1 is too small"):
        normalized_advantages(torch.ones(2), 1)


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


# --- ratios -----------------------------------------------------------------------------------------------------


def test_gspo_token_is_gspo_with_one_advantage_per_response_and_not_otherwise(batch):
    assert_same(batch, VARIANTS["gspo"], VARIANTS["gspo_token"], 1e-12)
    weights = {"temporal_decay": partial(temporal_decay_weights, gamma=0.5, normalize="mean")}
    gspo = loss_and_gradient(batch, **VARIANTS["gspo"], **weights)[1]
    token = loss_and_gradient(batch, **VARIANTS["gspo_token"], **weights)[1]
    assert not torch.allclose(gspo, token, atol=1e-3)


# --- equalities between a variant and its baseline --------------------------------------------------------------


@pytest.mark.parametrize(
    ("variant", "baseline"),
    [
        ({"ema_smoothing": partial(ema_smoothing, beta=1.0)}, {}),
        ({"temporal_decay": partial(temporal_decay_weights, gamma=1.0, normalize="mean")}, {}),
        ({"temporal_decay": partial(temporal_decay_weights, gamma=1.0, normalize="none")}, {}),
        ({"gradient_adaptive": partial(gradient_adaptive_weights, temperature=1e9)}, {}),
        ({"surrogate": partial(asymmetric_clip_surrogate, pos=0.2, neg=0.2)}, {}),
        (
            {"surrogate": partial(ptrw_surrogate, sigma=1e9), "sequence_ratio": mean_ratio},
            {"surrogate": UNCLIPPED, "sequence_ratio": mean_ratio},
        ),
        (
            {"surrogate": partial(ptrw_surrogate, sigma=1e9, detach_weight=True), "sequence_ratio": mean_ratio},
            {"surrogate": UNCLIPPED, "sequence_ratio": mean_ratio},
        ),
    ],
    ids=["ema", "temporal", "temporal-raw", "gradient", "asymmetric", "ptrw", "ptrw-detached"],
)
@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean"])
def test_limit_equals_baseline(batch, variant, baseline, aggregation):
    grpo = {**VARIANTS["grpo"], "aggregation": aggregation}
    assert_same(batch, {**grpo, **variant}, {**grpo, **baseline})


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in ("grpo", "gspo_token")])
def test_a_variant_differs_from_its_baseline(batch, name):
    """The equalities above would hold for a variant that does nothing."""
    assert not torch.allclose(
        loss_and_gradient(batch, **VARIANTS[name])[1], loss_and_gradient(batch, **VARIANTS["grpo"])[1], atol=1e-3
    )


@pytest.mark.parametrize("name", VARIANTS)
def test_on_policy_gradient_is_the_plain_policy_gradient(batch, name):
    """w = 1: the gradient of every variant is that of -A log pi, weighted where the variant weights tokens."""
    logps, _, advantages, mask = batch
    on_policy = (logps, logps.clone(), advantages, mask)
    settings: Any = VARIANTS[name]
    leaf = logps.clone().requires_grad_()
    weights = torch.ones_like(mask)
    for weigh in filter(None, (settings.get(name) for name in ("gradient_adaptive", "temporal_decay"))):
        weights = weights * weigh(logps, mask)[0]
    if name == "ema":  # w'_t moves with every earlier token: column j gets beta sum_{t >= j} (1 - beta)^(t - j), ...
        weights = torch.zeros_like(mask)
        for row, length in enumerate(mask.sum(1).long().tolist()):
            for j in range(length):
                own = 1.0 if j == 0 else 0.9
                weights[row, j] = own * sum(0.1 ** (t - j) for t in range(j, length))
    aggregate(-weights * advantages[:, None] * leaf, mask, settings.get("aggregation", "sequence_mean")).backward()
    _, gradient, _ = loss_and_gradient(on_policy, **settings)
    torch.testing.assert_close(gradient, leaf.grad, rtol=0, atol=1e-12)


# --- signs, masks, parts ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", VARIANTS)
def test_padding_has_no_effect_and_no_gradient(batch, name):
    logps, old_logps, advantages, mask = batch
    loss, gradient, diagnostics = loss_and_gradient(batch, **VARIANTS[name])
    noise = 10 * (1 - mask) * torch.randn(6, 7, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    other_loss, other_gradient, other_diagnostics = loss_and_gradient(
        (logps - noise.abs(), old_logps - 2 * noise.abs(), advantages, mask), **VARIANTS[name]
    )
    torch.testing.assert_close(other_loss, loss, **EXACT)
    torch.testing.assert_close(other_gradient, gradient, **EXACT)
    assert (gradient[mask == 0] == 0).all()
    for key, value in diagnostics.items():
        torch.testing.assert_close(other_diagnostics[key], value, rtol=0, atol=1e-12, equal_nan=True, msg=key)


# --- surrogates -------------------------------------------------------------------------------------------------


def surrogate_at(surrogate, ratio, advantage):
    ratio = torch.tensor([[ratio]], dtype=torch.float64, requires_grad=True)
    loss, _ = surrogate(ratio, torch.tensor([[advantage]], dtype=torch.float64), torch.ones(1, 1))
    loss.sum().backward()
    return loss.item(), ratio.grad.item()


def test_ptrw_by_hand():
    trust = math.exp(-0.5)  # one sigma away
    loss, slope = surrogate_at(partial(ptrw_surrogate, sigma=0.2), 1.2, 2.0)
    assert loss == pytest.approx(-trust * 1.2 * 2)
    assert slope == pytest.approx(-2 * trust * (1 - 1.2 * 0.2 / 0.04))  # the product rule: it pulls back, slope > 0
    assert slope > 0
    assert surrogate_at(partial(ptrw_surrogate, sigma=0.2, detach_weight=True), 1.2, 2.0)[1] == pytest.approx(
        -2 * trust
    )


# --- diagnostics, KL, entropy, value, penalties -----------------------------------------------------------------


def test_variance_reduction_by_hand():
    ratio = torch.tensor([[1.0, 3.0]], dtype=torch.float64)
    _, diagnostics = ema_smoothing(ratio, torch.ones(1, 2), beta=0.75)  # w' = 1, 2.5
    assert diagnostics["ema/raw_weights_variance"].value() == 1.0
    assert diagnostics["ema/smoothed_weights_variance"].value() == 0.75**2
    assert diagnostics["ema/variance_reduction_ratio"].value() == 1 - 0.75**2
    _, diagnostics = ema_smoothing(torch.ones(1, 2), torch.ones(1, 2), beta=0.75)
    assert diagnostics["ema/variance_reduction_ratio"].value() is None


def test_k3_is_exact_for_the_full_distribution():
    """Its mean under the policy is the KL divergence: sum_v p_v (q_v / p_v - log(q_v / p_v) - 1) = KL(p || q)."""
    p, q = torch.tensor([0.7, 0.2, 0.1]), torch.tensor([0.1, 0.6, 0.3])
    assert (p * k3(p.log(), q.log())).sum().item() == pytest.approx((p * (p / q).log()).sum().item())
    assert k3(p.log(), p.log()).abs().max() == 0


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

"""The objectives against the definitions of verl 0.9.1 and TRL 1.16, written down here again, on random tensors.

verl: verl/trainer/ppo/core_algos.py (compute_policy_loss_vanilla, compute_policy_loss_gspo, agg_loss,
compute_grpo_outcome_advantage, compute_gae_advantage_return, compute_value_loss, kl_penalty). TRL:
trl/trainer/grpo_trainer.py (_compute_loss, _generate_and_score_completions). TRL 1.16 has no
GSPO-token: `sequence_token` below is arXiv 2507.18071, equation 14.
"""

import math
from functools import partial

import pytest
import torch

from tests.trainers.policy.helpers import random_batch
from trainers.objectives.clip_surrogate import clip_surrogate
from trainers.objectives.gspo_ratio import gspo_ratio
from trainers.objectives.gspo_token_ratio import gspo_token_ratio
from trainers.objectives.normalized_advantages import normalized_advantages
from trainers.objectives.policy import ESTIMATORS
from trainers.objectives.ppo import gae, value_loss, whiten
from trainers.objectives.token_ratio import token_ratio
from trainers.policy.grpo import Objective


@pytest.fixture(params=range(4))
def tensors(request):
    return random_batch(request.param)


def compare(tensors, published, **settings):
    logps, old, advantages, mask = tensors
    ours, theirs = logps.clone().requires_grad_(), logps.clone().requires_grad_()
    loss, _ = Objective(**settings)(ours, old, advantages, mask)
    expected = published(theirs, old, advantages[:, None], mask)
    torch.testing.assert_close(loss, expected, rtol=1e-7, atol=1e-7)  # verl adds 1e-8 to lengths
    loss.backward()
    expected.backward()
    torch.testing.assert_close(ours.grad, theirs.grad, rtol=1e-6, atol=1e-9)


def verl_vanilla(logps, old, advantages, mask, *, low, high, dual, mode):
    ratio = torch.exp(torch.clamp(logps - old, min=-20.0, max=20.0))
    first, second = -advantages * ratio, -advantages * torch.clamp(ratio, 1 - low, 1 + high)
    upper = torch.maximum(first, second)
    losses = torch.where(advantages < 0, torch.min(-advantages * dual, upper), upper)
    if mode == "token-mean":
        return (losses * mask).sum() / mask.sum()
    return ((losses * mask).sum(-1) / (mask.sum(-1) + 1e-8)).mean()


@pytest.mark.parametrize(
    ("mode", "aggregation"), [("token-mean", "token_mean"), ("seq-mean-token-mean", "sequence_mean")]
)
@pytest.mark.parametrize("high", [0.2, 0.28])
def test_verl_vanilla(tensors, mode, aggregation, high):
    compare(
        tensors,
        partial(verl_vanilla, low=0.2, high=high, dual=3.0, mode=mode),
        ratio=token_ratio,
        surrogate=partial(clip_surrogate, clip_low=0.2, clip_high=high, dual=3.0),
        aggregation=aggregation,
    )


def verl_gspo(logps, old, advantages, mask):
    length = mask.sum(-1).clamp(min=1)
    sequence = ((logps - old) * mask).sum(-1) / length
    ratio = torch.exp(torch.clamp(logps - logps.detach() + sequence.detach().unsqueeze(-1), max=10.0))
    losses = torch.maximum(-advantages * ratio, -advantages * torch.clamp(ratio, 0.9, 1.1))
    return ((losses * mask).sum(-1) / (mask.sum(-1) + 1e-8)).mean()


@pytest.mark.parametrize("ratio", [gspo_ratio, gspo_token_ratio])
def test_verl_gspo(tensors, ratio):
    compare(tensors, verl_gspo, ratio=ratio, surrogate=partial(clip_surrogate, clip_low=0.1, clip_high=0.1))


@pytest.mark.parametrize("ratio", [gspo_ratio, gspo_token_ratio])
def test_verl_bounds_the_sequence_ratio(tensors, ratio):
    """Log ratios of about 12 and -12: they stop at 10, where there is no gradient, and have no lower bound."""
    logps, old, advantages, mask = tensors
    for shift, bounded in ((12.0, True), (-12.0, False)):
        far = (logps, old - shift, -advantages.abs(), mask)
        settings = {"ratio": ratio, "surrogate": partial(clip_surrogate, clip_low=0.1, clip_high=0.1)}
        compare(far, verl_gspo, **settings)
        largest = ratio(logps, old - shift, mask)[mask.bool()].max()
        assert (largest == math.exp(10)) == bounded


def trl_grpo(logps, old, advantages, mask, *, level, loss_type, delta=None):
    log_ratio = logps - old
    if level == "sequence":
        log_ratio = ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).unsqueeze(-1)
    elif level == "sequence_token":
        sequence = ((log_ratio * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).detach().unsqueeze(-1)
        log_ratio = logps - logps.detach() + sequence
    coef_1 = torch.exp(log_ratio)
    coef_2 = torch.clamp(coef_1, 0.8, 1.28)
    if delta is not None:
        coef_1 = torch.clamp(coef_1, max=delta)
    losses = -torch.min(coef_1 * advantages, coef_2 * advantages)
    if loss_type == "grpo":
        return ((losses * mask).sum(-1) / mask.sum(-1).clamp(min=1.0)).mean()
    return (losses * mask).sum() / mask.sum().clamp(min=1.0)  # bnpo; dapo with one process


@pytest.mark.parametrize(
    ("level", "module"), [("token", token_ratio), ("sequence", gspo_ratio), ("sequence_token", gspo_token_ratio)]
)
@pytest.mark.parametrize(("loss_type", "aggregation"), [("grpo", "sequence_mean"), ("bnpo", "token_mean")])
def test_trl_grpo(tensors, level, module, loss_type, aggregation):
    compare(
        tensors,
        partial(trl_grpo, level=level, loss_type=loss_type),
        ratio=module,
        surrogate=partial(clip_surrogate, clip_low=0.2, clip_high=0.28),
        aggregation=aggregation,
    )


def test_trl_delta_is_the_dual_clip(tensors):
    logps, old, advantages, mask = tensors
    far = (logps, old - 1.0, advantages, mask)  # ratios around e, on either side of 2
    compare(
        far,
        partial(trl_grpo, level="token", loss_type="grpo", delta=2.0),
        ratio=token_ratio,
        surrogate=partial(clip_surrogate, clip_low=0.2, clip_high=0.28, dual=2.0),
    )


@pytest.mark.parametrize("epsilon", [1e-8, 1e-6, 1e-4])
def test_group_normalisation(epsilon):
    """verl (1e-6) and TRL (1e-4) divide by the sample standard deviation of the group plus their epsilon."""
    rewards = torch.randn(24, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    groups = rewards.view(4, 6)
    expected = (groups - groups.mean(1, keepdim=True)) / (groups.std(1, keepdim=True) + epsilon)
    torch.testing.assert_close(normalized_advantages(rewards, 6, epsilon), expected.flatten())


def test_verl_gae(tensors):
    values, rewards, _, mask = tensors
    rewards = rewards * mask
    last = next_values = 0
    reversed_advantages = []
    for t in reversed(range(12)):
        delta = rewards[:, t] + 0.97 * next_values - values[:, t]
        candidate = delta + 0.97 * 0.9 * last
        next_values = values[:, t] * mask[:, t] + (1 - mask[:, t]) * next_values
        last = candidate * mask[:, t] + (1 - mask[:, t]) * last
        reversed_advantages.append(last)
    expected = torch.stack(reversed_advantages[::-1], dim=1)
    chosen = expected[mask.bool()]
    white = (chosen - chosen.mean()) * torch.rsqrt(chosen.var() + 1e-8)
    advantages, returns = gae(rewards, values, mask, gamma=0.97, lam=0.9)
    torch.testing.assert_close(advantages[mask.bool()], chosen)
    torch.testing.assert_close(returns[mask.bool()], (expected + values)[mask.bool()])
    assert (advantages[mask == 0] == 0).all()
    assert (returns[mask == 0] == 0).all()
    torch.testing.assert_close(whiten(advantages, mask)[mask.bool()], white)


def test_verl_value_loss(tensors):
    returns, old_values, _, mask = tensors
    values = old_values + 0.7 * torch.randn(8, 12, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    bounded = torch.clamp(values, old_values - 0.5, old_values + 0.5)
    squares = torch.max((values - returns) ** 2, (bounded - returns) ** 2)
    expected = 0.5 * (squares * mask).sum() / mask.sum()
    torch.testing.assert_close(value_loss(values, old_values, returns, mask, clip=0.5)[0], expected)


@pytest.mark.parametrize("name", ["k1", "k3"])
def test_estimators_are_verls_and_trls(tensors, name):
    """verl's `low_var_kl` without its bound at 10; TRL's with `use_bias_correction_kl` false.

    TRL's default multiplies k3 by the ratio: another gradient, on policy too.
    """
    logps, reference, _, _ = tensors
    ours, theirs = logps.clone().requires_grad_(), logps.clone().requires_grad_()
    difference = reference - theirs
    expected = -difference if name == "k1" else torch.exp(difference) - difference - 1
    found = ESTIMATORS[name](ours, reference)
    torch.testing.assert_close(found, expected)
    (gradient,) = torch.autograd.grad(found.sum(), ours)
    torch.testing.assert_close(gradient, *torch.autograd.grad(expected.sum(), theirs, retain_graph=True))
    corrected = (expected * (theirs - logps).exp()).sum()  # on policy: the ratio is 1
    assert not torch.allclose(gradient, *torch.autograd.grad(corrected, theirs), atol=1e-3)

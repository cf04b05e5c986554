"""The GSPO notes' own formulas, transcribed, beside the variants that compute them."""

from functools import partial

import pytest
import torch

from trainers.objectives.clip_surrogate import clip_surrogate
from trainers.objectives.entropy import token_entropy
from trainers.objectives.gspo_ratio import gspo_ratio
from trainers.objectives.kl import ESTIMATORS
from trainers.objectives.product_ratio import product_ratio
from trainers.policy.grpo import Objective

CLIP = partial(clip_surrogate, low=0.2, high=0.2)


@pytest.fixture
def tensors():
    generator = torch.Generator().manual_seed(0)
    lengths = torch.tensor([7, 1, 5, 3, 6, 2])
    mask = (torch.arange(7) < lengths[:, None]).double()
    old = -torch.rand(6, 7, generator=generator, dtype=torch.float64) * mask
    logps = (old + 0.1 * torch.randn(6, 7, generator=generator, dtype=torch.float64)) * mask
    advantages = torch.randn(6, generator=generator, dtype=torch.float64)
    return logps.requires_grad_(True), old, advantages, mask


def gradient(loss, logps):
    return torch.autograd.grad(loss, logps, retain_graph=True)[0]


def source_sequence_level(logps, old, advantages, mask):
    """`compute_policy_loss_sequence_level` on one log-probability per response, the sum over its tokens."""
    ratio = torch.exp((logps * mask).sum(1) - (old * mask).sum(1))
    return -torch.min(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages).mean()


def test_the_product_of_token_ratios_is_the_sources_sequence_loss(tensors):
    logps, old, _, mask = tensors
    ours, _ = Objective(ratio=product_ratio, surrogate=CLIP)(*tensors)
    theirs = source_sequence_level(*tensors)
    assert ours.item() == pytest.approx(theirs.item(), abs=1e-12)
    torch.testing.assert_close(gradient(ours, logps), gradient(theirs, logps), rtol=0, atol=1e-12)
    # The paper's ratio is its L-th root.
    product, root = (r(logps, old, mask)[:, 0] for r in (product_ratio, gspo_ratio))
    torch.testing.assert_close(root ** mask.sum(1), product)
    assert product.var() > root.var()


def test_only_what_is_called_a_bonus_or_a_penalty_has_a_gradient_in_the_mean():
    """Over all 3^4 responses of a policy: `-log_probs.mean()` and k1 in the loss of RL_HAND/gspo/gspo.py have none."""
    generator = torch.Generator().manual_seed(0)
    logits, other = (torch.randn(4, 3, generator=generator, dtype=torch.float64) for _ in range(2))
    logits.requires_grad_(True)
    policy, reference = logits.log_softmax(-1), other.log_softmax(-1)
    responses = torch.cartesian_prod(*[torch.arange(3)] * 4)
    logps, known = (each[torch.arange(4), responses] for each in (policy, reference))
    chances = logps.sum(1).exp().detach()  # drawn by the policy, as in a training
    expected = {name: (chances * kl(logps, known).sum(1)).sum() for name, kl in ESTIMATORS.items()}
    expected["source entropy"] = -(chances * logps.sum(1)).sum()
    expected["entropy"] = token_entropy(logits).sum()
    size = {name: gradient(value, logits).norm().item() for name, value in expected.items()}
    assert max(size["k1"], size["source entropy"]) < 1e-12
    assert min(size["k3"], size["entropy"]) > 0.1

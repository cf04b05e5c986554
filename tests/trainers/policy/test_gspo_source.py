"""The GSPO notes' own formulas, transcribed, beside the variants that compute them."""

from functools import partial

import pytest
import torch

from tests.trainers.policy.helpers import SMALL, stage
from trainers.objectives.clip_surrogate import clip_surrogate
from trainers.objectives.entropy import token_entropy
from trainers.objectives.gspo_ratio import gspo_ratio
from trainers.objectives.kl import ESTIMATORS
from trainers.objectives.product_ratio import product_ratio
from trainers.policy import evaluate
from trainers.policy.build import build
from trainers.policy.config import PolicyConfig, Sampling
from trainers.policy.grpo import Objective, sample_rollout

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


def test_a_product_over_a_long_response_neither_overflows_nor_vanishes():
    old = torch.zeros(2, 500)
    logps = torch.stack([torch.full((500,), 1.0), torch.full((500,), -1.0)])
    ratio = product_ratio(logps, old, torch.ones(2, 500))
    torch.testing.assert_close(ratio[:, 0], torch.tensor([20.0, -20.0]).exp())


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


def test_training_at_another_temperature_is_measured_at_the_same_one(prepared, tmp_path):
    tables = {}
    for temperature in (0.3, 1.0):
        config = PolicyConfig(**{**SMALL, "sampling": Sampling(max_new_tokens=20, temperature=temperature)})
        inputs = {**prepared, "policy": prepared["warm_start"]}
        made = stage(tmp_path / str(temperature), config, inputs, 0)
        evaluate.run(made)
        made.metrics.close()
        tables[temperature] = (tmp_path / str(temperature) / "metrics.parquet").read_bytes()
        run = build(stage(tmp_path / f"train {temperature}", config, inputs, 0))
        tables[f"train {temperature}"] = sample_rollout(run).sequences.logps.sum().item()
    assert tables[0.3] == tables[1.0]
    assert tables["train 0.3"] != tables["train 1.0"]

"""The formulas of the innovations notes and the GSPO notes, transcribed token by token, beside our variants."""

import math
from functools import partial

import pytest
import torch

from tests.trainers.policy.helpers import objective_of, random_batch
from trainers.objectives.asymmetric_clip_surrogate import asymmetric_clip_surrogate
from trainers.objectives.gspo_ratio import gspo_ratio
from trainers.objectives.policy import ESTIMATORS
from trainers.objectives.product_ratio import product_ratio
from trainers.objectives.temporal_decay import temporal_decay_weights
from trainers.policy.config import PolicyConfig
from trainers.policy.learner import token_entropy

EXACT = {"rtol": 0, "atol": 1e-12}


@pytest.fixture(params=range(3))
def batch(request):
    """Eight responses of 1 to 12 tokens, far enough from the old policy to be clipped on either side."""
    return random_batch(request.param)


def ours(batch, **config):
    """The objective that a variant's configuration builds: loss and gradient."""
    logps = batch[0].clone().requires_grad_()
    loss, _ = objective_of(PolicyConfig(**config))(logps, *batch[1:])
    loss.backward()
    return loss.detach(), logps.grad


def source(batch, *, smooth=None, attention=None, mean=False, decay=None, scale="mean", on="ratio", end="clip"):
    """`compute_policy_loss_with_innovations` of Verl_RL at e71caa9, one response after the other: everything multiplies
    the ratio, then `end`. Later commits have other `scale` (sum at 05d00dc, none at ca97411 and from 604908a on) and
    `decay` (0404caa). The notes have weights that multiply the advantage (`on`), and one form of `end` for each.
    """
    leaf = batch[0].clone().requires_grad_()
    losses = []
    for logp, old, advantage, keep in zip(leaf, *batch[1:], strict=True):
        length = int(keep.sum())
        ratios = [(logp[t] - old[t]).exp() for t in range(length)]
        if smooth is not None:
            for t in range(1, length):
                ratios[t] = smooth * ratios[t] + (1 - smooth) * ratios[t - 1]
        if mean:
            ratios = [sum(ratios) / length] * length
        weights = [1.0] * length
        if attention is not None:
            scores = [math.exp(abs(logp[t].item()) / attention) for t in range(length)]
            weights = [length * score / sum(scores) for score in scores]
        if decay is not None:
            decays = [decay(t, length) for t in range(length)]
            total = {"mean": sum(decays) / length, "sum": sum(decays), "none": 1.0}[scale]
            weights = [weight * each / total for weight, each in zip(weights, decays, strict=True)]
        advantages = [advantage * (weight if on == "advantage" else 1.0) for weight in weights]
        if on == "ratio":
            ratios = [ratio * weight for ratio, weight in zip(ratios, weights, strict=True)]
        if end == "clip":
            parts = [torch.max(-r * a, -r.clamp(0.8, 1.2) * a) for r, a in zip(ratios, advantages, strict=True)]
            losses.append(sum(parts) / length)
            continue
        s = sum(ratios) / length
        if end.startswith("ptrw"):
            trust = torch.exp(-((s - 1) ** 2) / (2 * 0.2**2))
            losses.append(-(trust.detach() if end == "ptrw detached" else trust) * s * advantage)
        else:
            width = 0.3 if advantage > 0 else 0.1
            losses.append(-s.clamp(1 - width, 1 + width) * advantage)
    loss = sum(losses) / len(losses)
    loss.backward()
    return loss.detach(), leaf.grad


def power(t, _):
    return 0.95**t


def lspd(t, length):
    return 1.0 if length == 1 else math.exp(-2.0 * math.log(1 + t / 10.0) / math.log(1 + (length - 1) / 10.0))


ALL = {"ema_smoothing": {}, "gradient_adaptive": {}, "temporal_decay": {}, "weight_on": "ratio"}
CASES = {
    "2.1": ({"ema_smoothing": {"beta": 0.9}}, {"smooth": 0.9}),
    "2.1-0.5": ({"ema_smoothing": {"beta": 0.5}}, {"smooth": 0.5}),
    "2.2": ({"gradient_adaptive": {}, "weight_on": "ratio"}, {"attention": 1.0}),
    "2.2 on the advantage": ({"gradient_adaptive": {}}, {"attention": 1.0, "on": "advantage"}),
    "2.3": ({"amic": True}, {"mean": True}),
    "2.1 + 2.3": ({"ema_smoothing": {"beta": 0.7}, "amic": True}, {"smooth": 0.7, "mean": True}),
    "2.4": ({"surrogate": {"kind": "ptrw", "sigma": 0.2}}, {"end": "ptrw"}),
    "2.4-detached": ({"surrogate": {"kind": "ptrw", "sigma": 0.2, "detach_weight": True}}, {"end": "ptrw detached"}),
    "2.5 on the advantage": ({"temporal_decay": {}}, {"decay": power, "on": "advantage"}),
    "2.5": ({"temporal_decay": {}, "weight_on": "ratio"}, {"decay": power}),
    "2.5-sum": ({"temporal_decay": {"normalize": "sum"}, "weight_on": "ratio"}, {"decay": power, "scale": "sum"}),
    "2.5-lspd": (
        {"temporal_decay": {"normalize": "sum", "lspd": {}}, "weight_on": "ratio"},
        {"decay": lspd, "scale": "sum"},
    ),
    "2.5-none": ({"temporal_decay": {"normalize": "none"}, "weight_on": "ratio"}, {"decay": power, "scale": "none"}),
    "2.5-lspd-none": (
        {"temporal_decay": {"normalize": "none", "lspd": {}}, "weight_on": "ratio"},
        {"decay": lspd, "scale": "none"},
    ),
    "2.6": ({"surrogate": {"kind": "asymmetric_clip", "pessimistic": False}, "amic": True}, {"end": "asymmetric"}),
    "conservative": (
        {"ema_smoothing": {}, "temporal_decay": {}, "weight_on": "ratio"},
        {"smooth": 0.9, "decay": power},
    ),
    # the mean of the weights is 1, so that 2.2 cancels: what is left is 2.4
    "aggressive": ({"surrogate": {"kind": "ptrw", "sigma": 0.2}}, {"attention": 1.0, "mean": True, "end": "ptrw"}),
    "balanced": (
        {
            "ema_smoothing": {},
            "gradient_adaptive": {},
            "surrogate": {"kind": "asymmetric_clip", "pessimistic": False},
            "weight_on": "response_ratio",
        },
        {"smooth": 0.9, "attention": 1.0, "end": "asymmetric"},
    ),
    "all-compatible": (
        ALL | {"amic": True, "surrogate": {"kind": "ptrw", "sigma": 0.2}, "weight_on": "response_ratio"},
        {"smooth": 0.9, "attention": 1.0, "mean": True, "decay": power, "end": "ptrw"},
    ),
    "all": (ALL, {"smooth": 0.9, "attention": 1.0, "decay": power}),
}


@pytest.mark.parametrize("name", CASES)
def test_the_sources_form(batch, name):
    config, formula = CASES[name]
    for found, expected in zip(ours(batch, **config), source(batch, **formula), strict=True):
        torch.testing.assert_close(found, expected, **EXACT)


def test_the_product_of_token_ratios_is_the_gspo_notes_sequence_loss(batch):
    """`compute_policy_loss_sequence_level` on one log-probability per response, the sum over its tokens."""
    logps, old, advantages, mask = batch
    leaf = logps.clone().requires_grad_()
    ratio = ((leaf - old) * mask).sum(1).exp()
    loss = -torch.min(ratio * advantages, torch.clamp(ratio, 0.8, 1.2) * advantages).mean()
    loss.backward()
    for found, expected in zip(ours(batch, ratio="product"), (loss.detach(), leaf.grad), strict=True):
        torch.testing.assert_close(found, expected, **EXACT)
    # The paper's ratio is its L-th root.
    product, root = (r(logps, old, mask)[:, 0] for r in (product_ratio, gspo_ratio))
    torch.testing.assert_close(root ** mask.sum(1), product)


# --- 2.1: what smoothing does to the variance ---------------------------------------------------------------------


def test_beta_of_one_changes_no_bit(batch):
    assert all(
        torch.equal(smoothed, plain)
        for smoothed, plain in zip(ours(batch, ema_smoothing={"beta": 1.0}), ours(batch), strict=True)
    )


# --- 2.5 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("normalize", ["mean", "sum", "none"])
def test_weight_sum_is_that_of_the_weights_before_they_are_normalised(normalize):
    """Lengths 3 and 1 at gamma 0.5: sums 1 + 0.5 + 0.25 and 1."""
    mask = torch.tensor([[1, 1, 1], [1, 0, 0]])
    weights, found = temporal_decay_weights(torch.zeros(2, 3), mask, gamma=0.5, normalize=normalize)
    assert found["temporal_decay/weight_sum"].value() == (1.75 + 1) / 2
    scale = {"mean": [3 / 1.75, 1.0], "sum": [1 / 1.75, 1.0], "none": [1.0, 1.0]}[normalize]
    assert weights[0].tolist() == pytest.approx([scale[0], scale[0] / 2, scale[0] / 4])
    assert weights[1].tolist() == [scale[1], 0.0, 0.0]
    assert found["temporal_decay/first_weight"].value().item() == pytest.approx(sum(scale) / 2)
    assert found["temporal_decay/last_weight"].value().item() == pytest.approx((scale[0] / 4 + scale[1]) / 2)


def test_weights_of_sum_one_on_the_ratio_teach_from_right_responses_only():
    """Ratios of about 1/L lie below every clip range: with A < 0 the bound decides, and the gradient is exactly 0."""
    logps = torch.full((2, 10), -1.0, dtype=torch.float64)
    batch = (logps, logps, torch.tensor([1.0, -1.0], dtype=torch.float64), torch.ones_like(logps))
    _, gradient = ours(batch, temporal_decay={"normalize": "sum"}, weight_on="ratio")
    assert (gradient[0] < 0).all()
    assert (gradient[1] == 0).all()
    _, gradient = ours(batch, temporal_decay={"normalize": "sum"})  # on the advantage both teach
    assert (gradient[1] > 0).all()


# --- 2.6 ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean"])
def test_asymmetric_ranges_on_token_ratios_are_clip_higher(batch, aggregation):
    """The pessimistic minimum uses the upper bound where A > 0 and the lower one where A < 0, and no other."""
    update = {"aggregation": aggregation}
    asymmetric = ours(batch, surrogate={"kind": "asymmetric_clip", "pos": 0.3, "neg": 0.1}, update=update)
    higher = ours(batch, surrogate={"kind": "clip", "clip_low": 0.1, "clip_high": 0.3}, update=update)
    assert all(torch.equal(found, expected) for found, expected in zip(asymmetric, higher, strict=True))


def test_without_the_minimum_a_clipped_ratio_gives_no_gradient_on_either_side():
    surrogate = partial(asymmetric_clip_surrogate, pos=0.3, neg=0.1, pessimistic=False)
    for ratio, advantage, expected, slope in [
        (1.2, 1.0, -1.2, -1.0),
        (1.5, 1.0, -1.3, 0.0),
        (0.5, 1.0, -0.7, 0.0),  # the minimum would pull it up: -0.5, slope -1
        (1.05, -1.0, 1.05, 1.0),
        (1.5, -1.0, 1.1, 0.0),  # the minimum would push it down: 1.5, slope 1
        (0.5, -1.0, 0.9, 0.0),
    ]:
        w = torch.tensor([[ratio]], dtype=torch.float64, requires_grad=True)
        loss, found = surrogate(w, torch.tensor([[advantage]], dtype=torch.float64), torch.ones(1, 1))
        loss.sum().backward()
        assert (loss.item(), w.grad.item()) == pytest.approx((expected, slope), abs=1e-15)
        assert found["policy/clip_fraction"].value().item() == float(slope == 0)


@pytest.mark.parametrize("pessimistic", [True, False])
def test_a_ratio_without_advantage_is_not_clipped(pessimistic):
    ratio, advantages = torch.tensor([[5.0, 5.0]]), torch.tensor([[0.0, 1.0]])
    found = asymmetric_clip_surrogate(ratio, advantages, torch.ones(1, 2), pos=0.3, neg=0.1, pessimistic=pessimistic)[1]
    assert found["policy/clip_fraction"].value() == 0.5


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
    size = {
        name: torch.autograd.grad(value, logits, retain_graph=True)[0].norm().item() for name, value in expected.items()
    }
    assert max(size["k1"], size["source entropy"]) < 1e-12
    assert min(size["k3"], size["entropy"]) > 0.1

"""What is reported of an update does not depend on its micro-batches; parts of a statistic join to the whole."""

import math

import pytest
import torch

from tests.trainers.policy.helpers import CPU, TINY, actor, sampled_batch
from trainers.objectives.policy import Averages, Maximum, Mean, Reduction, Sum, Variance
from trainers.policy import ppo
from trainers.policy.config import Critic, Memory, Update
from trainers.policy.learner import Learner
from trainers.policy.models import build_policy
from trainers.running.micro_batch import MicroBatch

VARIANTS = {
    "grpo": {},
    "gspo": {"ratio": "gspo"},
    "balanced": {"ema_smoothing": {}, "gradient_adaptive": {}, "surrogate": {"kind": "asymmetric_clip"}},
    "aggressive": {"amic": True, "gradient_adaptive": {}, "surrogate": {"kind": "ptrw"}},
    "temporal": {"temporal_decay": {}, "weight_on": "ratio"},
}


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean"])
@pytest.mark.parametrize("variant", VARIANTS)
def test_no_reported_number_and_no_parameter_depends_on_the_micro_batch(tokenizer, prompts, variant, aggregation):
    """Responses of 1 to 8 tokens: means over responses, variances and maxima of parts are not means over tokens."""
    reported, learnt = [], []
    for micro_batch in (None, 5, 1):
        model = build_policy(TINY, tokenizer, seed=0).double().eval().requires_grad_(True)
        update = Update(micro_batch=micro_batch, minibatches=2, aggregation=aggregation, entropy_coef=0.01)
        advantages = torch.randn(16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
        reported.append(
            actor(model, update, lr=0.03, **VARIANTS[variant]).learn(
                sampled_batch(model, prompts, advantages), kl_coef=0.1, generator=torch.Generator().manual_seed(5)
            )
        )
        learnt.append(torch.cat([parameter.detach().flatten() for parameter in model.parameters()]))
    whole = reported[0]
    for parameters in learnt[1:]:
        torch.testing.assert_close(parameters, learnt[0], rtol=0, atol=1e-5)
    assert whole["ratio/token_variance"] > 1e-3  # otherwise every figure would be that of w = 1
    for parts in reported[1:]:
        assert parts.keys() == whole.keys()
        for name, value in whole.items():
            assert parts[name] == pytest.approx(value, rel=1e-6, abs=1e-6), name


@pytest.mark.parametrize("kind", [Mean, Variance, Maximum])
def test_parts_join_to_the_whole(kind):
    """In single precision a sum of squares would lose a variance of 1e-8 around 1. One part has no tokens."""
    mask = (torch.arange(5) < torch.tensor([5, 1, 0, 4])[:, None]).double()
    tensor = 1 + 1e-4 * torch.randn(4, 5, generator=torch.Generator().manual_seed(0))
    tensor = torch.where(mask > 0, tensor, math.inf)  # what is outside the mask does not count
    chosen = tensor[mask.bool()].double()
    expected = {Mean: chosen.mean(), Variance: chosen.var(correction=0), Maximum: chosen.max()}[kind].item()
    parts = [kind.of(tensor[i : i + 1], mask[i : i + 1]) for i in range(4)]
    joined = parts[0].join(parts[1]).join(parts[2].join(parts[3]))
    assert kind.of(tensor, mask).value().item() == pytest.approx(expected, rel=1e-12)
    assert joined.value().item() == pytest.approx(expected, rel=1e-12)


def test_averages_are_means_of_minibatches_and_the_largest_of_maxima():
    averages = Averages()
    for minibatch in ([1.0, 2.0], [6.0]):  # two micro-batches, then one
        for value in minibatch:
            tensor = torch.tensor([value])
            averages.add({"mean": Mean.of(tensor), "sum": Sum(tensor[0]), "largest": Maximum.of(tensor)})
        averages.close_minibatch()
    assert averages.means() == {"mean": (1.5 + 6) / 2, "sum": (3.0 + 6) / 2, "largest": 6.0}


def test_an_undefined_reduction_is_left_out_of_the_mean_but_a_bad_loss_or_a_diverged_reduction_is_not():
    averages = Averages()
    for spread in (0.0, 1.0):
        raw, after = torch.tensor([1.0, 1.0 + spread]), torch.tensor([1.0, 1.0 + spread / 2])
        averages.add({"reduction": Reduction.of(raw, after), "loss": Sum(torch.tensor(math.nan))})
        averages.close_minibatch()
    means = averages.means()
    assert means["reduction"] == 0.75
    assert math.isnan(means["loss"])
    averages.add({"reduction": Reduction.of(torch.tensor([math.nan, 1.0]), torch.tensor([1.0, 1.0]))})
    averages.close_minibatch()
    assert math.isnan(averages.means()["reduction"])


def test_no_number_of_the_critic_depends_on_the_micro_batch(tokenizer, prompts, tmp_path):
    model = build_policy(TINY, tokenizer, seed=0)
    model.save_pretrained(tmp_path)
    sequences = sampled_batch(model, prompts, torch.zeros(16)).sequences
    generator = torch.Generator().manual_seed(1)
    returns = torch.randn(sequences.completion_mask.shape, generator=generator, dtype=torch.float64)
    estimate = ppo.Estimate(returns, returns, torch.zeros_like(returns))
    reported = []
    for micro_batch in (None, 5, 1):
        model = ppo.build_critic(tmp_path, CPU, Memory(), 0).double()
        reported.append(
            ppo.Critic(Learner.adamw(model, lr=0.01, memory=MicroBatch(micro_batch)), Critic(clip=0.05)).learn(
                sequences, estimate, passes=Update(), generator=torch.Generator().manual_seed(5)
            )
        )
    whole = reported[0]
    assert whole.keys() == {"value/loss", "value/clip_fraction", "value/explained_variance", "value/grad_norm"}
    assert 0 < whole["value/clip_fraction"] < 1
    for parts in reported[1:]:
        assert parts == pytest.approx(whole, rel=1e-6, abs=1e-6)

"""Updates in double precision: accumulation, dropped responses, checkpointed activations, averages."""

import math

import pytest
import torch
from policy_helpers import CPU, TINY, sampled_batch

from trainers.policy.batch import Sequences, token_logps
from trainers.policy.config import (
    PolicyConfig,
    Update,
)
from trainers.policy.minibatches import Averages
from trainers.policy.models import build_policy
from trainers.policy.objective import build_objective
from trainers.policy.update import prepare, update_policy


def trajectory(tokenizer, prompts, update, steps=3, **config):
    """Parameters after some updates in double precision, and the metrics of the last one."""
    model = build_policy(TINY, tokenizer, seed=0).double().eval()
    model.requires_grad_(True)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01, weight_decay=0.0)
    generator = torch.Generator().manual_seed(5)
    advantages = torch.randn(16, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    batch = sampled_batch(model, prompts, advantages)
    settings = PolicyConfig(update=update, **config)
    for _ in range(steps):
        metrics = update_policy(
            model,
            optimizer,
            build_objective(settings),
            batch,
            update=update,
            temperature=1.0,
            kl_coef=0.1,
            placement=CPU,
            generator=generator,
        )
    return torch.cat([p.detach().flatten() for p in model.parameters()]), metrics


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean"])
@pytest.mark.parametrize("variant", [{}, {"ratio": "gspo"}, {"amic": True}, {"ema_smoothing": {"beta": 0.9}}])
def test_accumulation_does_not_change_the_trajectory(tokenizer, prompts, aggregation, variant):
    """Batch 16 x accumulation 1 = batch 4 x accumulation 4: losses are divided by the minibatch's units."""
    common = {"minibatches": 1, "epochs": 2, "aggregation": aggregation, "entropy_coef": 0.01}
    whole, metrics = trajectory(tokenizer, prompts, Update(**common), **variant)
    parts, part_metrics = trajectory(tokenizer, prompts, Update(**common, micro_batch=4), **variant)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-6)  # log-probabilities are computed in float32
    for name in ("policy/loss", "policy/kl_loss", "policy/entropy_loss", "kl/divergence", "policy/grad_norm"):
        assert part_metrics[name] == pytest.approx(metrics[name], abs=1e-5), name
    other, _ = trajectory(tokenizer, prompts, Update(**{**common, "minibatches": 4}), **variant)
    assert (other - whole).abs().max() > 1e-3


def test_activation_checkpointing_does_not_change_the_gradient(tokenizer, prompts):
    gradients = []
    for checkpointing in (False, True):
        model = build_policy(TINY, tokenizer, seed=0).double()
        if checkpointing:
            model.gradient_checkpointing_enable(gradient_checkpointing_kwargs={"use_reentrant": False})
        model.train()
        batch = sampled_batch(model.eval(), prompts, torch.ones(16, dtype=torch.float64))
        logps, _ = token_logps(model.train(), batch.sequences)
        logps.sum().backward()
        gradients.append(torch.cat([p.grad.flatten() for p in model.parameters()]))
    torch.testing.assert_close(*gradients, rtol=0, atol=1e-7)


def test_responses_without_advantage_are_left_out_and_nothing_else_changes(model, prompts):
    sequences = sampled_batch(model, prompts, torch.zeros(16)).sequences
    advantages = torch.tensor([0.0] * 4 + [1.0, -1.0, 2.0, 0.0] + [0.0] * 8)
    common = {"temperature": 1.0, "recompute_logps": False, "update": Update(), "placement": CPU}
    batch = prepare(model, None, sequences, advantages, **common)
    assert batch.advantages.tolist() == [1.0, -1.0, 2.0]
    assert torch.equal(batch.sequences.response_ids, sequences.select(torch.tensor([4, 5, 6])).response_ids)
    assert prepare(model, None, sequences, torch.zeros(16), **common) is None
    kept = prepare(model, None, sequences, advantages, **{**common, "update": Update(drop_zero_advantage=False)})
    assert len(kept.sequences) == 16


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean"])
def test_leaving_out_responses_without_advantage_does_not_change_the_policy_gradient(tokenizer, prompts, aggregation):
    results = []
    for drop in (True, False):
        model = build_policy(TINY, tokenizer, seed=0).double().eval()
        update = Update(minibatches=1, epochs=1, aggregation=aggregation, drop_zero_advantage=drop, max_grad_norm=1e9)
        sequences = sampled_batch(model, prompts, torch.zeros(16)).sequences
        advantages = torch.tensor([0.0] * 4 + [1.0, -1.0, 2.0, 0.0] + [0.0] * 8, dtype=torch.float64)
        batch = prepare(
            model, None, sequences, advantages, temperature=1.0, recompute_logps=False, update=update, placement=CPU
        )
        update_policy(
            model.requires_grad_(True),
            torch.optim.SGD(model.parameters(), lr=1.0),
            build_objective(PolicyConfig(update=update)),
            batch,
            update=update,
            temperature=1.0,
            kl_coef=0.0,
            placement=CPU,
            generator=torch.Generator().manual_seed(0),
        )
        results.append(torch.cat([p.detach().flatten() for p in model.parameters()]))
    torch.testing.assert_close(*results, rtol=0, atol=1e-6)


def test_selecting_rows_cuts_padding_on_both_sides():
    whole = Sequences(
        torch.tensor([[0, 0, 5], [7, 8, 9]]),
        torch.tensor([[0, 0, 1], [1, 1, 1]]),
        torch.tensor([[4, 1, 0], [3, 3, 1]]),
        torch.tensor([[1, 1, 0], [1, 1, 1]]),
    )
    row = whole.select(torch.tensor([0]))
    assert row.prompt_ids.tolist() == [[5]]
    assert row.response_ids.tolist() == [[4, 1]]
    assert whole.model_inputs()["position_ids"][0].tolist() == [0, 0, 0, 1, 2, 2]


def test_undefined_variance_reduction_is_left_out_of_the_mean_but_a_bad_loss_is_not():
    averages = Averages()
    for value in (math.nan, 0.5):
        averages.add({"ratio/variance_reduction": torch.tensor(value), "policy/entropy": torch.tensor(value)}, 2)
        averages.add_sum("policy/loss", torch.tensor(value))
        averages.close_minibatch()
    means = averages.means()
    assert means["ratio/variance_reduction"] == 0.5
    assert math.isnan(means["policy/loss"])
    assert math.isnan(means["policy/entropy"])

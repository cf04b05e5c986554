"""Updates in double precision: dropped responses, selected rows, frozen copies."""

from dataclasses import replace
from itertools import pairwise

import pytest
import torch

from tests.trainers.policy.helpers import TINY, actor, sampled_batch
from trainers.policy.config import Precision, Update
from trainers.policy.models import Placement, build_policy, frozen_copy, load_policy


def updated(tokenizer, prompts, advantages, *, update, kl_coef, drop=True):
    """Parameters and metrics of a policy that has left its reference, after three updates on the same responses."""
    reference = build_policy(TINY, tokenizer, seed=0).double().eval()
    model = build_policy(TINY, tokenizer, seed=0).double().eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape, generator=torch.Generator().manual_seed(3)))
    sequences = sampled_batch(model, prompts, torch.zeros(16)).sequences
    model.requires_grad_(True)
    known = reference if kl_coef > 0 else None
    learning = actor(model, update, lr=1e-3, weight_decay=0.01, reference=known, recompute_logps=True)
    generator = torch.Generator().manual_seed(0)
    metrics = []
    for _ in range(3):
        batch = learning.batch(sequences, advantages)
        batch = batch if drop else replace(batch, needed=None)
        metrics.append(learning.learn(batch, kl_coef=kl_coef, generator=generator))
    return torch.cat([p.detach().flatten() for p in model.parameters()]), metrics


SOME = [0.0] * 4 + [1.0, -1.0, 2.0, 0.0] + [0.0] * 8


@pytest.mark.parametrize("aggregation", ["sequence_mean", "token_mean"])
@pytest.mark.parametrize("coefficients", [(0.0, 0.0), (0.5, 0.0), (0.0, 0.01)])
@pytest.mark.parametrize("advantages", [SOME, [0.0] * 16])
def test_dropping_changes_no_figure_and_no_parameter(tokenizer, prompts, aggregation, coefficients, advantages):
    kl_coef, entropy_coef = coefficients
    common = {"minibatches": 2, "epochs": 1, "aggregation": aggregation, "entropy_coef": entropy_coef}
    advantages = torch.tensor(advantages, dtype=torch.float64)
    results = []
    for drop in (True, False):
        update = Update(**common, micro_batch=3 if drop else None)
        results.append(updated(tokenizer, prompts, advantages, update=update, kl_coef=kl_coef, drop=drop))
    (parameters, metrics), (expected, all_metrics) = results
    torch.testing.assert_close(parameters, expected, rtol=0, atol=1e-6)
    for dropped, kept in zip(metrics, all_metrics, strict=True):
        assert dropped.keys() == kept.keys()
        assert dropped == pytest.approx(kept, abs=1e-6)


def test_what_adds_nothing_to_the_loss_has_no_backward_pass(tokenizer, model, prompts):
    """A KL or an entropy bonus needs every response."""
    sequences = sampled_batch(model, prompts, torch.zeros(16)).sequences
    advantages = torch.tensor(SOME)
    alone = actor(model, Update(), lr=0.0).batch(sequences, advantages)
    assert alone.needed.nonzero()[:, 0].tolist() == [4, 5, 6]
    for reference, update in ((model, Update()), (None, Update(entropy_coef=0.01))):
        assert actor(model, update, lr=0.0, reference=reference).batch(sequences, advantages).needed is None


@pytest.mark.parametrize("compute", ["float32", "bfloat16"])
def test_a_frozen_copy_is_what_is_loaded_frozen_with_the_same_positions(tokenizer, tmp_path, compute):
    """In bfloat16 its weights; not a rotary embedding's frequencies, which rounded are those of other positions."""
    build_policy(TINY, tokenizer, seed=0).save_pretrained(tmp_path)
    precision, there = Precision(compute=compute), torch.device("cpu")
    loaded = load_policy(tmp_path, there, precision)
    copied = frozen_copy(load_policy(tmp_path, there, trainable=True), Placement.of(["cpu"], precision))
    tensors = [model.state_dict() | dict(model.named_buffers()) for model in (loaded, copied)]
    assert tensors[0].keys() == tensors[1].keys()
    for name, value in tensors[0].items():
        assert value.dtype == tensors[1][name].dtype, name
        assert torch.equal(value, tensors[1][name]), name
    assert copied.model.rotary_emb.inv_freq.dtype == torch.float32
    assert not any(parameter.requires_grad for parameter in copied.parameters())
    ids = torch.arange(80)[None] % 20
    assert torch.equal(copied(ids).logits, loaded(ids).logits)


def test_where_all_groups_tie_the_kl_still_pulls_the_policy_to_its_reference(tokenizer, prompts):
    update = Update(minibatches=1, epochs=1)
    _, metrics = updated(tokenizer, prompts, torch.zeros(16), update=update, kl_coef=1.0)
    divergences = [values["kl/divergence"] for values in metrics]
    assert all(values["policy/loss"] == 0 for values in metrics)
    assert all(later < 0.95 * earlier for earlier, later in pairwise(divergences))

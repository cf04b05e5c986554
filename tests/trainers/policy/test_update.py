"""Updates: dropped responses, micro-batches, less memory, what is reported of them; frozen copies."""

import math
from functools import partialmethod
from itertools import pairwise
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from tests.trainers.policy.helpers import CPU, SMALL, TINY, actor, sampled_batch, stage
from trainers.objectives.policy import Maximum, Mean, StepMetrics, Sum, Variance, VarianceReduction
from trainers.policy import grpo, ppo, reinforce, rollout, supervised, warm_start
from trainers.policy import learner as learner_module
from trainers.policy.config import Gae, Memory, PolicyConfig, Precision, Update
from trainers.policy.learner import Learner
from trainers.policy.models import Placement, build_policy, frozen_copy, load_policy
from trainers.policy.value_model import ValueModel
from trainers.running.micro_batch import MicroBatch


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
        with pytest.MonkeyPatch.context() as patched:
            if not drop:
                patched.setattr(grpo, "with_advantage", lambda values: torch.ones(len(values), dtype=torch.bool))
            metrics.append(learning.learn(batch, kl_coef=kl_coef, generator=generator))
    return torch.cat([p.detach().flatten() for p in model.parameters()]), metrics


def test_advantages_of_padding_are_no_part_of_their_mean(tokenizer, prompts):
    model = build_policy(TINY, tokenizer, seed=0)
    learning = actor(model.requires_grad_(True), Update(), lr=1e-3, recompute_logps=True)
    sequences = sampled_batch(model.eval(), prompts, torch.zeros(16)).sequences
    mask = sequences.completion_mask
    assert 0 < mask.sum() < mask.numel()
    run: Any = SimpleNamespace(
        config=PolicyConfig(),
        progress=grpo.Progress(0.0),
        actor=learning,
        generators=SimpleNamespace(minibatches=torch.Generator()),
    )
    scored = grpo.Rollout(sequences, torch.zeros(16), torch.zeros(16), {})
    figures = grpo.update_policy(run, scored, -2.0 * mask)
    assert (figures["advantage/mean"], figures["advantage/mean_abs"]) == (-2, 2)


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


def test_where_all_groups_tie_the_kl_still_pulls_the_policy_to_its_reference(tokenizer, prompts):
    update = Update(minibatches=1, epochs=1)
    _, metrics = updated(tokenizer, prompts, torch.zeros(16), update=update, kl_coef=1.0)
    divergences = [values["kl/divergence"] for values in metrics]
    assert all(values["policy/loss"] == 0 for values in metrics)
    assert all(later < 0.95 * earlier for earlier, later in pairwise(divergences))


def test_what_adds_nothing_to_the_loss_has_no_backward_pass(model, prompts, monkeypatch):
    """A KL or an entropy bonus needs every response."""
    sequences = sampled_batch(model, prompts, torch.zeros(16)).sequences
    learnt, step = [], Learner.step
    monkeypatch.setattr(
        Learner, "step", lambda self, rows, backward: learnt.extend(rows.tolist()) or step(self, rows, backward)
    )
    once = {"minibatches": 1, "epochs": 1}
    for reference, update, expected in (
        (None, Update(**once), [4, 5, 6]),
        (model, Update(**once), list(range(16))),
        (None, Update(**once, entropy_coef=0.01), list(range(16))),
    ):
        learnt.clear()
        learning = actor(model.requires_grad_(True), update, lr=0.0, reference=reference)
        learning.learn(learning.batch(sequences, torch.tensor(SOME)), kl_coef=0.1, generator=torch.Generator())
        assert sorted(learnt) == expected


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
        batch, generator = sampled_batch(model, prompts, advantages), torch.Generator().manual_seed(5)
        learning = actor(model, update, lr=0.03, **VARIANTS[variant])
        reported.append(learning.learn(batch, kl_coef=0.1, generator=generator))
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


def test_step_metrics_are_means_of_minibatches_and_the_largest_of_maxima():
    step_metrics = StepMetrics()
    for minibatch in ([1.0, 2.0], [6.0]):  # two micro-batches, then one
        tensors = [torch.tensor([value]) for value in minibatch]
        step_metrics.close_minibatch(
            *({"mean": Mean.of(one), "sum": Sum(one[0]), "largest": Maximum.of(one)} for one in tensors)
        )
    assert step_metrics.compute() == {"mean": (1.5 + 6) / 2, "sum": (3.0 + 6) / 2, "largest": 6.0}


def test_an_undefined_reduction_is_left_out_of_the_mean_but_a_bad_loss_or_a_diverged_reduction_is_not():
    step_metrics = StepMetrics()
    for spread in (0.0, 1.0):
        raw, after = torch.tensor([1.0, 1.0 + spread]), torch.tensor([1.0, 1.0 + spread / 2])
        step_metrics.close_minibatch(
            {"reduction": VarianceReduction(Variance.of(raw), Variance.of(after)), "loss": Sum(torch.tensor(math.nan))}
        )
    means = step_metrics.compute()
    assert means["reduction"] == 0.75
    assert math.isnan(means["loss"])
    step_metrics.close_minibatch(
        {"reduction": VarianceReduction(Variance.of(torch.tensor([math.nan, 1.0])), Variance.of(torch.ones(2)))}
    )
    assert math.isnan(step_metrics.compute()["reduction"])


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
        learner = Learner.adamw(model, lr=0.01, micro_batch=MicroBatch(micro_batch))
        critic = ppo.Critic(learner, Gae(critic={"clip": 0.05}).critic)
        generator = torch.Generator().manual_seed(5)
        reported.append(critic.learn(sequences, estimate, update=Update(), generator=generator))
    whole = reported[0]
    assert whole.keys() == {"value/loss", "value/clip_fraction", "value/explained_variance", "value/grad_norm"}
    assert 0 < whole["value/clip_fraction"] < 1
    for parts in reported[1:]:
        assert parts == pytest.approx(whole, rel=1e-6, abs=1e-6)


class Scarce:
    """Stands for a function of (model, sequences, ...) on a device that holds `rows` responses."""

    def __init__(self, function, rows):
        self.function, self.rows, self.refused = function, rows, []

    def __call__(self, model, sequences, *arguments, **more):
        if len(sequences) > self.rows:
            self.refused.append(len(sequences))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.function(model, sequences, *arguments, **more)


def rows_of(made):
    timed = ("time/", "memory/")
    return {(step, name): value for step, name, value in made.metrics.rows if not name.startswith(timed)}


def memory_of(made):
    return [(step, name, value) for step, name, value in made.metrics.rows if name.startswith("memory/")]


def reinforced(folder, inputs, config):
    """The stage after its first update: later steps would sample from other roundings."""
    made = stage(folder, config, inputs, seed=0)
    reinforce.run(made)
    return made


@pytest.mark.parametrize("advantage", ["relative", "gae"])
def test_reinforce_takes_the_same_step_with_less_memory(tmp_path, prepared, monkeypatch, advantage):
    rollout = SMALL["rollout"].model_copy(update={"group_size": 1} if advantage == "gae" else {})
    config = PolicyConfig(**{**SMALL, "steps": 1, "advantage": {"kind": advantage}, "rollout": rollout})
    expected = rows_of(reinforced(tmp_path / "whole", prepared, config))
    scarce = Scarce(grpo.per_token_logps, 3)
    monkeypatch.setattr(grpo, "per_token_logps", scarce)
    monkeypatch.setattr(learner_module, "per_token_logps", scarce)
    forward = Scarce(ValueModel.forward, 5)
    monkeypatch.setattr(ValueModel, "forward", partialmethod(forward))
    made = reinforced(tmp_path / "scarce", prepared, config)
    found = rows_of(made)
    assert scarce.refused
    assert bool(forward.refused) == (advantage == "gae")
    assert found.keys() == expected.keys()
    assert {(1, "policy/loss"), (1, "policy/grad_norm"), (1, "ratio/max"), (1, "ratio/used_variance")} < found.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    halvings = [value for _, name, value in memory_of(made) if name == "memory/halvings"]
    assert halvings == list(range(1, len(scarce.refused) + len(forward.refused) + 1))


def test_sampling_and_measuring_go_on_with_fewer_responses_at_once(tmp_path, prepared, monkeypatch):
    """A device that holds 3 responses, fewer than a group: the same texts, to the rounding of other batches."""
    config = PolicyConfig(**{**SMALL, "steps": 1})
    expected = rows_of(reinforced(tmp_path / "whole", prepared, config))
    original, drawn = rollout.sample, []

    def scarce(model, prompt_ids, prompt_mask, *, group_size, **settings):
        drawn.append(len(prompt_ids) * group_size)
        if drawn[-1] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(model, prompt_ids, prompt_mask, group_size=group_size, **settings)

    monkeypatch.setattr(rollout, "sample", scarce)
    made = reinforced(tmp_path / "scarce", prepared, config)
    assert max(drawn) > 3 >= drawn[-1]
    assert [value for _, name, value in memory_of(made) if name == "memory/micro_batch"][-1] <= 3
    for name, value in expected.items():
        assert rows_of(made)[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    # A halving counts once: the next step begins with the size that fitted.
    assert len([size for size in drawn if size > 3]) == len([1 for _, name, _ in memory_of(made) if "halvings" in name])


def test_a_warm_start_learns_the_same_with_less_memory(tmp_path, prepared, monkeypatch):
    config = PolicyConfig(**{**SMALL, "warm_start": SMALL["warm_start"].model_copy(update={"steps": 5})})
    inputs = {"task_data": prepared["task_data"]}
    warm_start.run(whole := stage(tmp_path / "whole", config, inputs))
    scarce = Scarce(supervised.per_token_logps, 5)
    monkeypatch.setattr(supervised, "per_token_logps", scarce)
    warm_start.run(made := stage(tmp_path / "scarce", config, inputs))
    assert scarce.refused == [16, 8]
    assert memory_of(made)[-1] == (0, "memory/micro_batch", 4)
    for name, value in rows_of(whole).items():
        assert rows_of(made)[name] == pytest.approx(value, rel=1e-4), name

"""The stages with few steps: seeds, precision, what is learnt, groups that are drawn again, evaluation."""

import json

import pandas as pd
import pytest
import torch

from tests.trainers.policy.helpers import CPU, PAD, SMALL, sampled_batch, stage, train
from trainers.policy import evaluate
from trainers.policy.batch import Sequences
from trainers.policy.build import build
from trainers.policy.config import Gae, Kl, Memory, PolicyConfig, Precision, Update
from trainers.policy.dynamic_sampling import informative_groups
from trainers.policy.grpo import Rollout, add_to_last_token, draw, step
from trainers.policy.learner import Learner
from trainers.policy.models import Placement
from trainers.tasks.interface import read_problems


def test_seeds_differ_and_the_same_seed_repeats(prepared, tmp_path):
    config = PolicyConfig(**{**SMALL, "steps": 2})
    first, weights = train(tmp_path / "a", prepared, config, seed=0)
    again, same = train(tmp_path / "b", prepared, config, seed=0)
    _, other = train(tmp_path / "c", prepared, config, seed=1)
    pd.testing.assert_frame_equal(first, again, check_exact=True)
    assert weights == same != other


def test_a_step_in_which_all_groups_tie_still_steers_the_kl(prepared, tmp_path, monkeypatch):
    """Nothing is rewarded differently: the KL is measured, its coefficient adapted, the policy pulled back."""
    from trainers.tasks.knights_knaves import Puzzles

    monkeypatch.setattr(Puzzles, "reward", lambda *_: 1.0)
    config = PolicyConfig(**{**SMALL, "steps": 3, "kl": Kl(kl_coef=0.2, adaptive=True)})
    table, _ = train(tmp_path / "ties", prepared, config, ties=True)
    values = table.pivot(index="step", columns="name", values="value")
    assert (values["update/used_responses"].dropna() == 0).all()
    assert (values["policy/loss"].dropna() == 0).all()
    assert values["kl/coef"].dropna().tolist() == pytest.approx([0.2, 0.1, 0.05])  # no divergence yet: halved


@pytest.mark.parametrize(("problems", "count"), [(40, 10), (40, 40), (40, 120), (7, 16)])
def test_a_step_has_exactly_as_many_prompts_as_asked(problems, count):
    """PPO asks for as many prompts as responses: more than a small split has."""
    rows = draw(problems, count, torch.Generator().manual_seed(0))
    times = torch.bincount(torch.tensor(rows), minlength=problems)
    assert len(rows) == count
    assert times.max() - times.min() <= 1


@pytest.mark.parametrize("kl", [{}, {"per": "response"}])
def test_each_kl_steers_its_coefficient(prepared, tmp_path, kl):
    config = PolicyConfig(
        **{**SMALL, "kl": Kl(kl_coef=0.5, adaptive=True, target=1e-6, **kl), "update": Update(lr=1e-2)}
    )
    run = build(stage(tmp_path, config, prepared, 0))
    metrics = [step(run, number) for number in range(2)]
    assert run.progress.kl_coef == 1.0
    assert metrics[1]["kl/divergence"] > 0
    assert ("kl/response" in metrics[1]) == ("per" in kl)
    if "per" in kl:
        length = metrics[1]["response/length"]
        assert metrics[1]["kl/response"] == pytest.approx(length * metrics[1]["kl/divergence"], rel=0.5)
    assert "policy/kl_loss" in metrics[1]


def test_activation_checkpointing_covers_the_critic(prepared, model, prompts):
    """Same gradient, and every block is computed a second time in the backward pass."""
    from trainers.policy.ppo import Critic, Estimate, build_critic

    sequences = sampled_batch(model, prompts, torch.zeros(16)).sequences
    found = []
    for checkpointing in (False, True):
        placement = Placement.of(["cpu"], Precision(activation_checkpointing=checkpointing))
        critic = build_critic(prepared["warm_start"] / "policy", placement, Memory(), 0)
        calls = []
        critic.body.layers[0].mlp.register_forward_pre_hook(lambda *_, calls=calls: calls.append(1))
        torch.nn.init.constant_(critic.head.weight, 0.1)
        learner = Learner(critic, torch.optim.SGD(critic.parameters(), lr=0.1))
        returns = torch.ones(sequences.completion_mask.shape) * sequences.completion_mask
        estimate = Estimate(returns, returns, torch.zeros(sequences.completion_mask.shape))
        update, generator = Update(minibatches=1, epochs=1), torch.Generator().manual_seed(0)
        Critic(learner, Gae().critic).learn(sequences, estimate, update=update, generator=generator)
        found.append((len(calls), torch.cat([p.detach().flatten() for p in critic.parameters()])))
    assert [calls for calls, _ in found] == [1, 2]
    torch.testing.assert_close(found[0][1], found[1][1], rtol=0, atol=1e-6)


def test_evaluation_gives_one_row_per_puzzle_and_keeps_the_warm_starts(prepared, tmp_path):
    config = PolicyConfig(**SMALL)
    task = prepared["task_data"]
    warm = stage(tmp_path / "warm", config, {"task_data": task, "policy": prepared["warm_start"]})
    evaluate.run(warm)
    final = stage(
        tmp_path / "final", config, {"task_data": task, "policy": prepared["warm_start"], "warm": tmp_path / "warm"}
    )
    evaluate.run(final)
    items = pd.read_parquet(tmp_path / "final" / "items.parquet")
    accuracy = items[items["name"] == "accuracy"].set_index(["protocol", "item"])["value"]
    tests = [json.loads(line)["id"] for line in (task / "test.jsonl").read_text().splitlines()]
    for protocol in ("greedy", "sampled", "warm_greedy", "warm_sampled"):
        assert sorted(accuracy[protocol].index) == sorted(tests)
    # The same policy measured twice: its rows and the warm start's agree.
    pd.testing.assert_series_equal(accuracy["sampled"], accuracy["warm_sampled"])
    final.metrics.close()
    metrics = pd.read_parquet(tmp_path / "final" / "metrics.parquet").set_index("name")["value"]
    assert metrics["sampled/mean/accuracy"] == pytest.approx(accuracy["sampled"].mean())
    assert "cluster" not in items  # single puzzles, drawn one by one
    samples = pd.read_parquet(tmp_path / "final" / "samples.parquet")
    problems = {problem.id: problem for problem in read_problems(task / "test.jsonl")}
    assert set(samples["protocol"]) == {"greedy", "sampled"}
    for row in samples.to_dict("records"):
        assert (row["prompt"], row["reference"]) == (problems[row["item"]].prompt, problems[row["item"]].answer)
    greedy = samples[samples["protocol"] == "greedy"].set_index("item")["accuracy"]
    pd.testing.assert_series_equal(greedy.sort_index(), accuracy["greedy"].sort_index(), check_names=False)
    one = samples[(samples["protocol"] == "sampled") & samples["share of the samples"].isna()].set_index("item")
    assert (one["accuracy"] == accuracy["sampled"][one.index]).all()  # where all samples were the same


def test_critic_values_see_only_what_is_before_the_token(prepared, model, prompts):
    from trainers.policy.ppo import build_critic

    critic = build_critic(prepared["warm_start"] / "policy", CPU, Memory(), 0)
    torch.nn.init.normal_(critic.head.weight)
    batch = sampled_batch(model, prompts, torch.zeros(16)).sequences
    with torch.no_grad():
        values = critic(batch)
        changed = batch.completion_ids.clone()
        changed[:, 3:] = 5  # tokens from position 3 on must not move the values up to position 3
        other = critic(Sequences(batch.prompt_ids, batch.prompt_mask, changed, batch.completion_mask))
    torch.testing.assert_close(other[:, :4], values[:, :4], rtol=0, atol=1e-5)
    assert (other[:, 4:] - values[:, 4:]).abs().max() > 1e-3
    mask = batch.completion_mask
    assert add_to_last_token(torch.zeros(mask.shape), torch.ones(16), mask).sum() == 16


VARIANTS = {
    "grpo": {},
    "ppo": {"advantage": {"kind": "gae"}, "rollout": {"responses": 16, "group_size": 1}},
    "all-compatible": {
        "ema_smoothing": {},
        "gradient_adaptive": {},
        "temporal_decay": {},
        "amic": True,
        "surrogate": {"kind": "ptrw"},
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_trained_parameter_moves(tmp_path, prepared, name):
    """Three steps of the real trainer from the true start."""
    config = PolicyConfig(**{**SMALL, **VARIANTS[name]})
    trainer = build(stage(tmp_path, config, prepared, seed=0))
    learnt = {
        f"{module}.{key}": parameter
        for module, model in trainer.state.modules.items()
        for key, parameter in model.named_parameters()
    }
    before = {key: parameter.detach().clone() for key, parameter in learnt.items()}
    assert ("critic.head.weight" in before) == (name == "ppo")
    for number in range(3):
        trainer.take_step(trainer, number)
    assert not [key for key, parameter in learnt.items() if torch.equal(parameter, before[key])]


def rollout(correct):
    """Responses of one token, in groups."""
    correct = torch.tensor(correct, dtype=torch.float32)
    n = len(correct)
    one = torch.ones(n, 1, dtype=torch.long)
    sequences = Sequences(one, one, correct[:, None].long() + 10, one, torch.zeros(n, 1))
    return Rollout(sequences, correct * 2, correct, {"reward/mean": correct.mean().item()})


def test_dynamic_sampling_keeps_informative_groups_until_there_are_enough():
    rounds = iter([rollout([1, 1, 0, 1, 0, 0]), rollout([0, 1, 1, 1, 1, 0]), rollout([1, 1, 1, 1, 1, 1])])
    found = informative_groups(lambda: next(rounds), group_size=2, max_rounds=5, padding=PAD)
    assert found.correct.tolist() == [0, 1, 0, 1, 1, 0]  # one group of the first round, two of the second
    assert found.rewards.tolist() == [0, 2, 0, 2, 2, 0]
    assert found.sequences.completion_ids[:, 0].tolist() == [10, 11, 10, 11, 11, 10]
    assert found.metrics["sampling/rounds"] == 2
    assert found.metrics["sampling/kept_groups"] == 3
    assert found.metrics["reward/mean"] == pytest.approx((3 / 6 + 4 / 6) / 2)


def test_dynamic_sampling_stops_at_its_limit():
    found = informative_groups(lambda: rollout([1, 1, 0, 1]), group_size=2, max_rounds=2, padding=PAD)
    assert found.correct.tolist() == [0, 1, 0, 1]
    none = informative_groups(lambda: rollout([1, 1, 0, 0]), group_size=2, max_rounds=2, padding=PAD)
    assert none.correct.tolist() == [1, 1, 0, 0]
    assert none.metrics["sampling/kept_groups"] == 0

"""Rollout, updates, dynamic sampling and the reinforce stage, on tiny models in double precision or with few steps."""

import json
import logging
import math

import pandas as pd
import pytest
import torch

from health import Monitor
from trainers.objectives import advantage_gae
from trainers.policy import evaluate, reinforce, task_data, warm_start
from trainers.policy.batch import Sequences, batched_logps, response_logits, token_logps
from trainers.policy.config import (
    Clip,
    Data,
    Evaluate,
    Kl,
    PolicyConfig,
    Precision,
    Rollout,
    Sampling,
    Scratch,
    Update,
    WarmStart,
)
from trainers.policy.dynamic_sampling import collect_informative
from trainers.policy.experience import Experience
from trainers.policy.minibatches import Averages
from trainers.policy.models import build_policy
from trainers.policy.objective import build_objective
from trainers.policy.placement import Placement
from trainers.policy.rollout import sample, sample_all
from trainers.policy.text import decode, pad, prompt_tokens, response_tokens, word_tokenizer
from trainers.policy.update import Batch, prepare, update_policy
from trainers.runlog import Metrics, Progress
from trainers.stage import Stage
from trainers.tasks.knights_knaves import WORDS

TINY = Scratch(hidden=16, layers=2, heads=2, feed_forward=24, init_std=0.4)
CPU = Placement.of(["cpu"], Precision())
EOS, PAD = 1, 0


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(WORDS)


@pytest.fixture
def model(tokenizer):
    return build_policy(TINY, tokenizer, seed=0).double().eval()


@pytest.fixture(scope="module")
def prompts():
    rows = [[5, 9, 12], [7, 3, 8, 20, 11, 4], [6], [9, 9, 10, 12, 14]]
    return pad(rows, PAD, left=True)


def uniforms(rows, width, seed=0):
    return torch.rand(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sample_plainly(model, prompt, numbers, temperature):
    """One response, token by token, a full forward each time, inverting the distribution function in plain Python."""
    ids, logps = list(prompt), []
    for u in numbers.tolist():
        with torch.no_grad():
            logits = model(torch.tensor([ids])).logits[0, -1].double() / temperature
        probabilities = logits.softmax(-1).tolist()
        total = 0.0
        token = -1
        while total <= u:
            token += 1
            total += probabilities[token]
        ids.append(token)
        logps.append(math.log(probabilities[token]))
        if token == EOS:
            break
    return ids[len(prompt) :], logps


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_rollout_equals_a_plain_sampler_with_the_same_random_numbers(model, prompts, temperature):
    ids, mask = prompts
    numbers = uniforms(12, 15)
    with torch.no_grad():
        model.lm_head.weight[EOS] *= 3  # some responses end early, so rows are dropped
    found = sample(
        model, ids, mask, group_size=3, max_new_tokens=15, eos=EOS, pad=PAD, temperature=temperature, uniforms=numbers
    )
    lengths = set()
    for i in range(12):
        prompt = ids[i // 3][mask[i // 3].bool()].tolist()
        expected, logps = sample_plainly(model, prompt, numbers[i], temperature)
        keep = found.mask[i].bool()
        assert found.response_ids[i][keep].tolist() == expected
        assert found.logps[i][keep].tolist() == pytest.approx(logps, abs=1e-6)
        assert (found.response_ids[i][~keep] == PAD).all()
        lengths.add(len(expected))
    assert len(lengths) > 2  # the test would say little about dropped rows if all were equally long


def test_behaviour_log_probabilities_equal_a_full_forward(model, prompts):
    found = sample(
        model, *prompts, group_size=4, max_new_tokens=12, eos=EOS, pad=PAD, temperature=0.8, uniforms=uniforms(16, 12)
    )
    with torch.no_grad():
        logps, entropy = token_logps(model, found, temperature=0.8)
    torch.testing.assert_close(logps.float(), found.logps, rtol=0, atol=1e-5)
    torch.testing.assert_close(batched_logps(model, found, 0.8, 3), logps, rtol=0, atol=1e-6)
    probabilities = (response_logits(model, found) / 0.8).softmax(-1)
    by_hand = -(probabilities * probabilities.log()).sum(-1) * found.mask
    torch.testing.assert_close(entropy, by_hand, rtol=0, atol=1e-5)


def test_sampling_in_parts_changes_nothing(model, prompts):
    settings = {"group_size": 2, "max_new_tokens": 10, "eos": EOS, "pad": PAD, "uniforms": uniforms(8, 10)}
    whole = sample_all(model, *prompts, batch_size=None, **settings)
    parts = sample_all(model, *prompts, batch_size=2, **settings)
    assert torch.equal(whole.response_ids, parts.response_ids)
    assert torch.equal(whole.mask, parts.mask)
    torch.testing.assert_close(whole.logps, parts.logps, rtol=0, atol=1e-6)


def test_greedy_is_the_most_likely_token(model, prompts):
    found = sample(model, *prompts, group_size=1, max_new_tokens=6, eos=EOS, pad=PAD)
    best = response_logits(model, found).argmax(-1)
    assert torch.equal(found.response_ids[found.mask.bool()], best[found.mask.bool()])


def test_sampled_frequencies_follow_the_distribution(model, prompts):
    ids, mask = prompts[0][:1], prompts[1][:1]
    found = sample(model, ids, mask, group_size=4000, max_new_tokens=1, eos=EOS, pad=PAD, uniforms=uniforms(4000, 1))
    expected = response_logits(model, found)[0, 0].softmax(-1)
    seen = torch.bincount(found.response_ids[:, 0], minlength=len(expected)) / 4000
    assert (seen - expected).abs().max() < 4 * math.sqrt(0.25 / 4000)


def test_words_survive_the_tokenizer(tokenizer, tmp_path):
    text = "<think> K N ok bad </think> <answer> A knight B knave </answer>"
    ids, mask = pad([response_tokens(tokenizer, text)], PAD, left=False)
    assert ids[0, -1] == tokenizer.eos_token_id == EOS
    assert decode(tokenizer, ids, mask) == [text]
    assert prompt_tokens(tokenizer, "A : B K ?", None) == tokenizer.convert_tokens_to_ids(["A", ":", "B", "K", "?"])


# --- updates ----------------------------------------------------------------------------------------------------


def sampled_batch(model, prompts, advantages):
    sequences = sample(model, *prompts, group_size=4, max_new_tokens=8, eos=EOS, pad=PAD, uniforms=uniforms(16, 8))
    with torch.no_grad():
        old, _ = token_logps(model, sequences)
    return Batch(sequences, advantages, old, old - 0.05)


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


# --- dynamic sampling -------------------------------------------------------------------------------------------


def experience(correct):
    correct = torch.tensor(correct, dtype=torch.float32)
    n = len(correct)
    one = torch.ones(n, 1, dtype=torch.long)
    sequences = Sequences(one, one, correct[:, None].long() + 10, one, torch.zeros(n, 1))
    return Experience(sequences, correct * 2, correct, {"reward/mean": correct.mean().item()})


def test_dynamic_sampling_keeps_informative_groups_until_there_are_enough():
    rounds = iter([experience([1, 1, 0, 1, 0, 0]), experience([0, 1, 1, 1, 1, 0]), experience([1, 1, 1, 1, 1, 1])])
    found = collect_informative(lambda: next(rounds), group_size=2, max_rounds=5, padding=PAD)
    assert found.correct.tolist() == [0, 1, 0, 1, 1, 0]  # one group of the first round, two of the second
    assert found.rewards.tolist() == [0, 2, 0, 2, 2, 0]
    assert found.sequences.response_ids[:, 0].tolist() == [10, 11, 10, 11, 11, 10]
    assert found.metrics["sampling/rounds"] == 2
    assert found.metrics["sampling/kept_groups"] == 3
    assert found.metrics["reward/mean"] == pytest.approx((3 / 6 + 4 / 6) / 2)


def test_dynamic_sampling_stops_at_its_limit():
    found = collect_informative(lambda: experience([1, 1, 0, 1]), group_size=2, max_rounds=2, padding=PAD)
    assert found.correct.tolist() == [0, 1, 0, 1]
    none = collect_informative(lambda: experience([1, 1, 0, 0]), group_size=2, max_rounds=2, padding=PAD)
    assert none.correct.tolist() == [1, 1, 0, 0]
    assert none.metrics["sampling/kept_groups"] == 0


# --- stages -----------------------------------------------------------------------------------------------------

SMALL = {
    "data": Data(warm=40, train=40, dev=8, test=10),
    "scratch": Scratch(hidden=32, heads=2, feed_forward=48),
    # Enough for some answers in the right form: without differences in reward nothing would be learnt or compared.
    "warm_start": WarmStart(steps=80, batch_size=16, lr=1e-2),
    "steps": 4,
    "sampling": Sampling(max_new_tokens=20),
    "rollout": Rollout(responses=16, group_size=4),
    "kl": Kl(coef=0.1, adaptive=True),
    "checkpoint_every": 2,
    "evaluate": Evaluate(samples=2),
}


def stage(folder, config, inputs, seed=None, devices=("cpu",)):
    folder.mkdir(parents=True, exist_ok=True)
    return Stage(
        id="innovations.test",
        key="0" * 16,
        seed=seed,
        label="test",
        config=config,
        inputs=inputs,
        out=folder,
        devices=list(devices),
        threads=1,
        log=logging.getLogger("test"),
        metrics=Metrics(folder / "metrics.parquet", []),
        monitor=Monitor([]),
        meter=Progress(folder / "progress.json", "test"),
    )


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root = tmp_path_factory.mktemp("policy")
    config = PolicyConfig(**SMALL)
    task_data.run(stage(root / "task_data", config, {}))
    warm_start.run(stage(root / "warm_start", config, {"task_data": root / "task_data"}))
    return {"task_data": root / "task_data", "warm_start": root / "warm_start"}


def train(folder, inputs, config, seed=0):
    made = stage(folder, config, inputs, seed)
    reinforce.run(made)
    made.metrics.close()
    table = pd.read_parquet(folder / "metrics.parquet")
    table = table[~table["name"].str.startswith("time/")]
    assert "policy/loss" in set(table["name"]), "no step had a reward to learn from: the test would compare nothing"
    return table.reset_index(drop=True), (folder / "policy" / "model.safetensors").read_bytes()


VARIANTS = {
    "grpo": {},
    "ppo": {"advantage": "gae", "rollout": Rollout(responses=16, group_size=1)},
    "dapo": {
        "kl": Kl(coef=0.0),
        "clip": Clip(high=0.28),
        "update": Update(aggregation="token_mean"),
        "dynamic_sampling": {"max_rounds": 2},
        "overlong_penalty": {"buffer": 4},
    },
    "balanced": {"ema_smoothing": {}, "gradient_adaptive": {}, "asymmetric_clip": {}},
}


@pytest.mark.parametrize("name", VARIANTS)
def test_a_killed_run_goes_on_bit_identically(prepared, tmp_path, monkeypatch, name):
    config = PolicyConfig(**{**SMALL, **VARIANTS[name]})
    expected, weights = train(tmp_path / "whole", prepared, config)

    class Killed(Exception):
        pass

    original = reinforce.Trainer.step

    def killed(self, step, problems):
        if step == 3:
            raise Killed
        return original(self, step, problems)

    monkeypatch.setattr(reinforce.Trainer, "step", killed)
    with pytest.raises(Killed):
        train(tmp_path / "resumed", prepared, config)
    assert (tmp_path / "resumed" / "checkpoint" / "state.json").exists()
    monkeypatch.setattr(reinforce.Trainer, "step", original)
    found, resumed_weights = train(tmp_path / "resumed", prepared, config)
    pd.testing.assert_frame_equal(found, expected, check_exact=True)
    assert resumed_weights == weights


def test_seeds_differ_and_the_same_seed_repeats(prepared, tmp_path):
    config = PolicyConfig(**{**SMALL, "steps": 2})
    first, weights = train(tmp_path / "a", prepared, config, seed=0)
    again, same = train(tmp_path / "b", prepared, config, seed=0)
    _, other = train(tmp_path / "c", prepared, config, seed=1)
    pd.testing.assert_frame_equal(first, again, check_exact=True)
    assert weights == same != other


def test_two_devices_split_the_models():
    placement = Placement.of(["cuda:0", "cuda:1"], Precision())
    assert [str(d) for d in (placement.policy, placement.reference, placement.reward)] == ["cuda:0", "cuda:1", "cuda:1"]
    alone = Placement.of(["cuda:0"], Precision())
    assert str(alone.policy) == str(alone.reference) == str(alone.reward) == "cuda:0"


def test_mixed_precision_trains(prepared, tmp_path):
    config = PolicyConfig(**{**SMALL, "steps": 2, "precision": Precision(compute="bfloat16")})
    table, _ = train(tmp_path / "bf16", prepared, config)
    losses = table[table["name"] == "policy/loss"]["value"]
    assert len(losses) == 2
    assert losses.apply(math.isfinite).all()


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


def test_critic_values_see_only_what_is_before_the_token(prepared, model, prompts):
    from trainers.policy.critic import build_critic

    critic = build_critic(prepared["warm_start"] / "policy", CPU)
    torch.nn.init.normal_(critic.head.weight)
    batch = sampled_batch(model, prompts, torch.zeros(16)).sequences
    with torch.no_grad():
        values = critic(batch)
        changed = batch.response_ids.clone()
        changed[:, 3:] = 5  # tokens from position 3 on must not move the values up to position 3
        other = critic(Sequences(batch.prompt_ids, batch.prompt_mask, changed, batch.mask))
    torch.testing.assert_close(other[:, :4], values[:, :4], rtol=0, atol=1e-5)
    assert (other[:, 4:] - values[:, 4:]).abs().max() > 1e-3
    assert advantage_gae.terminal_rewards(torch.ones(16), batch.mask).sum() == 16


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"advantage": "gae"}, "group_size 1"),
        ({"rollout": {"responses": 10, "group_size": 4}}, "not a multiple"),
        ({"ema_smoothing": {}, "ratio": "gspo"}, "ratio token"),
        ({"weight_on": "ratio"}, "no effect"),
        ({"reward": {"rule": 1.0, "model": 1.0}}, "reward_model"),
        ({"reward": {"rule": 0.0}}, "nothing would be rewarded"),
        ({"overlong_penalty": {"buffer": 32}}, "below sampling.max_new_tokens"),
        ({"task": {"name": "knights_knaves", "form": "textual"}}, "pretrained"),
        ({"task": {"name": "question_answer"}}, "data_source"),
    ],
)
def test_configurations_that_cannot_work_are_refused(values, problem):
    with pytest.raises(ValueError, match=problem):
        PolicyConfig(**values)


def test_a_variant_uses_exactly_the_modules_of_its_objective():
    grpo, conservative = PolicyConfig(), PolicyConfig(ema_smoothing={}, temporal_decay={})
    difference = set(conservative.used_modules("reinforce")) - set(grpo.used_modules("reinforce"))
    assert difference == {"trainers.objectives.ema_smoothing", "trainers.objectives.temporal_decay"}
    assert "trainers.objectives.sequence_ratio" in PolicyConfig(ptrw={}).used_modules("reinforce")
    assert "trainers.objectives.clipped" not in PolicyConfig(ptrw={}).used_modules("reinforce")

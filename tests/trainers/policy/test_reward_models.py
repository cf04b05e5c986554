"""Rewards of tokens, a reward model that learns the rule, and prompts without answers."""

import json
import sys
from dataclasses import replace
from types import SimpleNamespace

import pandas as pd
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from tests.trainers.policy.helpers import CHAT, CPU, SMALL, asset, run_all, stage, train
from trainers.models.random_model import build_random_model
from trainers.objectives.normalized_advantages import normalized_advantages
from trainers.objectives.relative_advantages import relative_advantages
from trainers.objectives.token_rewards import increments, returns_to_go, token_advantages
from trainers.policy import evaluate, grpo, reward_model
from trainers.policy.batch import Sequences
from trainers.policy.build import build
from trainers.policy.classifier import RewardModel
from trainers.policy.config import PolicyConfig
from trainers.policy.grpo import add_to_last_token
from trainers.policy.reward_model import agreement
from trainers.policy.text import pad, prompt_tokens, response_tokens
from trainers.policy.value_model import TokenRewardModel
from trainers.tasks import question_answer
from trainers.tasks.interface import Problem, read_problems
from trainers.tasks.settings import QuestionAnswer

MASK = torch.tensor([[1, 1, 1], [1, 1, 0]])


def test_rewards_of_tokens_by_hand():
    scores = torch.tensor([[1.0, 3.0, 2.0], [5.0, 4.0, 9.0]])
    rewards = increments(scores, MASK)
    assert rewards.tolist() == [[1, 2, -1], [5, -1, 0]]  # they add up to the score at the last token: 2 and 4
    assert returns_to_go(rewards, MASK).tolist() == [[2, 1, -1], [4, -1, 0]]
    # Minus the mean of both: (2 + 4) / 2, (1 - 1) / 2, (-1 + 0) / 2.
    assert token_advantages(rewards, MASK, 2, scale=False).tolist() == [[-1, 1, -0.5], [1, -1, 0]]
    scaled = token_advantages(rewards, MASK, 2, scale=True)
    torch.testing.assert_close(scaled, torch.tensor([[-1, 1, -0.5], [1, -1, 0]]) / 2**0.5)


@pytest.mark.parametrize("advantage", [relative_advantages, normalized_advantages])
def test_the_first_tokens_advantage_is_that_of_the_response(advantage):
    generator = torch.Generator().manual_seed(0)
    rewards, mask = torch.randn(8, 5, generator=generator, dtype=torch.float64), torch.ones(8, 5)
    whole = advantage(rewards.sum(1), 4)
    torch.testing.assert_close(
        token_advantages(rewards, mask, 4, scale=advantage is normalized_advantages)[:, 0], whole
    )


@pytest.mark.parametrize("rounding", [0.0, 1e-9])
def test_advantages_of_tokens_are_bounded_where_whole_rewards_tie(rounding):
    rewards = torch.tensor([[1.0, 2.0, -2.0], [2.0, -1.0 + rounding, 0.0]], dtype=torch.float64)
    found = token_advantages(rewards, MASK, 2, scale=True)
    spread = token_advantages(rewards, MASK, 2, scale=False)[MASK > 0].square().sum().div(4).sqrt()
    torch.testing.assert_close(found, token_advantages(rewards, MASK, 2, scale=False) / spread)


def test_a_reward_of_the_whole_is_added_at_the_last_token():
    tokens = torch.tensor([[1.0, 0.0, 2.0], [0.0, 0.0, 0.0]])
    found = add_to_last_token(tokens, torch.tensor([3.0, -1.0]), MASK)
    assert found.tolist() == [[1, 0, 5], [0, -1, 0]]


def test_agreement_by_hand():
    scores, rewards = torch.tensor([2.0, 1.0, 0.0, 2.0]), torch.tensor([3.0, 3.0, -1.0, -1.0])
    found = agreement(scores, rewards, torch.tensor([1.0, 1.0, 0.0, 0.0]))
    # Pairs of right and wrong: 2 > 0, 2 = 2, 1 > 0, 1 < 2.
    assert found["reward_model/pair_accuracy"] == pytest.approx(2.5 / 4)
    assert found["reward_model/error"] == pytest.approx((1 + 4 + 1 + 9) / 4)
    assert "reward_model/pair_accuracy" not in agreement(scores, rewards, torch.ones(4))


LEARNT = {
    **SMALL,
    "reward": {"rule": 0.0, "model": 1.0},
    "reward_training": {"enabled": True, "problems": 40, "samples": 2, "steps": 60, "batch_size": 16, "lr": 3e-3},
}


@pytest.fixture(scope="module")
def judged(prepared, tmp_path_factory):
    folder = tmp_path_factory.mktemp("reward_model")
    made = stage(folder, PolicyConfig(**LEARNT), prepared)
    reward_model.run(made)
    made.metrics.close()
    return folder


def test_a_reward_model_learns_the_rule(judged):
    table = pd.read_parquet(judged / "metrics.parquet")
    losses = table[table["name"] == "reward_model/loss"].sort_values("step")["value"].tolist()
    assert losses[-1] < 0.7 * losses[0]
    assert "reward_model/error" in set(table["name"])


@pytest.mark.parametrize("level", ["sequence", "token"])
def test_the_policy_is_trained_on_the_learnt_reward_and_measured_by_both(prepared, judged, tmp_path, level):
    config = PolicyConfig(**{**LEARNT, "steps": 1, "reward": {"rule": 0.0, "model": 1.0, "level": level}})
    inputs = {**prepared, "trained_reward_model": judged}
    table, _ = train(tmp_path / "rl", inputs, config)
    values = table.groupby("name")["value"].last()
    assert values["reward/mean"] == pytest.approx(values["reward/model"], abs=1e-5)
    assert values["reward/rule"] != values["reward/model"]
    final = stage(tmp_path / "eval", config, {**inputs, "policy": tmp_path / "rl"})
    evaluate.run(final)
    names = set(pd.read_parquet(tmp_path / "eval" / "items.parquet")["name"])
    assert names == {"accuracy", "reward", "model_reward", "length"}


def test_a_function_is_called_as_trl_does_and_its_rewards_are_added(prepared, tmp_path, monkeypatch):
    problems = read_problems(prepared["task_data"] / "train.jsonl")[:4]
    asked = [problem for problem in problems for _ in range(4)]

    def short(prompts, completions, completion_ids, answer, unit=0.5, **others):
        assert prompts == [problem.prompt for problem in asked]
        assert answer == [problem.answer for problem in asked]
        assert len(completions) == len(asked)
        assert not others
        return [-unit * len(ids) for ids in completion_ids]

    monkeypatch.setitem(sys.modules, "trainers.mine", SimpleNamespace(short=short))
    config = PolicyConfig(**{**SMALL, "reward": {"rule": 2.0, "function": "mine:short"}})
    monkeypatch.setattr(grpo, "next_problems", lambda _: problems)
    run = build(stage(tmp_path / "rl", config, prepared, 0))
    found = grpo.sample_groups(run)
    assert found.metrics["reward/function"] == pytest.approx(-0.5 * found.metrics["response/length"])
    parts = 2 * found.metrics["reward/rule"] + found.metrics["reward/function"]
    assert found.metrics["reward/mean"] == pytest.approx(parts)
    for returned, said in (
        ([], "0 rewards for 16 responses; return one reward per response"),
        (None, "0 rewards for 16 responses; return one reward per response"),
        ([0.5] * 15 + [None], "None for response 16 of 16; return a number for each response, such as 0.0 if"),
    ):
        rewards = replace(run.rewards, function=lambda returned=returned, **_: returned)
        with pytest.raises(ValueError, match=rf"reward\.function returned {said}"):
            grpo.sample_groups(replace(run, rewards=rewards))


CHATML = (
    "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nHelp.<|im_end|>\n{% endif %}"
    "{% for m in messages %}<|im_start|>{{ m['role'] }}\n{{ m['content'] | trim }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


@pytest.mark.parametrize(("architecture", "template"), [("llama", CHATML), ("gpt2", CHATML), ("gpt2", CHAT)])
def test_rewards_of_tokens_add_up_to_the_reward_model_on_the_chat(tmp_path, architecture, template):
    """The policy answers below an instruction, which the chats that a reward model reads do not have."""
    sizes = {"hidden": 16, "layers": 1, "heads": 2, "vocab": 262, "positions": 256}
    policy, tokenizer = build_random_model(architecture, **sizes, seed=0)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>", "<|im_end|>"]})
    tokenizer.eos_token, tokenizer.chat_template = "<|im_end|>", template
    policy.config.num_labels = 1
    torch.manual_seed(0)
    AutoModelForSequenceClassification.from_config(policy.config).save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    asked = ["Why?", "Say RESPONSE twice.", "What is 2 + 2?", "Why not?", "Who?", "Where?"]
    texts = ["So.", "A longer response than the others", "cut her", "", "b", "be<s>cause"]
    ids = [response_tokens(tokenizer, text)[: 7 if text == "cut her" else None] for text in texts]
    prompts = [prompt_tokens(tokenizer, Problem("", prompt, ""), "Be brief.") for prompt in asked]
    sequences = Sequences(*pad(prompts, 2, left=True), *pad(ids, 2, left=False))
    end = tokenizer.eos_token_id
    assert sequences.ended(end).tolist() == [True, True, False, True, True, True]
    found = TokenRewardModel(tmp_path, CPU, tmp_path, batch_size=2)(sequences, asked, end)
    whole = RewardModel(tmp_path, CPU)(asked, texts)
    whole[3] = 0.0  # without a token nothing is rewarded
    torch.testing.assert_close(found.sum(1), whole, rtol=0, atol=1e-5)
    rewarded = sequences.completion_mask.bool() & ~torch.isin(
        sequences.completion_ids, torch.tensor(tokenizer.all_special_ids)
    )
    assert torch.equal(found != 0, rewarded)
    beginning = f"{tokenizer.decode(prompt_tokens(tokenizer, Problem('', 'Why?', '')))}S"
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    first = model(**tokenizer(beginning, add_special_tokens=False, return_tensors="pt")).logits.item()
    assert found[0, 0].item() == pytest.approx(first, abs=1e-5)
    alone = TokenRewardModel(tmp_path, CPU, tmp_path)(sequences.select(torch.tensor([3])), asked[3:4], end)
    assert alone.tolist() == [[0.0]]


def prompts_only(**values):
    """Settings of a training on prompts without answers."""
    return {
        "task": QuestionAnswer(answer=None),
        "data": {"warm": 1, "train": 20, "dev": 2, "test": 4},
        "data_source": asset("questions"),
        "model": asset("model"),
        "reward_model": asset("model"),
        "warm_start": {"steps": 0},
        "steps": 1,
        "sampling": {"max_new_tokens": 8},
        "rollout": {"responses": 8, "group_size": 4},
        "reward": {"rule": 0.0, "model": 1.0},
        "evaluate": {"samples": 2},
        **values,
    }


def test_prompts_without_answers_are_trained_on_and_measured_by_a_reward_model(assets, tmp_path):
    (tmp_path / "questions" / "files").mkdir(parents=True)
    rows = [{"question": f"Tell me about {i}."} for i in range(120)]
    (tmp_path / "questions" / "files" / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    inputs = {"model": assets / "model", "reward_model": assets / "judge", "data_source": tmp_path / "questions"}
    table, items = run_all(tmp_path, inputs, PolicyConfig(**prompts_only()))
    names = set(table["name"])
    assert {"reward/model", "dev/sampled_model_reward"} <= names
    assert not {"reward/rule", "reward/accuracy", "dev/sampled_accuracy"} & names
    assert set(items["name"]) == {"model_reward", "length"}


@pytest.mark.parametrize(
    ("values", "problem"),
    [
        ({"reward": {"rule": 1.0, "model": 1.0}}, "set reward.rule to 0"),
        ({"warm_start": {"steps": 5}}, "set warm_start.steps to 0"),
        ({"dynamic_sampling": {}}, "set dynamic_sampling to null"),
        ({"reward_model": None, "reward_training": {"enabled": True}}, "instead of reward_training.enabled"),
        ({"reward_training": {"enabled": True}}, "cannot be combined with reward_training.enabled"),
    ],
)
def test_prompts_without_answers_go_with_a_reward_model_only(values, problem):
    with pytest.raises(ValueError, match=problem):
        PolicyConfig(**prompts_only(**values))


def test_rows_whose_answer_is_missing_are_refused_with_their_number(tmp_path):
    rows = [{"question": "a", "answer": "1"}, {"question": "b", "answer": None}, {"question": "c", "answer": " "}]
    (tmp_path / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    task = question_answer.create(QuestionAnswer(), tmp_path / "q.jsonl")
    with pytest.raises(ValueError, match="the field 'answer' is empty in 2 of 3 rows"):
        task.splits({"warm": 0, "train": 1, "dev": 0, "test": 0}, 0)

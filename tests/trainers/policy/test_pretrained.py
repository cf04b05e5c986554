"""Policies from a model asset: byte-level tokenizer, chat template, a data set of questions, a reward model."""

import shutil

import pytest
import torch
from transformers import AutoModelForSequenceClassification, LlamaConfig, LlamaForSequenceClassification

from tests.trainers.policy.helpers import CHAT, CPU, EOS, asset, run_all
from trainers.policy.batch import Sequences
from trainers.policy.classifier import RewardModel
from trainers.policy.config import (
    PolicyConfig,
    Precision,
    Reward,
)
from trainers.policy.grpo import Rewards
from trainers.policy.models import Placement, load_policy, load_tokenizer
from trainers.policy.responses import Responder
from trainers.policy.text import prompt_tokens, word_tokenizer
from trainers.policy.value_model import ValueModel
from trainers.tasks import knights_knaves
from trainers.tasks.settings import KnightsKnaves, QuestionAnswer


def test_reward_model_scores_do_not_depend_on_the_batch_around_them(assets):
    judge = RewardModel(assets / "judge" / "files", CPU, batch_size=2)
    prompts, responses = ["a", "b", "a long prompt"], ["x", "a much longer response than the others", "z"]
    together = judge(prompts, responses)
    alone = torch.cat([judge([p], [r]) for p, r in zip(prompts, responses, strict=True)])
    torch.testing.assert_close(together, alone, rtol=0, atol=1e-5)
    ids = judge.tokenizer("a x", return_tensors="pt")["input_ids"]
    assert together[0].item() == pytest.approx(judge.model(input_ids=ids).logits[0, 0].item(), abs=1e-5)


@pytest.mark.parametrize("template", [CHAT, "{{ bos_token }}" + CHAT])
def test_a_chat_templates_special_tokens_are_added_once(assets, tmp_path, template):
    """A tokenizer that begins every text with <s>, and a template that does so too, or does not."""
    from tokenizers.processors import TemplateProcessing

    shutil.copytree(assets / "judge" / "files", tmp_path / "judge")
    judge = RewardModel(tmp_path / "judge", CPU)
    tokenizer = judge.tokenizer
    tokenizer.backend_tokenizer.post_processor = TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", tokenizer.bos_token_id)]
    )
    seen = []
    judge.model.register_forward_pre_hook(lambda *call: seen.append(call[2]["input_ids"][0]), with_kwargs=True)
    judge(["Why?"], ["So."])
    assert tokenizer.decode(seen[0]) == "<s>Why? So."
    tokenizer.chat_template = template
    judge(["Why?"], ["So."])
    begin = "<s>" if "bos" in template else ""
    assert tokenizer.decode(seen[1]) == begin + "[user]Why?[assistant]So."
    assert (
        tokenizer.decode(prompt_tokens(tokenizer, knights_knaves.Problem("x", "Why?", "")))
        == begin + "[user]Why?[assistant]"
    )


@pytest.mark.parametrize(("compute", "dtype"), [("float32", torch.float32), ("bfloat16", torch.bfloat16)])
def test_a_reward_model_is_in_the_precision_of_the_pass(assets, tmp_path, compute, dtype):
    """Not in that of its files, which is nobody's choice."""
    shutil.copytree(assets / "judge" / "files", tmp_path / "half")
    AutoModelForSequenceClassification.from_pretrained(tmp_path / "half").half().save_pretrained(tmp_path / "half")
    assert RewardModel(tmp_path / "half", Placement.of(["cpu"], Precision(compute=compute))).model.dtype == dtype


def test_a_response_that_could_leave_the_models_positions_is_refused_before_it_is_sampled(assets):
    folder = assets / "model" / "files"
    respond = Responder(load_policy(folder, torch.device("cpu")), load_tokenizer(folder), CPU)
    with pytest.raises(ValueError, match=r"a prompt of 500 tokens and a response of up to 13 need 513 .* has 512"):
        respond([[5] * 500, [5]], group_size=1, limit=13)


def test_a_reward_model_with_another_tokenizer_reads_texts(assets, tmp_path):
    """Words here, bytes in the policy: the reward model gets its own ids of the decoded text."""
    folder = other_judge(tmp_path)
    judge = RewardModel(folder, CPU)
    ids = torch.tensor([[judge.tokenizer.get_vocab()[word] for word in ("A", ":", "B", "K", "?", "A", "knight")]])
    expected = judge.model(input_ids=ids).logits[0, 0].item()
    assert judge(["A : B K ?"], ["A knight"]).item() == pytest.approx(expected, abs=1e-5)


def test_a_critic_with_another_tokenizer_is_refused(assets, tmp_path):
    folder, policy = other_judge(tmp_path), assets / "model" / "files"
    with pytest.raises(ValueError, match=r"the token .* in the policy's tokenizer .* use a model of the policy's"):
        ValueModel.from_reward_model(folder, CPU, policy)
    ValueModel.from_reward_model(assets / "judge" / "files", CPU, policy)


def other_judge(folder):
    """A sequence classifier over the words of knights and knaves."""
    tokenizer = word_tokenizer(knights_knaves.WORDS)
    sizes = {"vocab_size": len(tokenizer), "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}
    LlamaForSequenceClassification(LlamaConfig(**sizes, num_labels=1)).save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def test_rewards_add_up_with_their_weights(assets):
    judge = RewardModel(assets / "judge" / "files", CPU)
    task = knights_knaves.create(KnightsKnaves())
    problem = knights_knaves.Problem("x", "A : A K ?", "A knight")
    responses = ["<think> </think> <answer> A knight </answer>", "A", "<think> </think> <answer> A knight </answer>"]
    ids = torch.tensor([[EOS], [EOS], [EOS + 1]])  # the last one is cut
    model = judge([problem.prompt] * 3, responses)
    rewards = Rewards(task, Reward(rule=2.0, model=0.5), CPU, EOS, judge)
    scored = rewards.score([problem] * 3, Sequences(ids, torch.ones_like(ids), ids, torch.ones_like(ids)), responses)
    torch.testing.assert_close(scored.rewards, 2.0 * torch.tensor([3.0, -3.0, -3.0]) + 0.5 * model)
    assert scored.correct.tolist() == [1.0, 0.0, 0.0]
    assert scored.metrics["reward/model"] == pytest.approx(model.mean().item())


@pytest.mark.slow
@pytest.mark.parametrize("steps", [0, 2])
def test_questions_a_model_and_a_reward_model_from_end_to_end(assets, tmp_path, steps):
    """With steps 0 the warm start is the model asset as it is."""
    config = PolicyConfig(
        task=QuestionAnswer(),
        data={"warm": 8, "train": 20, "dev": 2, "test": 4},
        data_source=asset("questions"),
        model=asset("model"),
        reward_model=asset("model"),
        warm_start={"steps": steps, "batch_size": 4},
        steps=2,
        sampling={"max_new_tokens": 8},
        rollout={"responses": 8, "group_size": 4, "batch_size": 4, "recompute_logps": True},
        reward={"rule": 1.0, "model": 1.0},
        kl={"kl_coef": 0.1},
        overlong_penalty={"share": 0.2},
        precision={"activation_checkpointing": True},
        evaluate={"samples": 2},
    )
    inputs = {"model": assets / "model", "reward_model": assets / "judge", "data_source": assets / "questions"}
    table, items = run_all(tmp_path, inputs, config)
    assert (tmp_path / "warm_start" / "policy").exists() == (steps > 0)
    assert {"reward/rule", "reward/model", "reward/overlong_penalty", "kl/divergence"} <= set(table["name"])
    assert len(items[(items["protocol"] == "greedy") & (items["name"] == "accuracy")]) == 4

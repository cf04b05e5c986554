"""Sampling: against a plain sampler, in parts, greedy; text to tokens and back."""

import math

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from tests.trainers.policy.helpers import EOS, PAD, uniforms
from trainers.policy import decode as decode_module
from trainers.policy.learner import batched_logps, per_token_logps, response_logits
from trainers.policy.rollout import sample, sample_all


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
        keep = found.completion_mask[i].bool()
        assert found.completion_ids[i][keep].tolist() == expected
        assert found.logps[i][keep].tolist() == pytest.approx(logps, abs=1e-6)
        assert (found.completion_ids[i][~keep] == PAD).all()
        lengths.add(len(expected))
    assert len(lengths) > 2  # the test would say little about dropped rows if all were equally long


def test_behaviour_log_probabilities_equal_a_full_forward(model, prompts):
    found = sample(
        model, *prompts, group_size=4, max_new_tokens=12, eos=EOS, pad=PAD, temperature=0.8, uniforms=uniforms(16, 12)
    )
    with torch.no_grad():
        logps, entropy = per_token_logps(model, found, temperature=0.8)
    torch.testing.assert_close(logps.float(), found.logps, rtol=0, atol=1e-5)
    torch.testing.assert_close(batched_logps(model, found, 0.8, 3), logps, rtol=0, atol=1e-6)
    probabilities = (response_logits(model, found) / 0.8).softmax(-1)
    by_hand = -(probabilities * probabilities.log()).sum(-1) * found.completion_mask
    torch.testing.assert_close(entropy, by_hand, rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch_size", [8, 3])  # two groups, and less than one
def test_sampling_in_parts_changes_nothing(model, prompts, batch_size):
    settings = {"group_size": 4, "max_new_tokens": 10, "eos": EOS, "pad": PAD, "uniforms": uniforms(16, 10)}
    whole = sample_all(model, *prompts, batch_size=None, **settings)
    parts = sample_all(model, *prompts, batch_size=batch_size, **settings)
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"):
        assert torch.equal(getattr(whole, name), getattr(parts, name)), name
    torch.testing.assert_close(whole.logps, parts.logps, rtol=0, atol=1e-6)


def test_greedy_is_the_most_likely_token(model, prompts):
    found = sample(model, *prompts, group_size=1, max_new_tokens=6, eos=EOS, pad=PAD)
    best = response_logits(model, found).argmax(-1)
    assert torch.equal(found.completion_ids[found.completion_mask.bool()], best[found.completion_mask.bool()])


def model_of(kind, **shape):
    common = {"vocab_size": 31, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 2}
    configs = {
        "qwen2": (Qwen2Config, Qwen2ForCausalLM),
        "llama": (LlamaConfig, LlamaForCausalLM),
        "gpt2": (GPT2Config, GPT2LMHeadModel),
    }
    config, cls = configs[kind]
    if kind == "gpt2":
        shape = {"n_embd": 16, "n_layer": 2, "n_head": 2}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        settings = {**common, "num_attention_heads": 4, "initializer_range": 0.2, **shape}
        return cls(config(pad_token_id=PAD, eos_token_id=EOS, bos_token_id=None, **settings)).eval()


SHAPES = [
    ("qwen2", {"num_key_value_heads": 4}),
    ("qwen2", {"num_key_value_heads": 2}),
    ("llama", {}),
    ("llama", {"num_key_value_heads": 1, "attention_bias": True, "head_dim": 8}),
]


@pytest.mark.parametrize(("kind", "shape"), SHAPES)
@pytest.mark.parametrize("padded", [True, False])
def test_a_token_from_the_modules_is_that_of_the_model(kind, shape, padded, monkeypatch):
    """The short way of sampling against transformers' own: tokens, and log-probabilities to rounding."""
    made = model_of(kind, **shape)
    with torch.no_grad():
        made.lm_head.weight[EOS] *= 3  # some responses end early, so rows are dropped
    ids = torch.randint(2, 31, (5, 7), generator=torch.Generator().manual_seed(0))
    mask = torch.ones_like(ids)
    if padded:
        mask[0, :3] = mask[2, :6] = 0
    settings = {"group_size": 4, "max_new_tokens": 20, "eos": EOS, "pad": PAD, "uniforms": uniforms(20, 20)}
    assert decode_module.is_plain(made)
    found = sample(made, ids, mask, **settings)
    monkeypatch.setattr(decode_module, "is_plain", lambda _: False)
    expected = sample(made, ids, mask, **settings)
    assert torch.equal(found.completion_ids, expected.completion_ids)
    assert len(set(found.lengths.tolist())) > 2
    torch.testing.assert_close(found.logps, expected.logps, rtol=0, atol=5e-6)
    logps, _ = per_token_logps(made, found)
    torch.testing.assert_close(found.logps, logps.detach(), rtol=0, atol=2e-5)


def test_models_that_the_short_way_does_not_know_are_called_as_they_are():
    plain = model_of("qwen2", num_key_value_heads=4)
    assert decode_module.is_plain(plain)
    others = {
        "another architecture": model_of("gpt2"),
        "another precision": model_of("qwen2").double(),
        "a sliding window": model_of("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=0),
        "other positions": model_of("llama", rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}),
        "other attention": model_of("qwen2", attn_implementation="eager"),
    }
    for reason, other in others.items():
        assert not decode_module.is_plain(other), reason
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not decode_module.is_plain(plain)
    layer = plain.model.layers[1]
    for register in (layer.register_forward_hook, layer.register_full_backward_hook):
        handle = register(lambda *_: None)
        assert not decode_module.is_plain(plain)
        handle.remove()
    assert decode_module.is_plain(plain)
    layer.forward = layer.forward  # as accelerate does it
    assert not decode_module.is_plain(plain)
    ids = torch.tensor([[5, 6, 7]])
    sampled = sample(
        others["another architecture"], ids, torch.ones_like(ids), group_size=2, max_new_tokens=4, eos=EOS, pad=PAD
    )
    assert sampled.completion_mask.sum() > 0

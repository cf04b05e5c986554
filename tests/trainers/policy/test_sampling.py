"""Sampling: against a plain sampler, in parts, greedy, evenly spread."""

import math
from collections import Counter

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from tests.trainers.policy.helpers import EOS, PAD, uniforms
from trainers.policy import decode
from trainers.policy.learner import batched_logps, per_token_logps, response_logits
from trainers.policy.plain import is_plain
from trainers.policy.rollout import sample, sample_all
from trainers.policy.systematic_sampling import sample_evenly
from trainers.running.micro_batch import MicroBatch

ENDS = {"eos": EOS, "pad": PAD}
PARTS = ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask")


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
    found = sample(model, ids, mask, group_size=3, max_new_tokens=15, **ENDS, temperature=temperature, uniforms=numbers)
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
    found = sample(model, *prompts, group_size=4, max_new_tokens=12, **ENDS, temperature=0.8, uniforms=uniforms(16, 12))
    with torch.no_grad():
        logps, entropy = per_token_logps(model, found, temperature=0.8)
    torch.testing.assert_close(logps.float(), found.logps, rtol=0, atol=1e-5)
    torch.testing.assert_close(batched_logps(model, found, 0.8, MicroBatch(3)), logps, rtol=0, atol=1e-6)
    probabilities = (response_logits(model, found) / 0.8).softmax(-1)
    by_hand = -(probabilities * probabilities.log()).sum(-1) * found.completion_mask
    torch.testing.assert_close(entropy, by_hand, rtol=0, atol=1e-5)


@pytest.mark.parametrize("batch_size", [8, 3])  # two groups, and less than one
def test_sampling_in_parts_changes_nothing(model, prompts, batch_size):
    settings = {"group_size": 4, "max_new_tokens": 10, **ENDS, "uniforms": uniforms(16, 10).view(4, 4, 10)}
    whole = sample_all(model, *prompts, batch_size=None, **settings)
    parts = sample_all(model, *prompts, batch_size=batch_size, **settings)
    for name in PARTS:
        assert torch.equal(getattr(whole, name), getattr(parts, name)), name
    torch.testing.assert_close(whole.logps, parts.logps, rtol=0, atol=1e-6)


def test_greedy_is_the_most_likely_token_and_the_model_is_called_once_for_each(model, prompts):
    calls = []
    handle = model.register_forward_pre_hook(lambda *_: calls.append(1))
    found = sample(model, *prompts, group_size=1, max_new_tokens=6, **ENDS)
    handle.remove()
    assert len(calls) == found.completion_ids.shape[1] == 6
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
    settings = {"group_size": 4, "max_new_tokens": 20, **ENDS, "uniforms": uniforms(20, 20)}
    assert decode.is_plain(made)
    found = sample(made, ids, mask, **settings)
    monkeypatch.setattr(decode, "is_plain", lambda _: False)
    expected = sample(made, ids, mask, **settings)
    assert torch.equal(found.completion_ids, expected.completion_ids)
    assert len(set(found.lengths.tolist())) > 2
    torch.testing.assert_close(found.logps, expected.logps, rtol=0, atol=5e-6)
    logps, _ = per_token_logps(made, found)
    torch.testing.assert_close(found.logps, logps.detach(), rtol=0, atol=2e-5)


def test_models_that_the_short_way_does_not_know_are_called_as_they_are():
    plain = model_of("qwen2", num_key_value_heads=4)
    assert decode.is_plain(plain)
    others = {
        "another architecture": model_of("gpt2"),
        "another precision": model_of("qwen2").double(),
        "a sliding window": model_of("qwen2", use_sliding_window=True, sliding_window=4, max_window_layers=0),
        "other positions": model_of("llama", rope_parameters={"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}),
        "other attention": model_of("qwen2", attn_implementation="eager"),
    }
    for reason, other in others.items():
        assert not decode.is_plain(other), reason
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert not decode.is_plain(plain)
    layer = plain.model.layers[1]
    for register in (layer.register_forward_hook, layer.register_full_backward_hook):
        handle = register(lambda *_: None)
        assert not decode.is_plain(plain)
        handle.remove()
    assert decode.is_plain(plain)
    layer.forward = layer.forward  # as accelerate does it
    assert not decode.is_plain(plain)
    ids = torch.tensor([[5, 6, 7]])
    sampled = sample(others["another architecture"], ids, torch.ones_like(ids), group_size=2, max_new_tokens=4, **ENDS)
    assert sampled.completion_mask.sum() > 0


def numbers_of(prompts, samples, limit=6):
    return uniforms(prompts * samples, limit).view(prompts, samples, limit)


def divide_plainly(model, beginning, numbers, *, first, many, temperature, t=0):
    """{tokens: samples} of `many` samples after a beginning, by recursion and a full forward for every token."""
    with torch.no_grad():
        logits = model(torch.tensor([beginning])).logits[0, -1].double() / temperature
    probabilities, shared = logits.softmax(-1).tolist(), Counter()
    for j in range(many):
        point, token = (j + numbers[first, t].item()) / many, 0
        while point >= probabilities[token]:
            point -= probabilities[token]
            token += 1
        shared[token] += 1
    found, before = Counter(), first
    for token in sorted(shared):
        if token == EOS or t + 1 == numbers.shape[1]:
            found[(token,)] += shared[token]
        else:
            after = divide_plainly(
                model, [*beginning, token], numbers, first=before, many=shared[token], temperature=temperature, t=t + 1
            )
            found.update({(token, *rest): n for rest, n in after.items()})
        before += shared[token]
    return found


def counts(found, samples):
    """{(prompt, tokens): samples}."""
    many = Counter()
    for row, keep, prompt, share in zip(
        found.sequences.completion_ids,
        found.sequences.completion_mask.bool(),
        found.prompts.tolist(),
        found.shares.tolist(),
        strict=True,
    ):
        assert (row[~keep] == PAD).all()
        many[prompt, tuple(row[keep].tolist())] += round(share * samples)
    return many


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])  # by the model, and from its weights
@pytest.mark.parametrize("temperature", [1.0, 0.3])
def test_samples_are_divided_as_by_a_plain_recursion(model, prompts, temperature, dtype):
    ids, mask = prompts
    model = model.to(dtype)
    assert is_plain(model) == (dtype == torch.float32)
    with torch.no_grad():
        model.lm_head.weight[EOS] *= 3  # some responses end early
    numbers = numbers_of(4, 9)
    found = counts(sample_evenly(model, ids, mask, uniforms=numbers, temperature=temperature, **ENDS), 9)
    expected = Counter()
    for i in range(4):
        prompt = ids[i][mask[i].bool()].tolist()
        of_prompt = divide_plainly(model, prompt, numbers[i], first=0, many=9, temperature=temperature)
        expected.update({(i, tokens): n for tokens, n in of_prompt.items()})
    assert found == expected
    assert len({len(tokens) for _, tokens in found}) > 1
    assert temperature == 1.0 or max(found.values()) > 1  # samples in common are one response


def test_the_batch_changes_nothing(model, prompts):
    numbers = numbers_of(4, 8)
    whole = sample_evenly(model, *prompts, uniforms=numbers, **ENDS)
    for size in (20, 8):
        parts = sample_evenly(model, *prompts, uniforms=numbers, batch_size=size, **ENDS)
        assert counts(parts, 8) == counts(whole, 8), size


def test_no_more_responses_at_once_than_the_batch_allows(model, prompts, monkeypatch):
    """Below the samples of one prompt these are spread in parts; each prompt still has all of them."""
    sizes, forward = [], type(model).forward
    monkeypatch.setattr(
        type(model),
        "forward",
        lambda self, input_ids, **more: sizes.append(len(input_ids)) or forward(self, input_ids, **more),
    )
    monkeypatch.setattr(decode, "is_plain", lambda _: False)
    for size in (3, 1):
        sizes.clear()
        parts = sample_evenly(model, *prompts, uniforms=numbers_of(4, 8), batch_size=size, **ENDS)
        assert max(sizes) == size
        assert torch.equal(parts.prompts, parts.prompts.sort().values)
        torch.testing.assert_close(parts.mean(torch.ones(len(parts.shares))), torch.ones(4, dtype=torch.float64))


def test_even_samples_vary_less_than_independent_ones(model, prompts):
    """The share of responses that begin with a token is one of two neighbours: a variance that is known."""
    ids, mask = prompts[0][:1].expand(800, -1), prompts[1][:1].expand(800, -1)
    found = sample_evenly(model, ids, mask, uniforms=numbers_of(800, 8, 2), **ENDS)
    first = response_logits(model, found.sequences)[0, 0].softmax(-1).detach()
    p, token = first.max().item(), int(first.argmax())
    shares = found.mean((found.sequences.completion_ids[:, 0] == token).double())
    place = (8 * p) % 1
    assert shares.mean().item() == pytest.approx(p, abs=4 * (place * (1 - place) / 64 / 800) ** 0.5)
    assert shares.var().item() == pytest.approx(place * (1 - place) / 64, rel=0.15)
    assert shares.var().item() < 0.5 * p * (1 - p) / 8

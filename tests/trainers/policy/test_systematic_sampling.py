"""Evenly spread samples: on average the model, nearer to it than independent ones, whatever the batch."""

from collections import Counter

import pytest
import torch

from tests.trainers.policy.helpers import EOS, PAD, uniforms
from trainers.policy.learner import response_logits
from trainers.policy.plain import is_plain
from trainers.policy.systematic_sampling import sample_evenly

LIMIT = 6
SETTINGS = {"eos": EOS, "pad": PAD}


def numbers_of(prompts, samples, limit=LIMIT, seed=0):
    return uniforms(prompts * samples, limit, seed).view(prompts, samples, limit)


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
    found = counts(sample_evenly(model, ids, mask, uniforms=numbers, temperature=temperature, **SETTINGS), 9)
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
    whole = sample_evenly(model, *prompts, uniforms=numbers, **SETTINGS)
    for size in (20, 8):
        parts = sample_evenly(model, *prompts, uniforms=numbers, batch_size=size, **SETTINGS)
        assert counts(parts, 8) == counts(whole, 8), size


def test_no_more_responses_at_once_than_the_batch_allows(model, prompts, monkeypatch):
    """Below the samples of one prompt these are spread in parts; each prompt still has all of them."""
    sizes, forward = [], type(model).forward
    monkeypatch.setattr(
        type(model),
        "forward",
        lambda self, input_ids, **more: sizes.append(len(input_ids)) or forward(self, input_ids, **more),
    )
    monkeypatch.setattr("trainers.policy.decode.is_plain", lambda _: False)
    for size in (3, 1):
        sizes.clear()
        parts = sample_evenly(model, *prompts, uniforms=numbers_of(4, 8), batch_size=size, **SETTINGS)
        assert max(sizes) == size
        assert torch.equal(parts.prompts, parts.prompts.sort().values)
        torch.testing.assert_close(parts.mean(torch.ones(len(parts.shares))), torch.ones(4, dtype=torch.float64))


def test_even_samples_vary_less_than_independent_ones(model, prompts):
    """The share of responses that begin with a token is one of two neighbours: a variance that is known."""
    ids, mask = prompts[0][:1].expand(800, -1), prompts[1][:1].expand(800, -1)
    found = sample_evenly(model, ids, mask, uniforms=numbers_of(800, 8, 2), **SETTINGS)
    first = response_logits(model, found.sequences)[0, 0].softmax(-1).detach()
    p, token = first.max().item(), int(first.argmax())
    shares = found.mean((found.sequences.completion_ids[:, 0] == token).double())
    place = (8 * p) % 1
    assert shares.mean().item() == pytest.approx(p, abs=4 * (place * (1 - place) / 64 / 800) ** 0.5)
    assert shares.var().item() == pytest.approx(place * (1 - place) / 64, rel=0.15)
    assert shares.var().item() < 0.5 * p * (1 - p) / 8

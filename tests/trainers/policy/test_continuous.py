"""Continuous batching, as on an accelerator: the tokens of the CPU's samplers, whatever the batch."""

import pytest
import torch

from tests.trainers.policy.helpers import EOS, PAD, uniforms
from tests.trainers.policy.test_rollout import SHAPES, model_of
from trainers.policy import continuous, rollout, systematic_sampling
from trainers.policy.learner import per_token_logps


@pytest.fixture
def everywhere(monkeypatch):
    """Switch continuous batching on, on the CPU."""
    return lambda: monkeypatch.setattr(continuous, "applies", lambda model, device: True)


def asked(kind="qwen2", count=5, **shape):
    model = model_of(kind, **shape)
    with torch.no_grad():
        model.get_output_embeddings().weight[EOS] *= 3  # some responses end early
    ids = torch.randint(2, 31, (count, 7), generator=torch.Generator().manual_seed(0))
    mask = (torch.arange(7) >= 7 - torch.tensor([4, 7, 1, 3, 6])[:count, None]).long()
    return model, torch.where(mask.bool(), ids, PAD), mask


@pytest.mark.parametrize(("kind", "shape"), [*SHAPES, ("gpt2", {})])
@pytest.mark.parametrize("batch_size", [None, 8, 3])  # all groups, two at a time, parts of one
def test_tokens_are_those_of_the_cpu(kind, shape, batch_size, everywhere):
    model, ids, mask = asked(kind, **shape)
    settings = {"group_size": 4, "max_new_tokens": 40, "eos": EOS, "pad": PAD, "temperature": 0.9}
    settings |= {"uniforms": uniforms(20, 40), "batch_size": batch_size}
    expected = rollout.sample_all(model, ids, mask, **settings)
    everywhere()
    found = rollout.sample_all(model, ids, mask, **settings)
    for name in ("prompt_ids", "prompt_mask", "completion_ids", "completion_mask"):
        assert torch.equal(getattr(found, name), getattr(expected, name)), name
    lengths = found.lengths
    assert len(lengths.unique()) > 4
    assert lengths.max() > 20 > lengths.min()  # rows end in different blocks, and others take their places
    torch.testing.assert_close(found.logps, expected.logps, rtol=0, atol=5e-6)
    torch.testing.assert_close(found.logps, per_token_logps(model, found, 0.9)[0].detach(), rtol=0, atol=2e-5)


@pytest.mark.parametrize(("kind", "shape", "temperature"), [(*SHAPES[1], 0.4), ("gpt2", {}, 0.05)])
@pytest.mark.parametrize("batch_size", [None, 18, 4])  # all prompts, two, and parts of one: 4, 4 and 1 of 9 samples
def test_even_samples_are_those_of_the_cpu(kind, shape, temperature, batch_size, everywhere):
    model, ids, mask = asked(kind, **shape)
    settings = {"uniforms": uniforms(45, 40).view(5, 9, 40), "eos": EOS, "pad": PAD, "temperature": temperature}

    def rows():
        found = systematic_sampling.sample_evenly(model, ids, mask, batch_size=batch_size, **settings)
        kept = zip(found.sequences.completion_ids, found.sequences.completion_mask.bool(), strict=True)
        tokens = [row[keep].tolist() for row, keep in kept]
        return sorted(zip(found.prompts.tolist(), tokens, found.shares.tolist(), strict=True))

    expected = rows()
    everywhere()
    assert rows() == expected
    assert max(share for _, _, share in expected) > 1 / 9


def test_greedy_tokens_are_those_of_the_cpu(everywhere):
    model, ids, mask = asked(num_key_value_heads=2)
    settings = {"group_size": 1, "max_new_tokens": 30, "eos": EOS, "pad": PAD, "batch_size": 2}
    expected = rollout.sample_all(model, ids, mask, **settings)
    everywhere()
    assert torch.equal(rollout.sample_all(model, ids, mask, **settings).completion_ids, expected.completion_ids)

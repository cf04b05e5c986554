"""What vLLM samples, and with which weights: against the policy's own forward pass and its own sampler."""

import pytest
import torch

from tests.vllm.helpers import CPU, Engine
from trainers.policy import vllm_engine
from trainers.policy.config import Scratch
from trainers.policy.learner import per_token_logps, response_logits
from trainers.policy.models import build_policy, save_policy
from trainers.policy.responses import Responder
from trainers.policy.text import decode, word_tokenizer

pytestmark = [pytest.mark.vllm, pytest.mark.slow]

PROMPTS = [[5, 9, 12], [7, 3, 8, 20, 11, 4], [6], [9, 9, 10, 12, 14]]
ROUNDING = 1e-4  # nats, float32, of any token; measured: 2e-6 at most at the start, 1e-5 with weights that were moved


def gap(sampler, temperature=0.7, **settings):
    """The largest difference between the engine's log-probabilities and those of the trained weights, nats."""
    sequences, _ = sampler(PROMPTS, temperature=temperature, **settings)
    with torch.no_grad():
        now, _ = per_token_logps(sampler.model, sequences, temperature)
    return (now - sequences.logps).abs().max().item()


@pytest.mark.parametrize("temperature", [0.7, 1.0, 1.6])
def test_log_probabilities_are_those_of_the_weights_at_the_temperature(sampler, temperature):
    assert gap(sampler, temperature) < ROUNDING


def test_responses_are_laid_out_as_those_of_the_own_sampler(sampler):
    sequences, texts = sampler(PROMPTS)
    own, own_texts = Responder(sampler.model, sampler.tokenizer, CPU)(
        PROMPTS, group_size=4, limit=20, generator=torch.Generator().manual_seed(0)
    )
    assert torch.equal(sequences.prompt_ids, own.prompt_ids)
    assert torch.equal(sequences.prompt_mask, own.prompt_mask)
    assert len(texts) == len(own_texts) == len(sequences) == 16
    for name in ("completion_ids", "completion_mask", "logps"):
        ours, theirs = getattr(own, name), getattr(sequences, name)
        assert (ours.dtype, ours.shape[0]) == (theirs.dtype, theirs.shape[0])
    ends = (sequences.completion_ids == sampler.tokenizer.eos_token_id) & sequences.completion_mask.bool()
    lengths = sequences.lengths
    assert ends.any()  # some end by themselves; then with the token that says so, and nothing after it
    assert not (lengths < 20).logical_xor(ends.any(1)).logical_and(lengths < 20).any()
    assert torch.equal(ends.float().argmax(1)[ends.any(1)] + 1, lengths[ends.any(1)])
    assert sequences.logps[~sequences.completion_mask.bool()].eq(0).all()
    assert sequences.completion_ids[~sequences.completion_mask.bool()].eq(0).all()
    assert texts == decode(sampler.tokenizer, sequences.completion_ids, sequences.completion_mask)


def test_tokens_are_as_frequent_as_the_policy_says(sampler):
    """The first token of 4,000 responses; chi-square, over the tokens that are expected ten times."""
    sequences, _ = sampler([PROMPTS[0]], group_size=4000, limit=1, temperature=0.7)
    with torch.no_grad():
        logits = response_logits(sampler.model, sequences.select(torch.tensor([0])))[0, 0]
    expected = 4000 * torch.softmax(logits / 0.7, -1)
    counted = torch.bincount(sequences.completion_ids[:, 0], minlength=len(expected))
    often = expected >= 10
    statistic = ((counted - expected)[often].square() / expected[often]).sum().item()
    assert statistic < 2.5 * int(often.sum())  # its mean is their number; for 10 of them 2.5 is at 1 in 200


def test_every_weight_follows(sampler):
    """Each parameter is moved alone; without the new one the engine's log-probabilities would be others."""
    for name, parameter in sampler.model.named_parameters():
        noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1))
        before = parameter.detach().clone()
        with torch.no_grad():
            parameter.add_(noise * 0.2)
            sequences, _ = sampler(PROMPTS)
            now, _ = per_token_logps(sampler.model, sequences)
            parameter.copy_(before)
            old, _ = per_token_logps(sampler.model, sequences)
        assert (now - sequences.logps).abs().max() < ROUNDING, name
        assert name.endswith("k_proj.bias") or (old - sequences.logps).abs().max() > 20 * ROUNDING, name


def test_a_tied_output_matrix_follows_its_embedding_and_would_not_by_itself(tied_engine, monkeypatch):
    """On a CPU vLLM multiplies by a packed copy. Once vLLM packs it itself, drop `_repack_output`."""
    embedding = tied_engine.model.get_input_embeddings().weight
    assert tied_engine.model.get_output_embeddings().weight is embedding
    with torch.no_grad():
        embedding.mul_(1.5)
    assert gap(tied_engine) < ROUNDING
    monkeypatch.setattr(vllm_engine, "_repack_output", lambda _: None)
    with torch.no_grad():
        embedding.mul_(1.5)
    assert gap(tied_engine) > 0.1
    monkeypatch.undo()
    assert gap(tied_engine) < ROUNDING


def test_old_weights_are_seen(sampler, monkeypatch):
    monkeypatch.setattr(sampler.engine, "hand_over", lambda: None)
    with torch.no_grad():
        for parameter in sampler.model.parameters():
            parameter.mul_(1.2)
    assert gap(sampler) > 0.1


def test_keys_and_values_of_old_weights_are_forgotten(tied_engine):
    """The same long prompt, before and after: vLLM would find it among what it has read."""
    prompt = [[5 + i % 20 for i in range(160)]]
    for factor in (1.0, 1.3):
        with torch.no_grad():
            tied_engine.model.model.layers[0].self_attn.v_proj.weight.mul_(factor)
        sequences, _ = tied_engine(prompt)
        with torch.no_grad():
            now, _ = per_token_logps(tied_engine.model, sequences)
        assert (now - sequences.logps).abs().max() < ROUNDING


def test_what_it_would_answer_otherwise_is_refused(tied_engine):
    with pytest.raises(ValueError, match=r"prompt of 250 tokens.*rollout.vllm.longest"):
        tied_engine([[5] * 250])
    with pytest.raises(ValueError, match=r"below 0.01"):
        tied_engine(PROMPTS, temperature=0.001)
    with pytest.raises(ValueError, match="without sampling"):
        tied_engine(PROMPTS, seed=None, temperature=0.5)


def test_a_shape_that_vllm_cannot_run_is_refused_in_one_line(tmp_path):
    tokenizer = word_tokenizer(["a", "b"])
    save_policy(tmp_path, build_policy(Scratch(hidden=32, heads=2), tokenizer, 0), tokenizer)
    with pytest.raises(ValueError, match=r"rollout.engine vllm cannot run this.*head_dim=16") as caught:
        Engine(tmp_path)
    assert "\n" not in str(caught.value)

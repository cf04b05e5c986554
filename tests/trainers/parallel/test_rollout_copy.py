"""The copy that several ranks sample with in bfloat16: the numbers of the whole model, at half of its bytes."""

import pytest
import torch
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

from ablation.runner.ranks import ALONE
from tests.trainers.parallel.copying import Copying
from tests.trainers.parallel.live_memory import LiveMemory
from tests.trainers.parallel.updates import PROMPTS
from tests.trainers.policy.helpers import EOS, PAD, uniforms
from trainers.parallel.weights import LINEAR, rollout_copy
from trainers.policy.config import Precision
from trainers.policy.learner import batched_logps, per_token_logps
from trainers.policy.models import Placement, checkpoint_activations
from trainers.policy.responses import Responder
from trainers.policy.rollout import sample
from trainers.policy.systematic_sampling import sample_evenly
from trainers.policy.text import pad
from trainers.running.micro_batch import MicroBatch

SHAPE = {"vocab_size": 300, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
HEADS = {"num_attention_heads": 4, "num_key_value_heads": 2, "initializer_range": 0.3}
DROPOUT = dict.fromkeys(("resid_pdrop", "embd_pdrop", "attn_pdrop"), 0.0)
MODELS = {
    "qwen2 tied": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, **HEADS, tie_word_embeddings=True)),
    "qwen2 untied": lambda: Qwen2ForCausalLM(Qwen2Config(**SHAPE, **HEADS, tie_word_embeddings=False)),
    "llama": lambda: LlamaForCausalLM(LlamaConfig(**SHAPE, **HEADS, tie_word_embeddings=False)),
    "gpt2": lambda: GPT2LMHeadModel(
        GPT2Config(vocab_size=300, n_embd=64, n_layer=2, n_head=4, initializer_range=0.3, **DROPOUT)
    ),
}


@pytest.fixture(params=MODELS)
def model(request):
    torch.manual_seed(0)
    made = MODELS[request.param]().eval()
    with torch.no_grad():  # biases and norms are 0 and 1 to begin with
        for parameter in made.parameters():
            parameter.add_(0.05 * torch.randn(parameter.shape))
    return made


def autocast(*, keep=False):
    return torch.autocast("cpu", dtype=torch.bfloat16, cache_enabled=keep)


def drawn(model):
    prompts = pad(PROMPTS, PAD, left=True)
    with autocast():
        return sample(model, *prompts, group_size=4, max_new_tokens=12, eos=EOS, pad=PAD, uniforms=uniforms(16, 12))


def test_it_gives_the_numbers_of_the_whole_model_bit_for_bit(model):
    made = rollout_copy(model, ALONE.full_tensor)
    expected, found = drawn(model), drawn(made)
    assert torch.equal(found.completion_ids, expected.completion_ids)
    assert torch.equal(found.logps, expected.logps)
    assert len(expected.completion_ids.unique()) > 20  # it is not a model that always says the same
    with autocast():
        both = [batched_logps(each, expected, 1.0, MicroBatch(5)) for each in (model, made)]
        spread = [
            sample_evenly(each, *pad(PROMPTS, PAD, left=True), uniforms=uniforms(32, 6).view(4, 8, 6), eos=EOS, pad=PAD)
            for each in (model, made)
        ]
    assert torch.equal(*both)
    assert torch.equal(spread[0].sequences.completion_ids, spread[1].sequences.completion_ids)
    with autocast(keep=True):  # as a single device computes it
        assert torch.equal(batched_logps(model, expected, 1.0, MicroBatch(5)), both[0])


def test_a_tied_output_matrix_follows_the_embedding(model):
    with torch.no_grad():
        model.get_input_embeddings().weight.mul_(1.5)
    made = rollout_copy(model, ALONE.full_tensor)
    words, output = made.get_input_embeddings().weight, made.get_output_embeddings().weight
    assert torch.equal(words, model.get_input_embeddings().weight)
    assert torch.equal(output, model.get_output_embeddings().weight.bfloat16())
    assert torch.equal(output, words.bfloat16()) == model.config.tie_word_embeddings


def test_of_frozen_weights_in_bfloat16_a_tied_matrix_is_copied_once(model):
    """As those beside adapters are; the embedding is in bfloat16 itself."""
    made = rollout_copy(model.bfloat16(), ALONE.full_tensor)
    words, output = made.get_input_embeddings().weight, made.get_output_embeddings().weight
    assert (words.data_ptr() == output.data_ptr()) == model.config.tie_word_embeddings


def test_its_bytes_are_2_for_a_parameter_and_2_more_for_words(model):
    """And 2 more for a tied output matrix."""
    words = sum(each.weight.numel() for each in model.modules() if isinstance(each, torch.nn.Embedding))
    parameters = sum(each.numel() for each in model.parameters())
    again = model.get_input_embeddings().weight.numel() if model.config.tie_word_embeddings else 0
    with LiveMemory() as memory:
        made = rollout_copy(model, ALONE.full_tensor)
        assert memory.live == pytest.approx(2 * (parameters + words + again), rel=0.01)
        assert memory.peak == memory.live
        drawn(made)
        peak = memory.peak
        del made
        assert memory.live < 0.01 * peak


def test_after_the_responses_nothing_of_it_is_left(model):
    tokenizer = type("Tokenizer", (), {"eos_token_id": EOS, "pad_token_id": PAD})()
    tokenizer.batch_decode = tokenizer.decode = lambda ids, **_: ""
    respond = Responder(model, tokenizer, Placement.of(["cpu"], Precision(compute="bfloat16"), Copying()))
    generator = torch.Generator().manual_seed(0)
    with LiveMemory() as memory:
        respond(PROMPTS, group_size=2, limit=6, generator=generator)
        respond.evenly(PROMPTS, samples=2, limit=6, temperature=1.0, generator=generator, micro_batch=MicroBatch())
        assert memory.peak > 2 * sum(each.numel() for each in model.parameters())
        assert memory.live < 0.05 * memory.peak


@pytest.mark.parametrize("checkpointing", [False, True])
def test_without_autocasts_cache_an_update_is_the_same_and_keeps_no_bfloat16_weights(model, checkpointing):
    """With activation checkpointing: 2 bytes for each weight of the blocks. Without, autograd keeps them either way."""
    sequences = drawn(model)
    if checkpointing:
        checkpoint_activations(model)
    model.train()
    found = []
    for keep in (True, False):
        with LiveMemory() as memory:
            with autocast(keep=keep):
                logps, entropy = per_token_logps(model, sequences.select(torch.arange(1)))
                after_forward = memory.live
            (logps.sum() + entropy.sum()).backward()
        gradients = [parameter.grad for parameter in model.parameters()]
        model.zero_grad()
        found.append((after_forward, memory.peak, logps.detach(), *gradients))
    kept, without = found
    assert all(torch.equal(one, two) for one, two in zip(kept[2:], without[2:], strict=True))
    layers = [each for each in model.modules() if type(each) in LINEAR and each is not model.get_output_embeddings()]
    whole = 2 * sum(value.numel() for each in layers for value in each.parameters())
    saved = kept[0] - without[0]
    assert saved == pytest.approx(whole if checkpointing else 0, abs=0.02 * whole)

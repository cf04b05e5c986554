"""A tiny language model with random weights and a byte-level tokenizer, for the smoke scale, tests and benchmarks."""

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import (
    GPT2Config,
    GPT2LMHeadModel,
    LlamaConfig,
    LlamaForCausalLM,
    PreTrainedModel,
    PreTrainedTokenizerFast,
)

SPECIAL = ("<s>", "</s>", "<pad>", "<unk>")


def build_tokenizer() -> PreTrainedTokenizerFast:
    """Return a byte-level tokenizer with 256 byte tokens and four special tokens."""
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocab = {token: number for number, token in enumerate((*SPECIAL, *alphabet))}
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    bos, eos, pad, unknown = SPECIAL
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, bos_token=bos, eos_token=eos, pad_token=pad, unk_token=unknown
    )


def build_random_model(
    architecture: str, *, hidden: int, layers: int, heads: int, vocab: int, positions: int, seed: int
) -> tuple[PreTrainedModel, PreTrainedTokenizerFast]:
    """Return a model of `architecture` ("llama" or "gpt2") with seeded random weights, and its tokenizer.

    The weights' standard deviation is 0.1, five times the usual one, so that next-token distributions are not uniform.
    """
    tokenizer = build_tokenizer()
    ids = {"bos_token_id": tokenizer.bos_token_id, "eos_token_id": tokenizer.eos_token_id}
    common = {**ids, "pad_token_id": tokenizer.pad_token_id, "vocab_size": vocab, "initializer_range": 0.1}
    with torch.random.fork_rng(devices=[]):  # transformers draws initial weights from the global generator
        torch.manual_seed(seed)
        if architecture == "gpt2":
            small = GPT2Config(n_embd=hidden, n_layer=layers, n_head=heads, n_positions=positions, **common)
            return GPT2LMHeadModel(small).eval(), tokenizer
        config = LlamaConfig(
            hidden_size=hidden,
            intermediate_size=2 * hidden,
            num_hidden_layers=layers,
            num_attention_heads=heads,
            num_key_value_heads=heads,
            max_position_embeddings=positions,
            tie_word_embeddings=True,
            **common,
        )
        return LlamaForCausalLM(config).eval(), tokenizer

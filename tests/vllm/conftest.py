"""Tests of vLLM as the sampler: they run in the environment that has it (`make test-vllm`), and nowhere else."""

import os
from importlib.util import find_spec

import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from tests.vllm.helpers import Engine
from trainers.policy.config import Scratch
from trainers.policy.models import build_policy, save_policy
from trainers.policy.text import word_tokenizer
from trainers.tasks.knights_knaves import WORDS


def pytest_collection_modifyitems(items):
    if find_spec("vllm") is None and not os.environ.get("VLLM_TESTS"):
        for item in items:
            if "tests/vllm/" in item.path.as_posix():
                item.add_marker(pytest.mark.skip(reason="no vLLM in this environment: make test-vllm"))


@pytest.fixture(scope="session")
def folders(tmp_path_factory):
    """A Qwen2 whose output matrix is its embedding, and a Llama with one of its own."""
    root, tokenizer = tmp_path_factory.mktemp("models"), word_tokenizer(WORDS)
    tied = build_policy(Scratch(hidden=64, heads=2, feed_forward=96, init_std=0.2), tokenizer, seed=0)
    save_policy(root / "tied", tied, tokenizer)
    torch.manual_seed(0)
    shape = {"vocab_size": len(tokenizer), "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2}
    untied = LlamaForCausalLM(
        LlamaConfig(**shape, num_attention_heads=2, num_key_value_heads=1, initializer_range=0.2, eos_token_id=1)
    )
    save_policy(root / "untied", untied, tokenizer)
    return root


@pytest.fixture(scope="session")
def tied_engine(folders):
    return Engine(folders / "tied")


@pytest.fixture(scope="session")
def untied_engine(folders):
    return Engine(folders / "untied")


@pytest.fixture(params=["tied", "untied"])
def sampler(request):
    """Both in turn, with the weights of the start."""
    found = request.getfixturevalue(f"{request.param}_engine")
    with torch.no_grad():
        for name, value in found.model.named_parameters():
            value.copy_(found.start[name])
    return found

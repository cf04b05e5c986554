"""A vocabulary, a tiny policy in double precision, prompts, and a warm start of a few steps."""

import json

import pytest
import torch
from transformers import LlamaConfig, LlamaForSequenceClassification

from tests.trainers.policy import helpers
from tests.trainers.policy.helpers import CHAT, PAD, TINY
from trainers.models.random_model import build_random_model
from trainers.policy.models import build_policy
from trainers.policy.text import pad, word_tokenizer
from trainers.tasks.knights_knaves import WORDS


@pytest.fixture(scope="session")
def tokenizer():
    return word_tokenizer(WORDS)


@pytest.fixture
def model(tokenizer):
    return build_policy(TINY, tokenizer, seed=0).double().eval()


@pytest.fixture(scope="session")
def prompts():
    rows = [[5, 9, 12], [7, 3, 8, 20, 11, 4], [6], [9, 9, 10, 12, 14]]
    return pad(rows, PAD, left=True)


@pytest.fixture(scope="session")
def prepared(tmp_path_factory):
    return helpers.prepared(tmp_path_factory.mktemp("policy"))


@pytest.fixture(scope="module")
def assets(tmp_path_factory):
    """Folders as the stage `assets` leaves them: a policy, a reward model with its tokenizer, questions."""
    root = tmp_path_factory.mktemp("assets")
    model, tokenizer = build_random_model("llama", hidden=16, layers=1, heads=2, vocab=260, positions=512, seed=0)
    tokenizer.chat_template = CHAT
    model.save_pretrained(root / "model" / "files")
    tokenizer.save_pretrained(root / "model" / "files")
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2, "intermediate_size": 16}
    words = {"vocab_size": len(tokenizer), "pad_token_id": tokenizer.pad_token_id}
    judge = LlamaForSequenceClassification(LlamaConfig(**sizes, **words, num_labels=1))
    judge.save_pretrained(root / "judge" / "files")
    tokenizer.chat_template = None
    tokenizer.save_pretrained(root / "judge" / "files")
    (root / "questions" / "files").mkdir(parents=True)
    rows = [{"question": f"What is {i} + {i}?", "answer": f"twice {i}\n#### {2 * i}"} for i in range(120)]
    (root / "questions" / "files" / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return root

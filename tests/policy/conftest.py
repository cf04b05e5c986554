"""A vocabulary, a tiny policy in double precision, prompts, and a warm start of a few steps."""

import pytest
from policy_helpers import PAD, SMALL, TINY, stage

from trainers.policy import task_data, warm_start
from trainers.policy.config import (
    PolicyConfig,
)
from trainers.policy.models import build_policy
from trainers.policy.text import pad, word_tokenizer
from trainers.tasks.knights_knaves import WORDS


@pytest.fixture(scope="module")
def tokenizer():
    return word_tokenizer(WORDS)


@pytest.fixture
def model(tokenizer):
    return build_policy(TINY, tokenizer, seed=0).double().eval()


@pytest.fixture(scope="module")
def prompts():
    rows = [[5, 9, 12], [7, 3, 8, 20, 11, 4], [6], [9, 9, 10, 12, 14]]
    return pad(rows, PAD, left=True)


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    root = tmp_path_factory.mktemp("policy")
    config = PolicyConfig(**SMALL)
    task_data.run(stage(root / "task_data", config, {}))
    warm_start.run(stage(root / "warm_start", config, {"task_data": root / "task_data"}))
    return {"task_data": root / "task_data", "warm_start": root / "warm_start"}

"""torch as the trainers set it."""

import pytest
import torch

from trainers.harness import fix_randomness


@pytest.fixture(autouse=True)
def as_trainers_do(monkeypatch):
    monkeypatch.setattr(torch, "set_num_interop_threads", lambda count: None)  # once in a process
    fix_randomness(0, 1)
    yield
    torch.use_deterministic_algorithms(False)

"""Dynamic sampling: which groups are kept, and when it stops."""

import pytest
import torch

from tests.trainers.policy.helpers import PAD
from trainers.policy.batch import Sequences
from trainers.policy.dynamic_sampling import informative_groups
from trainers.policy.rewards import Rollout


def rollout(correct):
    correct = torch.tensor(correct, dtype=torch.float32)
    n = len(correct)
    one = torch.ones(n, 1, dtype=torch.long)
    sequences = Sequences(one, one, correct[:, None].long() + 10, one, torch.zeros(n, 1))
    return Rollout(sequences, correct * 2, correct, {"reward/mean": correct.mean().item()})


def test_dynamic_sampling_keeps_informative_groups_until_there_are_enough():
    rounds = iter([rollout([1, 1, 0, 1, 0, 0]), rollout([0, 1, 1, 1, 1, 0]), rollout([1, 1, 1, 1, 1, 1])])
    found = informative_groups(lambda: next(rounds), group_size=2, max_rounds=5, padding=PAD)
    assert found.correct.tolist() == [0, 1, 0, 1, 1, 0]  # one group of the first round, two of the second
    assert found.rewards.tolist() == [0, 2, 0, 2, 2, 0]
    assert found.sequences.completion_ids[:, 0].tolist() == [10, 11, 10, 11, 11, 10]
    assert found.metrics["sampling/rounds"] == 2
    assert found.metrics["sampling/kept_groups"] == 3
    assert found.metrics["reward/mean"] == pytest.approx((3 / 6 + 4 / 6) / 2)


def test_dynamic_sampling_stops_at_its_limit():
    found = informative_groups(lambda: rollout([1, 1, 0, 1]), group_size=2, max_rounds=2, padding=PAD)
    assert found.correct.tolist() == [0, 1, 0, 1]
    none = informative_groups(lambda: rollout([1, 1, 0, 0]), group_size=2, max_rounds=2, padding=PAD)
    assert none.correct.tolist() == [1, 1, 0, 0]
    assert none.metrics["sampling/kept_groups"] == 0

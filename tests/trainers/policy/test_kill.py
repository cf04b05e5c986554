"""The real process of a reinforce stage, killed with SIGKILL and started again: the same bits as undisturbed."""

import pytest

from tests.trainers.killed import assert_a_kill_changes_no_bit
from tests.trainers.policy.helpers import SMALL
from trainers.policy.config import PolicyConfig

PPO = {"advantage": {"kind": "gae"}, "rollout": {"responses": 16, "group_size": 1}}


@pytest.mark.slow
@pytest.mark.parametrize("variant", [{}, PPO], ids=["grpo", "ppo"])
def test_kill_9_and_start_again_ends_with_the_same_bits(prepared, tmp_path, variant):
    assert_a_kill_changes_no_bit(
        tmp_path,
        "policy/model.safetensors",
        id="innovations.reinforce",
        entry="trainers.policy.reinforce",
        config=PolicyConfig(**{**SMALL, "steps": 12, **variant}),
        inputs=prepared,
        seed=0,
    )

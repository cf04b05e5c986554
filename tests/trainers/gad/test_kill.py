"""kill -9 in each of the three stages that train, as the workflow starts them, then again."""

import pytest

from tests.trainers.gad.helpers import ENTRIES, config, inputs_of, run_stage
from tests.trainers.killed import assert_a_kill_changes_no_bit


@pytest.mark.slow
@pytest.mark.parametrize("name", ["seqkd", "warmup", "gad"])
def test_kill_9_and_start_again_ends_with_the_same_bits(root, name):
    if name == "gad":
        run_stage(root, "warmup", config())
    assert_a_kill_changes_no_bit(
        root / "kill",
        "student/model.safetensors",
        id=f"gad.{name}",
        entry=ENTRIES[name],
        config=config(seqkd={"max_steps": 30, "epochs": 20}, warmup={"max_steps": 6}, gad={"max_steps": 6}),
        inputs=inputs_of(root, name),
        seed=None if name == "seqkd" else 0,
    )

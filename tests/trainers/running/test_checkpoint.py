"""A checkpoint is the previous one or the new one, never something between, whatever kills the process."""

import os
import subprocess
import sys
import time
from multiprocessing import get_context

import pytest
import torch

from tests.workflow.project import wait_for
from trainers.running import checkpoint


def test_comes_back_with_all_bits(tmp_path):
    generator = torch.Generator().manual_seed(7)
    tensors = {
        "weight": torch.randn(3, 5, generator=generator),
        "moment": torch.tensor([1e-45, -0.0, float("inf")]),
        "rng": generator.get_state(),
        "half": torch.ones(2, dtype=torch.bfloat16),
    }
    state = {"lr": 0.1 + 0.2, "best": None, "epochs": [1, 2], "name": "é"}
    checkpoint.save(tmp_path / "c", 12, tensors, state)
    step, loaded, loaded_state = checkpoint.load(tmp_path / "c")
    assert (step, loaded_state) == (12, state)
    assert loaded.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert loaded[name].dtype == tensor.dtype
        assert torch.equal(loaded[name].view(torch.uint8), tensor.view(torch.uint8))


def test_tied_and_sliced_tensors_are_stored_apart(tmp_path):
    base = torch.arange(6.0).reshape(2, 3)
    checkpoint.save(tmp_path, 1, {"a": base, "tied": base, "column": base[:, 1]}, {})
    tensors = checkpoint.load(tmp_path).tensors
    assert tensors["column"].tolist() == [1.0, 4.0]
    assert torch.equal(tensors["a"], tensors["tied"])


def test_a_tensor_that_is_not_there_is_an_error_that_ends_a_stage(tmp_path):
    checkpoint.save(tmp_path, 1, {"w": torch.ones(1)}, {})
    with pytest.raises(RuntimeError, match="Missing key in checkpoint state_dict: other"):
        checkpoint.load(tmp_path).tensors.read({"other": torch.zeros(1)})


def test_without_tensors_torch_is_not_needed(tmp_path):
    code = """
import sys
sys.modules["torch"] = None  # an import of it is an ImportError
from pathlib import Path
from trainers.running import checkpoint
folder = Path(sys.argv[1])
checkpoint.save(folder, 3, {}, {"seen": [1, 2]})
checkpoint.save(folder, 4, {}, {"seen": [1, 2, 3]})
assert checkpoint.load(folder) == (4, {}, {"seen": [1, 2, 3]})
"""
    subprocess.run([sys.executable, "-c", code, str(tmp_path)], check=True)
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.STATE]
    assert checkpoint.load(tmp_path).step == 4
    checkpoint.save(tmp_path, 5, {"w": torch.ones(1)}, {})  # with tensors from now on, and without again
    assert checkpoint.load(tmp_path).tensors["w"].tolist() == [1.0]
    checkpoint.save(tmp_path, 6, {}, {})
    assert checkpoint.load(tmp_path) == (6, {}, {})
    assert [path.name for path in tmp_path.iterdir()] == [checkpoint.STATE]


@pytest.mark.parametrize("state", [{"pair": (1, 2)}, {1: "integer key"}, {"object": object()}])
def test_a_state_that_json_would_change_is_refused_and_the_old_checkpoint_stays(tmp_path, state):
    checkpoint.save(tmp_path, 3, {"w": torch.ones(1)}, {})
    with pytest.raises((ValueError, TypeError)):
        checkpoint.save(tmp_path, 4, {"w": torch.zeros(1)}, state)
    assert checkpoint.load(tmp_path).step == 3


def _flip_byte(path):
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "damage",
    [
        lambda folder: _flip_byte(next(folder.rglob("*.safetensors"))),
        lambda folder: os.truncate(next(folder.rglob("*.safetensors")), 20),
        lambda folder: next(folder.rglob("*.safetensors")).unlink(),
        lambda folder: (folder / "state.json").write_text("{"),
        lambda folder: (folder / "state.json").write_bytes(b"\x80\x04garbage"),
        lambda folder: (folder / "state.json").write_text("[]"),
        lambda folder: (folder / "state.json").write_text('{"step": 1}'),
        lambda folder: (folder / "state.json").unlink(),
    ],
)
def test_a_damaged_one_counts_as_none_and_can_be_replaced(tmp_path, damage):
    checkpoint.save(tmp_path, 3, {"w": torch.ones(4)}, {})
    damage(tmp_path)
    assert checkpoint.load(tmp_path) is None
    checkpoint.save(tmp_path, 4, {"w": torch.ones(4)}, {})
    assert checkpoint.load(tmp_path).step == 4


def test_killed_between_the_two_files_leaves_the_previous(tmp_path, monkeypatch):
    checkpoint.save(tmp_path, 1, {"w": torch.zeros(3)}, {"v": 1})

    def power_cut(path, text):
        raise KeyboardInterrupt

    monkeypatch.setattr(checkpoint, "write_text", power_cut)
    with pytest.raises(KeyboardInterrupt):
        checkpoint.save(tmp_path, 2, {"w": torch.ones(3)}, {"v": 2})
    step, tensors, state = checkpoint.load(tmp_path)
    assert (step, state, tensors["w"].tolist()) == (1, {"v": 1}, [0, 0, 0])


def save_without_end(folder):
    for step in range(10**6):
        checkpoint.save(folder, step, {"w": torch.full((20000,), float(step))}, {"step": step})


def test_kill_9_at_random_moments_always_leaves_a_consistent_one(tmp_path):
    most = 0
    for round_ in range(12):
        process = get_context("fork").Process(target=save_without_end, args=[tmp_path])
        process.start()
        wait_for((tmp_path / "state.json").exists)
        time.sleep(0.1 + 0.037 * round_)
        process.kill()
        process.join()
        step, tensors, state = checkpoint.load(tmp_path)
        assert state["step"] == step
        assert torch.equal(tensors["w"], torch.full((20000,), float(step)))
        most = max(most, step)
    assert most > 0

"""What a command's `collect` may name, and that each name is read by the reader of the imports."""

import json

import pytest

from contract.errors import ConfigError
from tracker.config.commands import READERS
from tracker.imports.collected import collect
from tracker.imports.formats import FORMATS


def test_every_format_of_a_run_can_be_collected():
    assert set(READERS) == {"metrics", "items"} | set(FORMATS) - {"database"}  # a database is of many runs


def test_metrics_of_the_trainer_and_items_of_its_own_file(tmp_path):
    rows = [{"step": 1, "loss": 0.5, "reward": 0.25}, {"step": 2, "loss": 0.4, "reward": 0.5}]
    (tmp_path / "trainer_state.json").write_text(json.dumps({"global_step": 2, "max_steps": 2, "log_history": rows}))
    (tmp_path / "items.jsonl").write_text('{"item": "a", "value": 1}\n{"item": "b", "value": 0.5}\n')
    metrics, items = collect(tmp_path, [{"reader": "trainer_state", "place": "."}, {"reader": "items", "place": "."}])
    found = {(row["step"], row["name"]): row["value"] for row in metrics.to_pylist()}
    assert found == {
        **{(1, "loss"): 0.5, (1, "reward"): 0.25, (2, "loss"): 0.4, (2, "reward"): 0.5},
        (2, "test/all/value"): 0.75,
    }
    assert items.column("item").to_pylist() == ["a", "b"]


def test_of_a_log_that_was_opened_anew_both_parts_count(tmp_path):
    """As examples/verl/train.sh leaves them: the first log is put aside, later steps replace its last."""
    (tmp_path / "earlier").mkdir()
    (tmp_path / "validation").mkdir()
    logs = {"earlier/metrics-1700000000.jsonl": [(1, 0.1), (2, 0.2)], "metrics.jsonl": [(2, 0.25), (3, 0.3)]}
    for name, steps in logs.items():
        lines = [json.dumps({"step": step, "data": {"reward": value}}) for step, value in steps]
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    sample = {"input": "1 + 1", "output": "2", "gts": "2", "score": 1.0, "step": 3}
    (tmp_path / "validation" / "3.jsonl").write_text(json.dumps(sample) + "\n")
    metrics, items = collect(tmp_path, [{"reader": "verl", "place": "."}])
    reward = {row["step"]: row["value"] for row in metrics.to_pylist() if row["name"] == "reward"}
    assert reward == {1: 0.1, 2: 0.25, 3: 0.3}
    assert {(row["protocol"], row["subset"], row["name"]) for row in items.to_pylist()} == {
        ("validation", "step 3", "score")
    }


def test_nothing_to_read_is_an_error(tmp_path):
    with pytest.raises(ConfigError, match=r"trainer_state\.json"):
        collect(tmp_path, [{"reader": "trainer_state", "place": "."}])

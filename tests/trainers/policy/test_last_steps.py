"""An evaluation over several of the last policies of a training."""

import pandas as pd
import pytest
from pydantic import ValidationError

from tests.trainers.policy.helpers import SMALL, stage, train
from trainers.policy import evaluate, reinforce
from trainers.policy.config import Evaluate, PolicyConfig
from trainers.policy.last_steps import keep_policy, kept_policies, measured_steps
from trainers.policy.models import load_policy, load_tokenizer
from trainers.policy.placement import Placement


def items(folder, config, inputs):
    evaluate.run(stage(folder, config, inputs))
    return pd.read_parquet(folder / "items.parquet").set_index(["protocol", "name", "item"])["value"].sort_index()


def test_the_last_step_comes_last():
    assert measured_steps(12, Evaluate(checkpoints=3, apart=2)) == [8, 10, 12]
    assert measured_steps(12, Evaluate()) == [12]


def test_values_are_means_over_the_last_policies(prepared, tmp_path):
    """Each of them measured on its own, the one of n steps before the last with a seed of n more."""
    config = PolicyConfig(**(SMALL | {"steps": 3, "evaluate": Evaluate(samples=2, checkpoints=2, apart=2, seed=5)}))
    train(tmp_path / "run", prepared, config)
    assert [path.name for path in kept_policies(tmp_path / "run")] == ["1"]
    found = items(tmp_path / "both", config, {"task_data": prepared["task_data"], "policy": tmp_path / "run"})
    alone = []
    for number, folder in enumerate((tmp_path / "run" / "policy", tmp_path / "run" / "steps" / "1")):
        (tmp_path / f"only-{number}").mkdir()
        (tmp_path / f"only-{number}" / "policy").symlink_to(folder)
        single = PolicyConfig(**(SMALL | {"evaluate": Evaluate(samples=2, seed=5 + number)}))
        inputs = {"task_data": prepared["task_data"], "policy": tmp_path / f"only-{number}"}
        alone.append(items(tmp_path / f"alone-{number}", single, inputs))
    assert (alone[0] != alone[1]).any()
    pd.testing.assert_series_equal(found["sampled"], ((alone[0] + alone[1]) / 2)["sampled"])
    pd.testing.assert_series_equal(found["greedy"], alone[0]["greedy"])


def test_a_training_is_the_same_whatever_is_kept_of_it(prepared, tmp_path):
    kept = PolicyConfig(**(SMALL | {"steps": 2, "evaluate": Evaluate(samples=2, checkpoints=2)}))
    plain = PolicyConfig(**(SMALL | {"steps": 2}))
    pd.testing.assert_frame_equal(train(tmp_path / "a", prepared, kept)[0], train(tmp_path / "b", prepared, plain)[0])
    assert not (tmp_path / "b" / "steps").exists()


def test_a_killed_run_keeps_the_same_policies(prepared, tmp_path, monkeypatch):
    """Killed after a step whose policy was kept, with a checkpoint before it: the step is taken and kept again."""
    config = PolicyConfig(**(SMALL | {"steps": 4, "evaluate": Evaluate(samples=2, checkpoints=3)}))

    class Killed(Exception):
        pass

    def killed(self, step, problems):
        if step == 3:
            raise Killed
        return original(self, step, problems)

    def kept(folder):
        return {path.name: (path / "model.safetensors").read_bytes() for path in kept_policies(folder)}

    train(tmp_path / "whole", prepared, config)
    original = reinforce.Trainer.step
    monkeypatch.setattr(reinforce.Trainer, "step", killed)
    with pytest.raises(Killed):
        train(tmp_path / "killed", prepared, config)
    monkeypatch.setattr(reinforce.Trainer, "step", original)
    before = kept(tmp_path / "killed")
    assert list(before) == ["3", "2"]
    for path in kept_policies(tmp_path / "killed")[:1]:  # the kill may also have come before this one was whole
        path.rename(path.with_name(".3.partial"))
    train(tmp_path / "killed", prepared, config)
    assert kept(tmp_path / "killed") == before == kept(tmp_path / "whole")


def test_a_policy_is_kept_whole_and_again(prepared, tmp_path):
    config = PolicyConfig(**SMALL)
    folder = prepared["warm_start"] / "policy"
    model = load_policy(folder, Placement.of(["cpu"], config.precision).policy, config.precision)
    for _ in range(2):  # a resumed run takes the step again
        keep_policy(tmp_path, 10, model, load_tokenizer(folder))
    (tmp_path / "steps" / ".9.partial").mkdir()  # a run was killed here
    keep_policy(tmp_path, 9, model, load_tokenizer(folder))
    assert [path.name for path in kept_policies(tmp_path)] == ["10", "9"]
    assert (tmp_path / "steps" / "9" / "model.safetensors").exists()
    assert kept_policies(prepared["warm_start"]) == []


def test_more_policies_than_steps_are_refused():
    with pytest.raises(ValidationError, match=r"evaluate.checkpoints 3, 2 steps apart, need more than 4 steps"):
        PolicyConfig(steps=4, evaluate=Evaluate(checkpoints=3, apart=2))
    assert PolicyConfig(steps=5, evaluate=Evaluate(checkpoints=3, apart=2)).evaluate.checkpoints == 3
    assert "evaluate.apart" in PolicyConfig().without_effect()

"""An evaluation over several of the last policies of a training."""

import contextlib
import shutil

import pandas as pd
import pytest

from tests.trainers.policy.helpers import SMALL, stage, train
from trainers.policy import evaluate
from trainers.policy.config import Evaluate, PolicyConfig
from trainers.policy.sources import KEPT, earlier_models, keeping


def items(folder, config, inputs):
    evaluate.run(stage(folder, config, inputs))
    return pd.read_parquet(folder / "items.parquet").set_index(["protocol", "name", "item"])["value"].sort_index()


def test_values_are_means_over_the_last_policies(prepared, tmp_path):
    """Each of them measured on its own, the one of n steps before the last with a seed of n more."""
    config = PolicyConfig(**(SMALL | {"steps": 3, "evaluate": Evaluate(samples=2, checkpoints=2, seed=5)}))
    train(tmp_path / "run", prepared, config)
    assert [path.name for path in (tmp_path / "run" / KEPT).iterdir()] == ["2"]
    before = {"task_data": prepared["task_data"], "policy": prepared["warm_start"]}
    items(tmp_path / "warm", config, before)  # of one policy, whatever is asked of those that were trained
    inputs = {"task_data": prepared["task_data"], "policy": tmp_path / "run", "warm": tmp_path / "warm"}
    found = items(tmp_path / "both", config, inputs)
    alone = []
    for number, folder in enumerate((tmp_path / "run" / "policy", tmp_path / "run" / "steps" / "2")):
        (tmp_path / f"only-{number}").mkdir()
        (tmp_path / f"only-{number}" / "policy").symlink_to(folder)
        single = PolicyConfig(**(SMALL | {"evaluate": Evaluate(samples=2, seed=5 + number)}))
        only = {"task_data": prepared["task_data"], "policy": tmp_path / f"only-{number}"}
        alone.append(items(tmp_path / f"alone-{number}", single, only))
    assert (alone[0] != alone[1]).any()
    pd.testing.assert_series_equal(found["sampled"], ((alone[0] + alone[1]) / 2)["sampled"])
    pd.testing.assert_series_equal(found["greedy"], alone[0]["greedy"])
    shutil.rmtree(tmp_path / "run" / KEPT)
    with pytest.raises(
        ValueError, match=r"run/steps: .* needs the models of 1 earlier step, but the kept steps are: none"
    ):
        items(tmp_path / "lost", config, inputs)


def test_a_model_is_kept_whole_and_again(tmp_path):
    for content in ("first", "again"):  # a resumed run takes the step again
        with keeping(tmp_path, 10) as folder:
            folder.mkdir()
            (folder / content).touch()
    with contextlib.suppress(OSError), keeping(tmp_path, 9) as folder:
        folder.mkdir()
        raise OSError("no space left")
    assert [path.name for path in tmp_path.glob("[0-9]*")] == ["10"]
    assert [path.name for path in (tmp_path / "10").iterdir()] == ["again"]
    with keeping(tmp_path, 9) as folder:
        folder.mkdir()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["10", "9"]


@pytest.mark.parametrize(
    ("there", "checkpoints", "right"),
    [
        (["8", "9"], 3, True),
        ([".10.partial", "8"], 2, True),
        ([], 1, True),
        (["8"], 3, False),
        (["8", "10"], 3, False),
        (["8", "9", "10"], 3, False),
        ([".8.partial"], 2, False),
        (["8"], 1, False),
    ],
)
def test_the_earlier_models_are_those_that_the_settings_ask_for(tmp_path, there, checkpoints, right):
    for name in there:
        (tmp_path / name).mkdir()
    if right:
        found = earlier_models(tmp_path, checkpoints)
        assert found == [tmp_path / name for name in reversed(there) if name.isdigit()]
    else:
        with pytest.raises(
            ValueError,
            match=rf"evaluate\.checkpoints = .* needs the models of .*delete {tmp_path.parent} to repeat the training",
        ):
            earlier_models(tmp_path, checkpoints)

"""Stages of study `demonstrations` that are killed and go on end with the same bits."""

import pytest

from tests.trainers.demonstrations.helpers import (
    assert_equal_weights,
    config,
    demonstrations_stage,
    run,
    variant,
    weights,
)
from tests.trainers.killed import assert_a_kill_changes_no_bit
from trainers.demonstrations import candidates, embed, evaluate, grpo, rce, resumable
from trainers.stage import Stage


class Killed(BaseException):
    """As abrupt as a kill, but in this process."""


class DyingStage(Stage):
    """Dies right after its n-th checkpoint."""

    left = 0

    def save_checkpoint(self, *args):
        super().save_checkpoint(*args)
        DyingStage.left -= 1
        if DyingStage.left == 0:
            raise Killed


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [1, 4, 5, 8])
@pytest.mark.parametrize("module", [rce, grpo])
def test_a_killed_stage_ends_with_the_same_bits(folders, tmp_path, module, checkpoint):
    """With three selectors one after the other: in the first, between two of them, in the second and the last."""
    name, settings = module.__name__.rpartition(".")[2], config(per_shot=["legacy", "hybrid", "separated"])
    inputs = dict(folders)
    if name == "grpo":
        inputs["rce"], _ = run("rce", settings, inputs, tmp_path / "rce")
    undisturbed = demonstrations_stage(name, settings, inputs, tmp_path / "undisturbed")
    module.run(undisturbed)
    DyingStage.left = checkpoint
    with pytest.raises(Killed):
        module.run(demonstrations_stage(name, settings, inputs, tmp_path / "killed", stage_class=DyingStage))
    again = demonstrations_stage(name, settings, inputs, tmp_path / "killed")
    module.run(again)
    assert again.metrics.rows == undisturbed.metrics.rows
    for mode in settings.per_shot:
        assert_equal_weights(weights(undisturbed.out, mode), weights(again.out, mode))


@pytest.mark.slow
@pytest.mark.parametrize("checkpoint", [1, 2, 5])
@pytest.mark.parametrize("module", [embed, candidates, evaluate])
def test_a_killed_pass_of_the_in_context_model_ends_with_the_same_bits(
    folders, tmp_path, monkeypatch, module, checkpoint
):
    """The stages that take days with a large model: every batch that was saved is not done again."""
    monkeypatch.setattr(resumable, "SAVE_AFTER", 0.0)
    name, settings = module.__name__.rpartition(".")[2], config(score_batch=7)
    inputs = dict(folders)
    if name == "evaluate":
        inputs, _ = variant(tmp_path / "trained", folders, settings)
    calls = []
    real = resumable.Resumable.rows
    monkeypatch.setattr(resumable.Resumable, "rows", lambda self, *a: real(self, a[0], a[1], counted(a[2], calls)))
    undisturbed = demonstrations_stage(name, settings, inputs, tmp_path / "undisturbed")
    module.run(undisturbed)
    total = len(calls)
    calls.clear()
    DyingStage.left = checkpoint
    with pytest.raises(Killed):
        module.run(demonstrations_stage(name, settings, inputs, tmp_path / "killed", stage_class=DyingStage))
    assert len(calls) == checkpoint
    again = demonstrations_stage(name, settings, inputs, tmp_path / "killed")
    module.run(again)
    assert total == len(calls)  # no batch twice
    assert again.metrics.rows == undisturbed.metrics.rows
    for file in ("embeddings.safetensors", "queries.json", "candidates.parquet", "items.parquet", "samples.parquet"):
        paths = [tmp_path / folder / file for folder in ("undisturbed", "killed")]
        assert paths[0].exists() == paths[1].exists()
        assert not paths[0].exists() or paths[0].read_bytes() == paths[1].read_bytes(), file


def counted(work, calls):
    """The same work, which leaves a mark for every call."""

    def marked(part):
        calls.append(len(part))
        return work(part)

    return marked


@pytest.mark.slow
@pytest.mark.parametrize("name", ["learner", "grpo"])
def test_kill_9_and_start_again_ends_with_the_same_bits(folders, tmp_path, name):
    settings = config(grpo={"epochs": 60}, learner={"steps": 200})
    inputs = {} if name == "learner" else {key: folders[key] for key in ("embed", "candidates")}
    if name == "grpo":
        inputs["rce"], _ = run("rce", settings, dict(folders), tmp_path / "rce")
    assert_a_kill_changes_no_bit(
        tmp_path,
        "learner/model.safetensors" if name == "learner" else "selector-legacy.safetensors",
        id=f"demonstrations.{name}",
        entry=f"trainers.demonstrations.{name}",
        config=settings,
        inputs=inputs,
        seed=None if name == "learner" else 0,
    )

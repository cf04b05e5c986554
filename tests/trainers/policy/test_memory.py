"""Out of memory while a policy, a critic or a warm start learns: smaller micro-batches, the same trajectory."""

from functools import partialmethod

import pytest
import torch

from tests.trainers.policy.helpers import SMALL, stage
from trainers.policy import grpo, reinforce, rollout, supervised, warm_start
from trainers.policy import learner as learner_module
from trainers.policy.config import PolicyConfig
from trainers.policy.value_model import ValueModel


class Scarce:
    """Stands for a function of (model, sequences, ...) on a device that holds `rows` responses."""

    def __init__(self, function, rows):
        self.function, self.rows, self.refused = function, rows, []

    def __call__(self, model, sequences, *arguments, **more):
        if len(sequences) > self.rows:
            self.refused.append(len(sequences))
            raise torch.OutOfMemoryError("CUDA out of memory")
        return self.function(model, sequences, *arguments, **more)


def rows_of(made):
    timed = ("time/", "memory/")
    return {(step, name): value for step, name, value in made.metrics.rows if not name.startswith(timed)}


def memory_of(made):
    return [(step, name, value) for step, name, value in made.metrics.rows if name.startswith("memory/")]


def reinforced(folder, inputs, config):
    """The stage after its first update: later steps would sample from other roundings."""
    made = stage(folder, config, inputs, seed=0)
    reinforce.run(made)
    return made


@pytest.mark.parametrize("advantage", ["relative", "gae"])
def test_reinforce_takes_the_same_step_with_less_memory(tmp_path, prepared, monkeypatch, advantage):
    rollout = SMALL["rollout"].model_copy(update={"group_size": 1} if advantage == "gae" else {})
    config = PolicyConfig(**{**SMALL, "steps": 1, "advantage": {"kind": advantage}, "rollout": rollout})
    expected = rows_of(reinforced(tmp_path / "whole", prepared, config))
    scarce = Scarce(grpo.per_token_logps, 3)
    monkeypatch.setattr(grpo, "per_token_logps", scarce)
    monkeypatch.setattr(learner_module, "per_token_logps", scarce)
    forward = Scarce(ValueModel.forward, 5)
    monkeypatch.setattr(ValueModel, "forward", partialmethod(forward))
    made = reinforced(tmp_path / "scarce", prepared, config)
    found = rows_of(made)
    assert scarce.refused
    assert bool(forward.refused) == (advantage == "gae")
    assert found.keys() == expected.keys()
    assert {(1, "policy/loss"), (1, "policy/grad_norm"), (1, "ratio/max"), (1, "ratio/used_variance")} < found.keys()
    for name, value in expected.items():
        assert found[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    halvings = [value for _, name, value in memory_of(made) if name == "memory/halvings"]
    assert halvings == list(range(1, len(scarce.refused) + len(forward.refused) + 1))


def test_sampling_and_measuring_go_on_with_fewer_responses_at_once(tmp_path, prepared, monkeypatch):
    """A device that holds 3 responses, fewer than a group: the same texts, to the rounding of other batches."""
    config = PolicyConfig(**{**SMALL, "steps": 1})
    expected = rows_of(reinforced(tmp_path / "whole", prepared, config))
    original, drawn = rollout.sample, []

    def scarce(model, prompt_ids, prompt_mask, *, group_size, **settings):
        drawn.append(len(prompt_ids) * group_size)
        if drawn[-1] > 3:
            raise torch.OutOfMemoryError("CUDA out of memory")
        return original(model, prompt_ids, prompt_mask, group_size=group_size, **settings)

    monkeypatch.setattr(rollout, "sample", scarce)
    made = reinforced(tmp_path / "scarce", prepared, config)
    assert max(drawn) > 3 >= drawn[-1]
    assert [value for _, name, value in memory_of(made) if name == "memory/micro_batch"][-1] <= 3
    for name, value in expected.items():
        assert rows_of(made)[name] == pytest.approx(value, rel=1e-4, abs=1e-5), name
    # A halving counts once: the next step begins with the size that fitted.
    assert len([size for size in drawn if size > 3]) == len([1 for _, name, _ in memory_of(made) if "halvings" in name])


def test_a_warm_start_learns_the_same_with_less_memory(tmp_path, prepared, monkeypatch):
    config = PolicyConfig(**{**SMALL, "warm_start": SMALL["warm_start"].model_copy(update={"steps": 5})})
    inputs = {"task_data": prepared["task_data"]}
    warm_start.run(whole := stage(tmp_path / "whole", config, inputs))
    scarce = Scarce(supervised.per_token_logps, 5)
    monkeypatch.setattr(supervised, "per_token_logps", scarce)
    warm_start.run(made := stage(tmp_path / "scarce", config, inputs))
    assert scarce.refused == [16, 8]
    assert memory_of(made)[-1] == (0, "memory/micro_batch", 4)
    for name, value in rows_of(whole).items():
        assert rows_of(made)[name] == pytest.approx(value, rel=1e-4), name

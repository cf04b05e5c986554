"""Three steps of the real trainer from the true start: every trained parameter has moved."""

import pytest
import torch

from tests.trainers.policy.helpers import SMALL, stage
from trainers.policy.build import build
from trainers.policy.config import PolicyConfig, Rollout

VARIANTS = {
    "grpo": {},
    "ppo": {"advantage": {"kind": "gae"}, "rollout": Rollout(responses=16, group_size=1)},
    "all-compatible": {
        "ema_smoothing": {},
        "gradient_adaptive": {},
        "temporal_decay": {},
        "amic": True,
        "surrogate": {"kind": "ptrw"},
    },
}


@pytest.mark.parametrize("name", VARIANTS)
def test_every_trained_parameter_moves(tmp_path, prepared, name):
    config = PolicyConfig(**{**SMALL, **VARIANTS[name]})
    trainer = build(stage(tmp_path, config, prepared, seed=0))
    before = {
        f"{module}.{key}": parameter.detach().clone()
        for module, model in trainer.state.modules.items()
        for key, parameter in model.named_parameters()
    }
    assert ("critic.head.weight" in before) == (name == "ppo")
    for number in range(3):
        trainer.variant.step(trainer, number)
    still = [
        f"{module}.{key}"
        for module, model in trainer.state.modules.items()
        for key, parameter in model.named_parameters()
        if torch.equal(parameter, before[f"{module}.{key}"])
    ]
    assert not still

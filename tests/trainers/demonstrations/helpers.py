"""Tiny stages of the study demonstrations, run in this process."""

import torch
from safetensors.torch import load_file

from tests.make_stage import make_stage
from trainers.demonstrations import candidates, embed, evaluate, grpo, learner, rce
from trainers.demonstrations.config import DemonstrationsConfig

SIZES = {"train": 20, "validation": 8, "test": 12}
TASK = {"name": "concepts", "concepts": 4, "words": 2, "labels": 4, "candidates": 6, "d_embedding": 8, "sizes": SIZES}
TINY = {
    "task": TASK,
    "learner": {"hidden": 16, "feed_forward": 16, "demonstrations": 4, "steps": 4, "batch_size": 8},
    "shots": 3,
    "selector": {"hidden": 8, "heads": 2},
    "rce": {"epochs": 4, "batch_size": 8},
    "grpo": {"epochs": 4, "batch_size": 8},
    "checkpoint_every": 1,
}
ENTRIES = {module.__name__.rpartition(".")[2]: module for module in (learner, embed, candidates, rce, grpo, evaluate)}


def config(**changes):
    """The tiny configuration with changes merged one level deep."""
    merged = {
        key: {**TINY[key], **value} if isinstance(value, dict) and key in TINY else value
        for key, value in changes.items()
    }
    return DemonstrationsConfig.model_validate(TINY | merged)


def demonstrations_stage(name, settings, inputs, out, seed=0):
    return make_stage(out, f"demonstrations.{name}", settings, inputs, seed=seed)


def run(name, settings, inputs, out, seed=0):
    """Run a stage; return its folder and the metrics {name: last value}."""
    stage = demonstrations_stage(name, settings, inputs, out, seed)
    ENTRIES[name].run(stage)
    return out, {metric: value for _, metric, value in stage.metrics.rows}


def shared(root, settings=None, seed=0):
    """Run learner, embed and candidates; return their folders by name."""
    settings = settings or config()
    folders = {}
    for name in ("learner", "embed", "candidates"):
        folders[name], _ = run(name, settings, dict(folders), root / name, seed)
    return folders


def variant(root, folders, settings, seed=0):
    """Run rce, grpo and evaluate; return their folders and the final metrics."""
    folders = dict(folders)
    for name in ("rce", "grpo", "evaluate"):
        folders[name], metrics = run(name, settings, dict(folders), root / name, seed)
    return folders, metrics


def weights(folder, mode="legacy"):
    return load_file(folder / f"selector-{mode}.safetensors")


def assert_equal_weights(one, other):
    assert one.keys() == other.keys()
    for name, tensor in one.items():
        assert torch.equal(tensor, other[name]), name

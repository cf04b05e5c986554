"""A tiny run of the study: stages called in this process, each in a folder of its own."""

from importlib import import_module

import pandas as pd

from tests.make_stage import make_stage
from trainers.gad.adversarial import Trainer
from trainers.gad.config import GadConfig

TINY = {
    "data": {"train": 16, "dev": 4, "test": 6, "base": 60},
    "scratch": {"hidden": 32, "heads": 2, "feed_forward": 48},
    "base": {"steps": 60, "batch_size": 16, "lr": 1e-2},
    "seqkd": {"epochs": 4, "max_steps": 6, "batch_size": 8, "lr": 1e-3},
    "warmup": {"max_steps": 4, "critic_warmup": 2, "actor_lr": 1e-3, "critic_lr": 2e-3, "kl_coef": 0.01},
    "gad": {"max_steps": 4, "actor_lr": 1e-3, "critic_lr": 2e-3, "kl_coef": 0.01},
    "rollout": {"prompts": 2, "group_size": 4},
    "evaluate": {"samples": 2},
    "checkpoint_every": 2,
}
INPUTS = {  # as _study.yaml has them
    "data": (),
    "base": ("data",),
    "seqkd": ("data", "base"),
    "evaluate_start": ("data", "base", "seqkd"),
    "warmup": ("data", "base", "seqkd"),
    "gad": ("data", "base", "seqkd", "warmup"),
    "evaluate": ("data", "base", "seqkd", "start", "warmup", "gad"),
}
ENTRIES = {name: f"trainers.gad.{name}" for name in INPUTS} | {
    "evaluate_start": "trainers.gad.evaluate",
    "warmup": "trainers.gad.adversarial",
    "gad": "trainers.gad.adversarial",
}


def config(**changes):
    values = dict(TINY)
    for name, value in changes.items():
        values[name] = {**values.get(name, {}), **value} if isinstance(value, dict) else value
    return GadConfig(**values)


def gad_stage(folder, settings, inputs, seed=0, name=None):
    """A stage, named as its folder unless a name is given."""
    name = name or folder.name
    return make_stage(folder, f"gad.{name}", settings, inputs, seed=seed, stages=[name, "gad"])


def inputs_of(root, name):
    return {label: root / ("evaluate_start" if label == "start" else label) for label in INPUTS[name]}


def run_stage(root, name, settings, *, seed=0, inputs=None, out=None):
    """Run a stage in root/<name>; return its metrics, one row per (step, name)."""
    stage = gad_stage(out or root / name, settings, {**inputs_of(root, name), **(inputs or {})}, seed, name)
    import_module(ENTRIES[name]).run(stage)
    stage.metrics.close()
    return pd.read_parquet(stage.out / "metrics.parquet")


def run_stages(root, settings, *names, seed=0):
    """Run one stage after the other; return the metrics of the last."""
    return [run_stage(root, name, settings, seed=seed) for name in names][-1]


def run_before(root):
    """Run the stages before adversarial training."""
    run_stages(root, config(), "data", "base", "seqkd", "evaluate_start", seed=None)


def series(table, name):
    return table[table["name"] == name].set_index("step")["value"]


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


def trainer(root, settings, seed=0):
    stage = gad_stage(root / "warmup", settings, inputs_of(root, "warmup"), seed)
    return Trainer(stage)

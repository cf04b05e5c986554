"""What runs is what a key holds: each file of the trainers that a stage executes is part of its code.

The tracer knows nothing of how imports are resolved, so it finds one that is overlooked.
"""

import sys
import threading
from importlib import import_module
from inspect import CO_OPTIMIZED
from pathlib import Path

import pytest

from ablation.contract.code import code_of
from ablation.plan.keys import config_modules
from tests.make_stage import part_names
from tests.repository import ROOT
from tests.trainers.debias import helpers as debias
from tests.trainers.demonstrations import helpers as demonstrations
from tests.trainers.gad import helpers as gad
from tests.trainers.policy import helpers as policy
from trainers.policy import reinforce
from trainers.policy.config import GradientAdaptive, PolicyConfig, Rollout, WarmStart

ENTRIES = {
    "policy": ("task_data", "warm_start", "reward_model", "reinforce", "evaluate"),
    "gad": ("data", "base", "seqkd", "adversarial", "evaluate"),
    "debias": ("prepare", "train", "evaluate"),
    "demonstrations": ("learner", "embed", "candidates", "rce", "grpo", "evaluate"),
}


def executed(work):
    """Return which files of the trainers have functions that run, and how many these are."""
    codes = set()

    def note(frame, *_):
        codes.add(frame.f_code)

    threading.settrace(note)
    sys.settrace(note)
    try:
        work()
    finally:
        sys.settrace(None)
        threading.settrace(None)
    functions = {code for code in codes if code.co_flags & CO_OPTIMIZED}  # not the bodies of modules and classes
    ours = [code.co_filename for code in functions if code.co_filename.startswith(f"{ROOT}/trainers/")]
    return {str(Path(file).relative_to(ROOT)) for file in ours}, len(ours)


@pytest.fixture
def seen(monkeypatch):
    """Entry -> how many functions ran; an entry that runs one of a file that is not part of its code fails."""
    counts = {}

    def checked(entry, run):
        def traced(stage):
            name = entry.rpartition(".")[2]
            parts = part_names(stage.config, stage.id.rpartition(".")[2] if name == "adversarial" else name)
            model = next(kind for kind in type(stage.config).__mro__ if kind.__module__.endswith(".config"))
            chooser = f"trainers.{stage.id.partition('.')[0]}.parts"
            code = code_of(entry, ROOT, parts=parts, exclude={*config_modules(model), chooser})
            ran, counts[entry] = executed(lambda: run(stage))
            models = {f"{module.replace('.', '/')}.py" for module in config_modules(model)}
            assert not ran.difference(code.files, models), entry

        return traced

    for study, names in ENTRIES.items():
        for name in names:
            module = import_module(f"trainers.{study}.{name}")
            monkeypatch.setattr(module, "run", checked(module.__name__, module.run))
    return counts


GAE = {
    "advantage": {"kind": "gae"},
    "rollout": Rollout(responses=4, group_size=1),
    "gradient_adaptive": GradientAdaptive(),
}


def test_the_stages_of_the_policy(tmp_path, seen):
    quick = {"steps": 1, "warm_start": WarmStart(steps=2), "rollout": Rollout(responses=4, group_size=4)}
    config, folders = PolicyConfig(**policy.SMALL | quick), {}
    for name in ENTRIES["policy"]:
        import_module(f"trainers.policy.{name}").run(policy.stage(tmp_path / name, config, dict(folders), 0))
        folders["policy" if name == "reinforce" else name] = tmp_path / name
    assert seen["trainers.policy.reinforce"] > 100
    critic = PolicyConfig(**policy.SMALL | quick | GAE)
    reinforce.run(policy.stage(tmp_path / "gae" / "reinforce", critic, folders, 0))


def test_the_stages_of_gad(tmp_path, seen):
    for name in gad.INPUTS:
        quick = {"data": {"train": 8, "dev": 2, "test": 2, "base": 8}, "base": {"steps": 1}, "seqkd": {"max_steps": 1}}
        gad.run_stage(tmp_path, name, gad.config(**quick))
    assert seen["trainers.gad.adversarial"] > 100


def test_the_stages_of_debias(tmp_path, seen):
    settings = debias.config(
        grpo={"weight": 0.3},
        n_epochs=1,
        rcs={"mode": "adaptive", "thresholds": [0.1, 0.2], "alphas": [0.5, 1.0, 1.5]},
        mo_fairness_weight=0.1,
    )
    inputs = debias.run_prepare(tmp_path, "llama", settings)
    debias.run_evaluate(tmp_path, inputs, settings, debias.run_train(tmp_path, inputs, settings))
    assert seen["trainers.debias.train"] > 50


def test_the_stages_of_demonstrations(tmp_path, seen):
    folders = demonstrations.shared(tmp_path)
    demonstrations.variant(tmp_path, folders, demonstrations.config())
    assert seen["trainers.demonstrations.grpo"] > 30

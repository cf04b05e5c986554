"""Whole stages, by one process or by several: `python -m` with SHARED and OUT, as launch.py runs it.

SHARED holds what the stages read; the only process makes it. OUT gets a folder for each of CASES.
"""

import os
import shutil
import sys
from importlib import import_module
from pathlib import Path

import pytest
import torch

from ablation.runner.ranks import ALONE
from tests.trainers.debias import helpers as debias
from tests.trainers.demonstrations import helpers as demonstrations
from tests.trainers.gad import helpers as gad
from tests.trainers.policy import helpers as policy
from trainers.debias.train import Trainer
from trainers.policy.config import PolicyConfig, Reward, RewardTraining, Rollout, Sampling

POLICY = PolicyConfig(
    **{
        **policy.SMALL,
        "sampling": Sampling(max_new_tokens=12),
        "rollout": Rollout(responses=8, group_size=4),
        "reward": Reward(rule=0.0, model=1.0),
        "reward_training": RewardTraining(
            enabled=True, problems=11, samples=3, steps=5, batch_size=7, micro_batch=2, lr=1e-3
        ),
    }
)
GAD = gad.config(gad={"enabled": False}, evaluate={"samples": 3})
DEBIAS = debias.config(
    edit={"modules": {"last": 2}, "n_edits": 6, "batch_size": 4},
    grpo={"weight": 0.3, "reward": "balanced", "beta": 0.1},
    rcs={"mode": "adaptive", "thresholds": [0.02, 0.05], "alphas": [0.5, 1.0, 2.0]},
    early_stop={"key": "edit/ss_distance_mixed", "patience": 5},
)
CONCEPTS = demonstrations.config(score_batch=7)
FOLDERS = {"start": "evaluate_start"}
CONTINUED = "debias.train, continued"  # from the checkpoint that the only process left in SHARED
LEARNT = {"learner": "learner", "embed": "embed"}
PREPARED = {"model": "model", "prepare": "prepare"}
WARM = {"warm_start": "warm_start", "task_data": "task_data"}
POLICIES = {"policy": "warm_start", "task_data": "task_data", "trained_reward_model": "reward_model"}
CASES = {  # name, which begins with that of the module: (configuration, inputs by name: folders below SHARED)
    "policy.evaluate": (POLICY, POLICIES),
    "policy.reward_model": (POLICY, WARM),
    "gad.evaluate": (GAD, {name: f"gad/{FOLDERS.get(name, name)}" for name in gad.INPUTS["evaluate"]}),
    "debias.prepare": (DEBIAS, {"model": "model", "data": "data"}),
    "debias.train": (DEBIAS, PREPARED),
    CONTINUED: (DEBIAS, PREPARED),
    "debias.evaluate": (DEBIAS, PREPARED | {"train": "train"}),
    "demonstrations.embed": (CONCEPTS, {"learner": "learner"}),
    "demonstrations.candidates": (CONCEPTS, LEARNT),
    "demonstrations.evaluate": (CONCEPTS, LEARNT | {"grpo": "grpo"}),
}


class Killed(Exception):
    pass


def prepare(shared):
    """Make what the stages read, by one process."""
    of_policy = {"task_data": shared / "task_data", "warm_start": shared / "warm_start"}
    for name in of_policy:
        module = import_module(f"trainers.policy.{name}")
        module.run(policy.stage(shared / name, POLICY, of_policy if name == "warm_start" else {}))
    import_module("trainers.policy.reward_model").run(policy.stage(shared / "reward_model", POLICY, of_policy, 0))
    for name in ("data", "base", "seqkd", "evaluate_start", "warmup", "gad"):
        gad.run_stage(shared / "gad", name, GAD)
    inputs = debias.run_prepare(shared, "llama", DEBIAS)
    debias.run_train(shared, inputs, DEBIAS)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Trainer, "development", lambda self: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            debias.run_train(shared, inputs, DEBIAS, name="killed")
    assert (shared / "killed" / "checkpoint").is_dir()
    folders = {}
    for name in ("learner", "embed", "candidates", "rce", "grpo"):
        folders[name], _ = demonstrations.run(name, CONCEPTS, dict(folders), shared / name)


def main(shared, out):
    torch.set_num_threads(1)
    torch.use_deterministic_algorithms(True)
    ranks = ALONE
    if "RANK" in os.environ:
        from trainers.parallel.group import Group

        ranks = Group.join(torch.device("cpu"))
    else:
        prepare(shared)
    for name, (config, inputs) in CASES.items():
        entry = f"trainers.{name.partition(',')[0]}"
        folder = out / str(ranks.rank) / name
        found = {label: shared / place for label, place in inputs.items()}
        if name == CONTINUED and ranks.rank == 0:
            shutil.copytree(shared / "killed" / "checkpoint", folder / "checkpoint")
        ranks.gather(None)  # nobody looks for it earlier
        stage = policy.make_stage(folder, name, config, found, seed=0, stages=[entry.rpartition(".")[2]])
        stage.ranks = ranks
        module = import_module(entry)
        assert module.RANKS
        module.run(stage)
        stage.metrics.close()
    ranks.leave()


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:]))

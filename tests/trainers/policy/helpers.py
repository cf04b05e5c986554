"""Tiny policies, batches and stages for the tests of the policy engine."""

from contextlib import contextmanager
from typing import Any

import pandas as pd
import pytest
import torch

from tests.make_stage import make_stage, parts_of
from trainers.policy import evaluate, reinforce, task_data, warm_start
from trainers.policy.build import build_objective
from trainers.policy.config import Data, Evaluate, Kl, PolicyConfig, Precision, Rollout, Sampling, Scratch, WarmStart
from trainers.policy.grpo import Actor, Batch
from trainers.policy.learner import Learner, per_token_logps
from trainers.policy.models import Placement
from trainers.policy.rollout import sample
from trainers.running.micro_batch import MicroBatch

TINY = Scratch(hidden=16, layers=2, heads=2, feed_forward=24, init_std=0.4)
CPU = Placement.of(["cpu"], Precision())
EOS, PAD = 1, 0
CHAT = (
    "{% for m in messages %}[{{ m['role'] }}]{{ m['content'] }}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}"
)


SMALL: dict[str, Any] = {
    "data": Data(warm=40, train=40, dev=8, test=10),
    "scratch": Scratch(hidden=32, heads=2, feed_forward=48),
    # Enough for some answers in the right form: without differences in reward nothing would be learnt or compared.
    "warm_start": WarmStart(steps=80, batch_size=16, lr=1e-2),
    "steps": 4,
    "sampling": Sampling(max_new_tokens=20),
    "rollout": Rollout(responses=16, group_size=4),
    "kl": Kl(kl_coef=0.1, adaptive=True),
    "checkpoint_every": 2,
    "evaluate": Evaluate(samples=2),
}


def uniforms(rows, width, seed=0):
    return torch.rand(rows, width, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def sampled_batch(model, prompts, advantages):
    sequences = sample(model, *prompts, group_size=4, max_new_tokens=8, eos=EOS, pad=PAD, uniforms=uniforms(16, 8))
    with torch.no_grad():
        old, _ = per_token_logps(model, sequences)
    return Batch(sequences, advantages, old, old - 0.05)


def objective_of(config):
    return build_objective(parts_of(config, "reinforce"), config)


def actor(model, update, *, lr, weight_decay=0.0, reference=None, recompute_logps=False, **config):
    """The policy that learns, with the parts of its loss that a variant's configuration names."""
    micro_batch = MicroBatch(update.micro_batch)
    learner = Learner.adamw(model, lr=lr, betas=(0.9, 0.999), weight_decay=weight_decay, micro_batch=micro_batch)
    objective = objective_of(PolicyConfig(update=update, **config))
    return Actor(learner, objective, update, CPU, reference=reference, recompute_logps=recompute_logps)


def stage(folder, config, inputs, seed=None, devices=("cpu",)):
    """A stage of the engine."""
    return make_stage(
        folder,
        "innovations.test",
        config,
        inputs,
        seed=seed,
        devices=devices,
        stages=[folder.name, "reinforce", "reward_model"],
    )


def prepared(root):
    """The stages before the reinforcement: their folders by name."""
    config = PolicyConfig(**SMALL)
    task_data.run(stage(root / "task_data", config, {}))
    warm_start.run(stage(root / "warm_start", config, {"task_data": root / "task_data"}))
    return {"task_data": root / "task_data", "warm_start": root / "warm_start"}


def train(folder, inputs, config, seed=0, *, ties=False):
    made = stage(folder, config, inputs, seed)
    reinforce.run(made)
    made.metrics.close()
    table = pd.read_parquet(folder / "metrics.parquet")
    table = table[~table["name"].str.startswith("time/")]
    used = table.loc[table["name"] == "update/used_responses", "value"].max()
    assert used > 0 or ties, "no step had a reward to learn from: the test would compare nothing"
    return table.reset_index(drop=True), (folder / "policy" / "model.safetensors").read_bytes()


def asset(kind):
    """The settings of an asset from a file."""
    return {"kind": kind, "sources": [{"source": "path", "path": "any.jsonl"}]}


def run_all(root, inputs, config):
    """All stages from the data to the evaluation, each in a folder of its name: the metrics of `rl`, and the items."""
    task_data.run(stage(root / "task_data", config, inputs))
    inputs = {**inputs, "task_data": root / "task_data"}
    warm_start.run(stage(root / "warm_start", config, inputs))
    inputs["warm_start"] = root / "warm_start"
    table, _ = train(root / "rl", inputs, config)
    evaluate.run(stage(root / "evaluate", config, {**inputs, "policy": root / "rl"}))
    return table, pd.read_parquet(root / "evaluate" / "items.parquet")


def random_batch(seed):
    """New and old log-probabilities, advantages and mask of eight responses of 1 to 12 tokens, some clipped."""
    generator = torch.Generator().manual_seed(seed)
    logps = -3 * torch.rand(8, 12, generator=generator, dtype=torch.float64)
    old = logps + 0.4 * torch.randn(8, 12, generator=generator, dtype=torch.float64)
    advantages = torch.randn(8, generator=generator, dtype=torch.float64)
    mask = (torch.arange(12) < torch.randint(1, 13, (8, 1), generator=generator)).double()
    return logps, old, advantages, mask


@contextmanager
def killed_at(step, monkeypatch):
    """A reinforcement that does not survive this step."""

    class Killed(Exception):
        pass

    original = reinforce.timed_step

    def killed(training, number):
        if number == step:
            raise Killed
        return original(training, number)

    with monkeypatch.context() as patched:
        patched.setattr(reinforce, "timed_step", killed)
        with pytest.raises(Killed):
            yield

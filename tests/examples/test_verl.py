"""examples/verl: variants as Hydra overrides of the real verl, composed and not run; our losses in its registry."""

import json
import os
import shutil
import subprocess
from functools import partial
from pathlib import Path

import pytest
import torch
import yaml

from ablation.cli.collected import collect
from ablation.config.settings import load_settings
from ablation.contract.command import Filling, fill
from ablation.plan.build import build_plan
from tests.peers.environment import ROOT, python_of
from tests.trainers.policy.helpers import random_batch
from trainers.objectives.clip_surrogate import clip_surrogate
from trainers.objectives.gspo_token_ratio import gspo_token_ratio
from trainers.objectives.ptrw_surrogate import ptrw_surrogate
from trainers.objectives.temporal_decay import temporal_decay_weights
from trainers.objectives.token_ratio import token_ratio
from trainers.policy.grpo import Objective

pytestmark = pytest.mark.peers
OUTPUT = "/results of/it's a run"  # what the command gets, word for word
LOSS = "actor_rollout_ref.actor.policy_loss."
CLIP = "actor_rollout_ref.actor.clip_ratio_"
TOKEN_CLIP = partial(clip_surrogate, clip_low=0.2, clip_high=0.2, dual=3.0)
OURS = {  # what each variant is to compute
    "grpo": {"ratio": token_ratio, "surrogate": TOKEN_CLIP},
    "ptrw": {"ratio": token_ratio, "surrogate": partial(ptrw_surrogate, sigma=0.2)},
    "decay": {
        "ratio": token_ratio,
        "surrogate": TOKEN_CLIP,
        "temporal_decay": partial(temporal_decay_weights, gamma=0.99, normalize="mean"),
    },
    "gspo": {"ratio": gspo_token_ratio, "surrogate": partial(clip_surrogate, clip_low=3e-4, clip_high=4e-4)},
}
# Our form of what verl has itself: `ablation` must then be verl's own function.
TWINS = {"grpo": [f"{LOSS}loss_mode=ablation"], "gspo": [f"{LOSS}loss_mode=ablation", f"{LOSS}ratio=gspo_token"]}


@pytest.fixture(scope="module")
def planned(tmp_path_factory):
    """The words of the command of each variant's stage at seed 3, and the values that it reads."""
    folder = tmp_path_factory.mktemp("a project") / "verl"
    shutil.copytree(
        ROOT / "examples" / "verl", folder, ignore=shutil.ignore_patterns("results", "reports", ".snakemake")
    )
    here = Path.cwd()
    os.chdir(folder)
    try:
        plan = build_plan(load_settings({"seeds": [3]}), 1)
    finally:
        os.chdir(here)
    found = {}
    for run in plan.content.studies[0].runs:
        config = plan.configs["objectives.train", run.stages["train"]]
        filling = Filling(
            config={},
            values=config["config"],
            seed=3,
            output=Path(OUTPUT),
            inputs={},
            devices=1,
            threads=1,
            python="python",
        )
        found[run.variant] = fill(config["command"]["words"], filling), config["config"]
    return folder, found


@pytest.fixture(scope="module")
def batch():
    logps, old, advantages, mask = random_batch(0)
    old[0, 0], advantages[0] = logps[0, 0] - 1.5, -1.0  # a ratio of 4.5, which only the bound of dual clipping touches
    weights = torch.rand(mask.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64) + 0.5
    return {
        "logps": logps.double(),
        "old": old.double(),
        "advantages": advantages.double()[:, None].expand_as(logps) * mask,
        "mask": mask.double(),
        "weights": weights,
    }


@pytest.fixture(scope="module")
def answers(planned, batch):
    """What verl says of every variant, and of the twins of its own losses."""
    folder, commands = planned
    variants = {name: words[4:] for name, (words, _) in commands.items()}
    variants |= {f"{name} of ours": variants[name] + twin for name, twin in TWINS.items()}
    asked = {
        "variants": variants,
        "batch": {name: tensor.tolist() for name, tensor in batch.items()},
        "refused": ["actor_rollout_ref.actor.cliprange_low=0.1", f"{LOSS}sigma=0.1"],
    }
    process = Path(__file__).with_name("verl_process.py")
    said = verl([process], folder, input=json.dumps(asked))
    return json.loads(said.splitlines()[-1])


def verl(words, folder, **options):
    python = python_of("verl")
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])  # as where verl's environment is activated
    environment = {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1"}
    words = [python, *words] if isinstance(words[0], Path) else words
    process = subprocess.run(
        words, cwd=folder, env=environment, capture_output=True, text=True, timeout=900, check=False, **options
    )
    assert process.returncode == 0, process.stderr[-3000:]
    return process.stdout


def leaves(values, above=""):
    for key, value in values.items():
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{above}{key}.")
        else:
            yield f"{above}{key}", value


def at(config, key):
    for part in key.split("."):
        config = config[part]
    return config


def test_every_override_lands(planned, answers):
    _, commands = planned
    assert set(commands) == {"grpo", "ptrw", "decay", "gspo"}
    for name, (words, values) in commands.items():
        expected = dict(leaves(values))
        assert len(words) == 4 + len(expected) >= 30
        for key, value in expected.items():
            found = at(answers["variants"][name]["config"], key)
            assert (found, type(found)) == (value, type(value)), (name, key)


def test_what_verl_does_not_know_is_refused(answers):
    for override, said in answers["refused"].items():
        assert said is not None, override
        assert override.partition("=")[0].rpartition(".")[2] in said


def test_the_command_composes_in_verl_itself(planned):
    """The stage's own words, to verl's entry point: Hydra's `--cfg job` prints what verl would run with, and ends."""
    folder, commands = planned
    words, values = commands["ptrw"]
    config = yaml.safe_load(verl([*words, "--cfg", "job", "--resolve"], folder))
    for key, value in leaves(values):
        assert at(config, key) == value, key
    actor = config["actor_rollout_ref"]["actor"]
    seeds = [config["data"]["seed"], config["actor_rollout_ref"]["rollout"]["seed"]]
    assert [*seeds, actor["data_loader_seed"], actor["fsdp_config"]["seed"]] == [3] * 4
    assert actor["policy_loss"]["_target_"] == "losses.PolicyLoss"
    assert config["trainer"]["default_local_dir"] == f"{OUTPUT}/checkpoints"
    assert config["trainer"]["validation_data_dir"] == f"{OUTPUT}/validation"


@pytest.mark.parametrize("name", OURS)
def test_the_loss_of_a_variant_is_ours(answers, batch, name):
    logps = batch["logps"].clone().requires_grad_()
    surrogate = OURS[name]["surrogate"]

    def weighed(ratio, advantages, mask):
        losses, extra = surrogate(ratio, advantages, mask)
        return losses * batch["weights"], extra

    arguments = logps, batch["old"], batch["advantages"], batch["mask"]
    loss, _ = Objective(**{**OURS[name], "surrogate": weighed}, aggregation="token_mean")(*arguments)
    loss.backward()
    found = answers["variants"][name]
    assert logps.grad.abs().max() > 1e-3
    torch.testing.assert_close(torch.tensor(found["gradient"], dtype=torch.float64), logps.grad, rtol=1e-6, atol=1e-9)
    assert found["loss"] == pytest.approx(loss.item(), rel=1e-6)


@pytest.mark.parametrize("name", TWINS)
def test_where_verl_has_the_same_loss_ours_is_it(answers, name):
    theirs, ours = answers["variants"][name], answers["variants"][f"{name} of ours"]
    assert ours["config"] != theirs["config"]
    assert "actor/policy/clip_fraction" in ours["metrics"]
    assert "actor/pg_clipfrac" in theirs["metrics"]
    gradients = (torch.tensor(side["gradient"], dtype=torch.float64) for side in (ours, theirs))
    torch.testing.assert_close(*gradients, rtol=1e-9, atol=1e-12)
    assert ours["loss"] == pytest.approx(theirs["loss"], rel=1e-9)


FAKE = """#!/bin/sh
echo "$LINES_TO_LOG" >"$VERL_FILE_LOGGER_PATH"
exit "$STATUS"
"""


def test_a_log_that_was_opened_anew_is_whole_in_the_end(tmp_path):
    """verl truncates its log at each start; killed twice, the script still leaves every step."""
    (tmp_path / "python").write_text(FAKE)
    (tmp_path / "python").chmod(0o755)
    output = tmp_path / "it's out"
    output.mkdir()

    def start(status, *steps, torn=""):
        lines = [json.dumps({"step": step, "data": {"reward": value}}) for step, value in steps]
        environment = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LINES_TO_LOG": "\n".join([*lines, torn])}
        words = ["sh", ROOT / "examples/verl/train.sh", "3", output]
        return subprocess.run(words, env={**environment, "STATUS": str(status)}, timeout=900, check=False).returncode

    assert start(137, (1, 0.1), (2, 0.2), torn='{"step": 3, "da') == 137
    assert start(143, (2, 0.25)) == 143
    assert start(0, (3, 0.3)) == 0
    metrics, _ = collect(output, [{"reader": "verl", "place": "."}])
    assert {row["step"]: row["value"] for row in metrics.to_pylist()} == {1: 0.1, 2: 0.25, 3: 0.3}

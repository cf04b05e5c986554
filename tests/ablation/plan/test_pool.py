"""Stages that ask for more accelerators than there are: refused when they are to run, named by `validate`."""

import json
from pathlib import Path

import pytest

from ablation.cli.main import main
from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError
from ablation.plan.build import build_plan
from ablation.plan.checks import check_pool
from ablation.plan.retry import states_of


def plan_of(toy, pool=None, **overrides):
    return build_plan(load_settings(overrides, configs=toy.configs), pool, root=toy.root)


def refusal(plan):
    with pytest.raises(ConfigError) as error:
        check_pool(plan, states_of(plan))
    return str(error.value)


def test_the_pool_of_the_invocation_counts_and_the_file_that_asks_is_named(toy):
    path = toy.variant("big", {"extends": "base", "why": "x", "gpu": 4, "lr": 0.5})
    said = refusal(plan_of(toy))
    assert said.startswith(f"{path}: gpu = 4: toy.")
    assert "asks for more devices than the pool of 2; run with --resources gpu=4" in said
    assert "pool of 3" in refusal(plan_of(toy, 3))
    plan = plan_of(toy, 4)
    check_pool(plan, states_of(plan))
    assert plan.studies["toy"].variants["big"].gpu == 4
    study = toy.folder / "_study.yaml"
    assert refusal(plan_of(toy, 0, variant="v2")).startswith(f"{study}: stages.train.resources.gpu = 1")
    scale = toy.yaml("scales/full.yaml", {"seeds": 2, "studies": {"toy": {"resources": {"train": {"gpu": 9}}}}})
    assert refusal(plan_of(toy, variant="v2")).startswith(f"{scale}: studies.toy.resources.train.gpu = 9")


def test_what_is_not_selected_or_has_ended_is_not_refused(toy):
    toy.variant("big", {"extends": "base", "why": "x", "gpu": 4, "lr": 0.5})
    others = plan_of(toy, variant="v3")
    check_pool(others, states_of(others))
    plan = plan_of(toy)
    for stage in plan.content.stages:
        if stage.resources.gpu > 2:
            stage.dir.mkdir(parents=True)
            stage.status.write_text(json.dumps({"state": "ok", "key": stage.key}))
    check_pool(plan, states_of(plan))


def test_validate_says_what_will_be_refused(capsys):
    configs = Path(__file__).resolve().parents[3] / "configs"
    given = ["--config", "studies=gad", "--config", "gpus=0", "--scale", "paper"]
    assert main(["validate", "--configs", str(configs), *given]) == 0
    assert "will be refused: gad.evaluate asks for more devices than the pool of 0" in capsys.readouterr().out

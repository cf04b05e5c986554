"""A stage that asks for devices which its code has no use for: said before the first job, and not refused."""

import pytest

from ablation.config.settings import load_settings
from ablation.plan.build import build_plan
from ablation.plan.retry import states_of
from ablation.plan.start import prepare
from tests.ablation.toy_study import STUDY

RUN = "def run(stage):\n    RANKS = 1\n"


def said(toy, train, gpu=4):
    resources = {**STUDY["stages"]["train"], "resources": {"gpu": gpu}}
    toy.study(stages={**STUDY["stages"], "train": resources}, dirty_tree="allow")
    (toy.root / "trainers" / "toy" / "train.py").write_text(train)
    plan = build_plan(load_settings({"gpus": 4}, configs=toy.configs), root=toy.root)
    return [line for line in prepare(plan, states_of(plan), toy.root) if "devices" in line]


@pytest.mark.parametrize("train", ["RANKS = print\n", "RANKS: object = print\n", "USES_ALL_DEVICES = True\n"])
def test_a_stage_that_uses_several_devices_is_not_warned_of(toy, train):
    assert not said(toy, train + RUN)


def test_a_stage_that_uses_one_is_warned_of_once(toy):
    assert said(toy, RUN) == [
        "warning: toy.train is given 4 devices and uses one, the others idle: set gpu: 1 in "
        "studies.toy.resources.train of the scale, not in a variant (docs/several-devices.md)"
    ]
    assert not said(toy, RUN, gpu=1)

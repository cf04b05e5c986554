"""Stages on several machines: what is refused before any job, and where."""

import pytest

from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError
from ablation.plan.build import build_plan
from ablation.plan.checks import check_nodes
from ablation.plan.order import groups_of
from ablation.plan.retry import states_of
from tests.ablation.toy_study import STUDY

RANKS = "from .helper import add\n\nRANKS = add\n\ndef run(stage):\n    return add(1, 2)\n"


def plan_of(toy, **resources):
    toy.yaml("scales/full.yaml", {"seeds": 1, "studies": {"toy": {"resources": {"train": resources}}}})
    return build_plan(load_settings({}, configs=toy.configs), 8, root=toy.root)


def check(toy, *, on_slurm=True, **resources):
    plan = plan_of(toy, **resources)
    check_nodes(plan, states_of(plan), on_slurm=on_slurm, root=toy.root)
    return plan


def refusal(toy, **words):
    with pytest.raises(ConfigError) as error:
        check(toy, **words)
    return str(error.value)


@pytest.fixture
def with_ranks(toy):
    toy.code("trainers/toy/train.py", RANKS)
    return toy


def test_two_machines_are_for_slurm_and_stages_of_several_processes(toy):
    scale = toy.configs / "scales/full.yaml"
    said = refusal(toy, gpu=2, nodes=2)
    assert said.startswith(
        f"{scale}: studies.toy.resources.train.nodes = 2: toy.train (trainers.toy.train) runs on one"
    )
    toy.code("trainers/toy/train.py", RANKS)
    check(toy, gpu=2, nodes=2)
    said = refusal(toy, gpu=2, nodes=2, on_slurm=False)
    assert said.startswith(f"{scale}: studies.toy.resources.train.nodes = 2: several machines are one job of Slurm")
    assert "--workflow-profile workflow/profiles/slurm" in said
    check(toy, gpu=2, on_slurm=False)


@pytest.mark.parametrize(("gpu", "multiple"), [(3, 4), (1, 2), (0, 2)])
def test_as_many_devices_on_each_machine(with_ranks, gpu, multiple):
    said = refusal(with_ranks, gpu=gpu, nodes=2)
    assert f"studies.toy.resources.train.gpu = {gpu}: toy.train has devices on 2 machines" in said
    assert f"set a multiple of 2, such as {multiple}" in said


def test_a_variant_s_own_number_and_the_study_s_file_are_named(with_ranks):
    path = with_ranks.variant("three", {"extends": "base", "why": "x", "gpu": 3, "lr": 0.5})
    assert refusal(with_ranks, gpu=2, nodes=2).startswith(f"{path}: gpu = 3: ")
    path.unlink()
    train = {**STUDY["stages"]["train"], "resources": {"gpu": 2, "nodes": 2}}
    file = with_ranks.study(stages={**STUDY["stages"], "train": train})
    assert refusal(with_ranks, on_slurm=False).startswith(f"{file}: stages.train.resources.nodes = 2")


def test_machines_are_in_no_key_and_in_no_group(with_ranks):
    one, two = plan_of(with_ranks, gpu=2, nodes=1), plan_of(with_ranks, gpu=2, nodes=2)
    assert list(one.stages) == list(two.stages)
    trains = [address for address in two.stages if address[0] == "toy.train"]
    assert {two.stages[address].resources.nodes for address in trains} == {2}
    quick = build_plan(load_settings({"group_minutes": 60}, configs=with_ranks.configs), 8, root=with_ranks.root)
    assert not set(trains) & set(groups_of(quick))

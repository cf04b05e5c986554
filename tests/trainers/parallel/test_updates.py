"""Updates by two and four processes are those of one: losses, norms, and every weight after three steps."""

import json
import os
import subprocess
import sys
from importlib import import_module

import pytest
import torch
from safetensors.torch import load_file

from ablation.contract.code import code_of
from tests.peers.environment import python_of
from tests.repository import ROOT
from tests.trainers.parallel.launch import launch
from tests.trainers.parallel.updates import CASES, WITH_PEFT
from trainers.parallel.group import Group

pytestmark = pytest.mark.slow  # processes that import torch and transformers
ROUNDING = {"rewards": 1e-5, "bfloat16": 1e-6, "bfloat16, gpt2": 1e-6}  # in float32, and the first beside other rows


def run(folder, count, python=sys.executable, cases=()):
    launch("updates", folder, *cases, count=count, python=python)
    return json.loads((folder / "metrics.json").read_text()), load_file(folder / "tensors.safetensors")


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    return run(tmp_path_factory.mktemp("alone"), 1)


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.parallel)])
def together(request, tmp_path_factory):
    if os.environ.get("ABLATION_TEST_DEVICE") == "cuda" and torch.cuda.device_count() < request.param:
        pytest.skip(f"{request.param} devices")
    return run(tmp_path_factory.mktemp("together"), request.param)


@pytest.mark.parametrize("case", CASES)
def test_several_processes_compute_what_one_does(case, alone, together):
    metrics, tensors = alone
    assert together[0][case] == pytest.approx(metrics[case], abs=ROUNDING.get(case, 1e-9))
    names = [name for name in tensors if name.startswith(f"{case}/")]
    assert names or metrics[case]
    for name in names:
        torch.testing.assert_close(together[1][name], tensors[name], rtol=0, atol=ROUNDING.get(case, 1e-9), msg=name)


@pytest.mark.peers
def test_adapters_are_divided_as_well(tmp_path):
    found = []
    for count in (1, 2):
        (tmp_path / str(count)).mkdir()
        found.append(run(tmp_path / str(count), count, python_of("peft"), ["peft"]))
    (metrics, tensors), (divided, parts) = found
    assert metrics.keys() == WITH_PEFT.keys()
    for case, values in metrics.items():
        assert divided[case] == pytest.approx(values, abs=1e-9), case
    for name, tensor in tensors.items():
        torch.testing.assert_close(parts[name], tensor, rtol=0, atol=1e-9, msg=name)


def test_the_memory_of_states_can_be_taken_before_the_first_step(alone, together):
    for metrics, tensors in (alone, together):
        assert metrics["allocated early"] == metrics["tied"]
        names = [name for name in tensors if name.startswith("tied/")]
        assert names
        assert all(torch.equal(tensors[name], tensors[f"allocated early/{name[5:]}"]) for name in names)


def test_a_step_has_two_collectives_beside_those_of_its_micro_batches(together, request):
    """The norm of the gradients, and all statistics. FSDP2 has three groups here, two blocks and the rest."""
    ranks = request.node.callspec.params["together"]
    parts = 16 // (4 * ranks)
    found = together[0]["watched"]
    linear, norm = found.pop("Linear"), found.pop("Qwen2RMSNorm")
    assert (linear, norm) == ("torch.float64", "torch.float64")
    assert sum(found.values()) == 3 * 3 * parts + 2, found
    once = together[0]["watched, bfloat16"]
    assert (once.pop("Linear"), once.pop("Qwen2RMSNorm")) == ("torch.bfloat16", "torch.float32")
    assert sum(once.values()) == 3 * 2 * parts + 3 + 2, once


def test_a_copy_of_the_weights_is_never_old(together):
    found = together[0]["sampled after an update"]
    assert found == {f"{what} {step}": True for step in range(3) for what in ("fresh", "moved")}


def test_the_parts_of_the_ranks_are_all_rows_in_order_and_as_many():
    for rows in range(14):
        for count in (2, 3, 4):
            for size in (1, 2, 5, 20):
                group = [object.__new__(Group) for _ in range(count)]
                for rank, each in enumerate(group):
                    each.rank, each.size = rank, count
                every = group[0]._every_part(rows, size)
                parts = [every[each.share(len(every))] for each in group]
                assert len({len(part) for part in parts}) == 1  # else some would wait for ever
                assert [row for part in parts for piece in part for row in range(rows)[piece]] == list(range(rows))
                assert all(piece.stop - piece.start <= size for part in parts for piece in part)
                shares = [range(rows)[each.share(rows)] for each in group]
                assert [row for share in shares for row in share] == list(range(rows))


def test_the_code_of_the_ranks_is_part_of_the_stages_that_can_have_them_and_of_no_other():
    def files(entry):
        chooser = f"trainers.{entry.partition('.')[0]}.parts"
        return code_of(f"trainers.{entry}", ROOT, exclude=[chooser]).files

    for entry in (
        *("policy.reinforce", "policy.warm_start", "policy.reward_model", "policy.evaluate"),
        *("gad.base", "gad.seqkd", "gad.adversarial", "gad.evaluate"),
        *("debias.prepare", "debias.train", "debias.evaluate"),
        *("demonstrations.embed", "demonstrations.candidates", "demonstrations.evaluate"),
    ):
        assert "trainers/parallel/group.py" in files(entry)
        assert hasattr(import_module(f"trainers.{entry}"), "RANKS")
    for entry in (
        *("policy.task_data", "gad.data", "assets"),
        *("demonstrations.learner", "demonstrations.rce", "demonstrations.grpo"),
    ):
        assert "trainers/parallel/group.py" not in files(entry)


def test_one_device_imports_nothing_of_it():
    entries = "trainers.policy.reinforce, trainers.gad.adversarial"
    check = f"import sys, {entries}; print('trainers.parallel.group' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", check], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"

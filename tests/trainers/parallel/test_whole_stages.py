"""Stages that divide their items by two and by four processes are those of one: metrics, items, words, weights."""

import json

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file

from tests.trainers.parallel.launch import launch
from tests.trainers.parallel.whole_stages import CASES, CONTINUED

pytestmark = pytest.mark.slow  # processes that import torch and transformers
EQUAL = ("debias.prepare", "demonstrations.embed", "demonstrations.candidates", "demonstrations.evaluate")


def run(shared, out, count):
    launch("whole_stages", shared, out, count=count)
    return out / "0"


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def alone(shared, tmp_path_factory):
    return run(shared, tmp_path_factory.mktemp("alone"), 1)


@pytest.fixture(scope="module", params=[2, pytest.param(4, marks=pytest.mark.parallel)])
def together(request, shared, alone, tmp_path_factory):
    return run(shared, tmp_path_factory.mktemp("together"), request.param)


def tables(folder, name):
    table = pd.read_parquet(folder / name)
    return table[~table["name"].str.contains("wall_s|time/")].reset_index(drop=True) if "name" in table else table


def files_of(folder):
    paths = (path.relative_to(folder) for path in folder.rglob("*") if path.is_file())
    return sorted(str(path) for path in paths if path.parts[0] != "checkpoint")


def test_a_training_that_one_process_began_ends_with_several_as_if_these_had_begun_it(together):
    whole, continued = (tables(together / name, "metrics.parquet") for name in ("debias.train", CONTINUED))
    pd.testing.assert_frame_equal(whole, continued, rtol=0, atol=1e-5)


@pytest.mark.parametrize("case", CASES)
def test_several_processes_leave_what_one_does(case, alone, together):
    here, there = alone / case, together / case
    files = files_of(here)
    assert files == files_of(there)
    assert any(name.endswith((".parquet", ".safetensors")) for name in files)
    near = 0 if case in EQUAL else 1e-5
    for name in files:
        if name.endswith(".parquet"):
            pd.testing.assert_frame_equal(tables(here, name), tables(there, name), rtol=0, atol=near, obj=name)
        elif name.endswith(".safetensors"):
            found, expected = load_file(there / name), load_file(here / name)
            assert found.keys() == expected.keys()
            for key, value in expected.items():
                torch.testing.assert_close(found[key], value, rtol=0, atol=near, msg=f"{name} {key}")
        elif name not in ("weights.json", "progress.json"):
            assert (there / name).read_bytes() == (here / name).read_bytes(), name
    if "weights.json" in files:
        found, expected = (json.loads((folder / "weights.json").read_text()) for folder in (there, here))
        assert found["moved"] == pytest.approx(expected["moved"], abs=1e-4)
        if not case.startswith("debias.train"):  # what is measured is the same, to the last bit
            assert found["digest"] == expected["digest"]

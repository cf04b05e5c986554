"""benchmarks/first_gpu.py, which wants NVIDIA devices: all of it that a CPU can do, and its error without any."""

import json
import os
import subprocess
import sys
from argparse import Namespace
from types import SimpleNamespace

import pytest
import torch
from safetensors.torch import save_file

from benchmarks import device_parts
from benchmarks.first_gpu import empty, in_words
from tests.repository import ROOT

pytestmark = pytest.mark.slow  # processes that import torch and transformers


def run(*words, cwd=None):
    command = [sys.executable, str(ROOT / "benchmarks" / "first_gpu.py"), *words]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    return subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, timeout=1500, check=False)


@pytest.mark.parallel
def test_every_part_runs_on_a_cpu_and_the_report_says_so(tmp_path):
    done = run("--device", "cpu", "--tiny", "--counts", "1", "2", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    report = json.loads((tmp_path / "report.json").read_text())
    parts = {part["part"]: part["figures"] for part in report}
    assert [part["error"] for part in report[1:]] == [None] * (len(report) - 1)
    assert parts["machine"][0]["torch"] == torch.__version__
    debias, twice = parts["grid"]
    words, total = debias["equal samples"].split(" of ")
    assert 0 < int(words) == int(total)
    assert (
        debias["largest first loss difference"],
        debias["largest mean item difference"],
        twice["stages that differ"],
    ) == (0, 0, 0)
    assert debias["stages"] == twice["stages"] == 5  # one that prepares, and two of the unedited model
    assert {"ours", "generate"} <= {each["what"].rpartition(", ")[2] for each in parts["sampling"]}
    assert 0 < parts["step"][0]["sampling seconds"] < parts["step"][0]["seconds"]
    assert parts["critic"][0]["pairs"] == 4
    assert {each["what"].rpartition(", ")[2] for each in parts["debias"]} == {"with a GRPO term", "without a GRPO term"}
    one, two = parts["devices"]
    assert 0 < two["gradient difference"] < 1e-5  # other sums: they were computed apart
    assert max(one["loss and norm difference"], two["loss and norm difference"]) < 1e-5
    assert [each["steps"] for each in parts["paper"][:2]] == [1200, 2250]
    text = (tmp_path / "report.md").read_text()
    assert all(f"## {name}" in text for name in parts)
    assert "trl is not installed" in text


def test_a_report_goes_where_it_was_called(tmp_path):
    done = run("--device", "cpu", "--tiny", "--only", "tests", "--out", "here", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    [_, part] = json.loads((tmp_path / "here" / "report.json").read_text())
    assert [each["what"] for each in part["figures"]] == ["tests/trainers/parallel"]


def test_results_of_an_earlier_run_are_not_those_of_this_machine(tmp_path):
    for name in ("grid", "policy", "devices", "mine"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "config.json").touch()
    empty(tmp_path, ["grid", "step"])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["devices", "mine"]


@pytest.mark.parametrize("part", ["grid", "debias"])
def test_a_grid_that_fails_is_wrong(tmp_path, monkeypatch, part):
    monkeypatch.setattr(device_parts, "_start_grid", lambda *_: SimpleNamespace(wait=lambda: 1))
    figures = list(device_parts.PARTS[part].run(Namespace(out=tmp_path, device="cpu", tiny=True)))
    assert figures
    assert all("wrong" in each for each in figures)


def test_a_loss_that_is_no_number_is_not_what_one_device_gives(tmp_path):
    save_file({"w": torch.ones(2)}, tmp_path / "gradients.safetensors")
    one = {"folder": tmp_path, "tokens/s": 1.0, "values": [0.5, 0.25, 1.0]}
    assert "wrong" not in device_parts._beside_the_first(one, one, "float32")
    two = one | {"values": [0.5, float("nan"), 1.0]}
    assert "wrong" in device_parts._beside_the_first(one, two, "float32")


def test_a_part_that_was_stopped_keeps_its_figures():
    part = {
        "part": "step",
        "seconds": 9.5,
        "error": "stopped after 9 s",
        "figures": [{"what": "a", "seconds": 0.123456}],
    }
    assert in_words([part]) == "## step, 9.5 s\n\n- a · seconds 0.1235\n- **stopped after 9 s**\n"


@pytest.mark.skipif(torch.cuda.is_available(), reason="there are devices here")
def test_without_devices_it_says_so():
    done = run()
    assert done.returncode == 2
    assert "error: --device cuda: torch" in done.stderr
    assert "--device cpu --tiny" in done.stderr

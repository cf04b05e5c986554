"""A stage on two machines, which are two launchers here that an `srun` of ours starts; the real one: tests/cluster."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.trainers.parallel.test_stages import after_a_checkpoint, metrics, of_stage, write
from tests.trainers.toy_stage import command, environment, run_stage, status
from tests.workflow.project import wait_for

pytestmark = pytest.mark.slow  # processes that import torch
SRUN = Path(__file__).with_name("fake_srun.py")
WORDS = ("--gpus", "2", "--nodes", "2")


@pytest.fixture
def slurm(tmp_path):
    """What a job of Slurm finds around it."""
    folder = tmp_path / "bin"
    folder.mkdir()
    (folder / "srun").symlink_to(SRUN)
    return {"PATH": f"{folder}:{os.environ['PATH']}", "SLURM_JOB_ID": "7", "ABLATION_FAKE_GPUS": "1"}


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    out = write(tmp_path_factory.mktemp("alone"))
    run_stage(out, "--gpus", "1", ABLATION_FAKE_GPUS="1")
    return metrics(out)


def test_two_machines_end_as_one_process_does(tmp_path, alone, slurm):
    out = write(tmp_path)
    done = run_stage(out, *WORDS, **slurm)
    log = (out / "log.txt").read_text()
    assert done.returncode == 0, done.stderr + log
    found = status(out)
    assert (found["state"], found["devices"]) == ("ok", 2), log
    assert metrics(out) == pytest.approx(alone, abs=1e-5)
    assert (out / "size").read_text() == "2 ['cpu']"
    assert not [path for path in out.iterdir() if path.name.startswith("ranks")]
    locks = {path.name for path in (tmp_path / "leases").iterdir()}
    assert locks == {"SLURM_JOB_ID-7-node0-gpu-0.lock", "SLURM_JOB_ID-7-node1-gpu-0.lock"}


@pytest.mark.parallel  # tests/cluster has it on a real Slurm
@pytest.mark.parametrize("victim", ["trainers.parallel.worker", "trainers.parallel.node", "ablation.runner.run"])
def test_what_dies_ends_all_and_the_stage_goes_on(tmp_path, alone, slurm, victim):
    out = write(tmp_path, pause=1.0)
    words, env = command(out, *WORDS), environment(out, **slurm)
    process = subprocess.Popen(words, env=env, stderr=subprocess.PIPE, text=True)
    after_a_checkpoint(out)
    os.kill(of_stage(out, victim)[-1], signal.SIGKILL)
    _, said = process.communicate(timeout=60)
    assert process.returncode == (-9 if victim == "ablation.runner.run" else 74), said
    assert not (out / "status.json").exists()
    wait_for(lambda: not of_stage(out, "trainers.parallel"), 15)
    run_stage(out, "--gpus", "1", ABLATION_FAKE_GPUS="1")
    assert status(out)["state"] == "ok"
    assert metrics(out) == pytest.approx(alone, abs=1e-5)
    assert "resumed after step" in (out / "log.txt").read_text()

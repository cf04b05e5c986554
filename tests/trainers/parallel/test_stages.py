"""A stage on two devices: it ends as one process would, goes on from a checkpoint of any number, and never hangs."""

import json
import os
import re
import signal
import subprocess
from functools import partial

import pandas as pd
import pytest

from tests.simulate import editing
from tests.trainers.toy_stage import command, environment, run_stage, status, write_stage
from tests.workflow.project import wait_for

pytestmark = pytest.mark.slow  # processes that import torch
LONG = partial(pytest.param, marks=pytest.mark.parallel)
ON_CUDA = os.environ.get("ABLATION_TEST_DEVICE") == "cuda"

TRAINER = """
import os, time, torch
from trainers.parallel import join
from trainers.policy.learner import Learner
from trainers.running.stage import Diverged
from trainers.running.state import State

RANKS = join


def asleep():
    time.sleep(1000)


def run(stage):
    config, ranks = stage.config, stage.ranks
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 5).to(stage.devices[0])
    if config.mode == "slow" and ranks.rank == 1:
        time.sleep(55)
    model = ranks.shard(model)
    rows = torch.randn(7, 3).to(stage.devices[0])
    learner = Learner.adamw(model, lr=0.1, micro_batch=stage.micro_batch(4))
    state = State({"model": model}, {"optimizer": learner.optimizer}, {}, {"seen": 0})
    first = state.restore(stage)

    def backward(part):
        if config.mode == "memory" and ranks.rank == 1 and len(part) > 2:
            if model.weight.is_cuda:
                torch.empty(1 << 50, device=model.weight.device)
            raise torch.OutOfMemoryError("full")
        loss = model(part).square().sum() / len(rows)
        learner.micro_batch.backward(loss)
        return loss.detach()

    for step in range(first, config.steps):
        losses, norm = learner.step(rows, backward)
        stage.log_metrics(step, {"train/loss": sum(losses), "train/norm": norm, "time/s": time.monotonic()})
        state.values["seen"] = step + 1
        state.save(stage, step + 1)
        stage.progress(step + 1, config.steps)
        if step == 2 and config.mode == "raise" and ranks.rank == 1:
            raise RuntimeError("the second rank only")
        if step == 2 and config.mode == "hang" and ranks.rank == 1:
            asleep()
        if step == 2 and config.mode == "slow":
            model.save_pretrained = lambda *_, **__: time.sleep(55)
            ranks.save(model, stage.out / "model")
        if step == 2 and config.mode == "diverge":
            raise Diverged("collapsed")
        time.sleep(config.pause)
    stage.save_items([("1", "all", "edited", "ss", 1.0)])
    (stage.out / "size").write_text(f"{ranks.size} {stage.devices}")
"""


def write(tmp_path, **settings):
    code = ("trainers.parallel", "trainers.policy.learner", "trainers.running.state")
    out = write_stage(tmp_path, code=code, **settings)
    (tmp_path / "toy_trainer.py").write_text(TRAINER)
    return out


def devices(count):
    """The environment in which a stage finds so many devices; benchmarks/first_gpu.py wants the real ones."""
    return {} if ON_CUDA else {"ABLATION_FAKE_GPUS": str(count)}


def run(out, count=2):
    return run_stage(out, "--gpus", str(count), **devices(count))


def metrics(out):
    table = pd.read_parquet(out / "metrics.parquet").set_index(["name", "step"])["value"]
    return table.drop("time/s", level=0).to_dict()


def start(out, count=2):
    return subprocess.Popen(
        command(out, "--gpus", str(count)), env=environment(out, **devices(count)), stderr=subprocess.PIPE, text=True
    )


def of_stage(out, module):
    """The processes of a module with the stage's folder among their arguments."""
    found = subprocess.run(
        ["pgrep", "-f", f"{module} .*--out {re.escape(str(out))}"], capture_output=True, text=True, check=False
    )
    return [int(number) for number in found.stdout.split()]


def reached(out):
    """The step of the last checkpoint, 0 where there is none."""
    path = out / "checkpoint" / "state.json"
    return json.loads(path.read_text())["step"] if path.exists() else 0


def after_a_checkpoint(out, step):
    wait_for(lambda: reached(out) >= step)


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    out = write(tmp_path_factory.mktemp("alone"))
    run(out, 1)
    assert status(out)["state"] == "ok"
    return metrics(out)


def test_two_processes_end_as_one_does_with_less_memory_after_one_had_too_little(tmp_path, alone):
    out = write(tmp_path, mode="memory")
    done = run(out)
    assert done.returncode == 0, done.stderr
    ended, log = status(out), (out / "log.txt").read_text()
    assert (ended["state"], ended["devices"]) == ("ok", 2), log
    assert "all ranks start again" in log
    found = metrics(out)
    assert found.pop(("memory/halvings", 5)) == 1  # 4 rows, 2 rows
    assert found == pytest.approx(alone, abs=1e-5)
    assert (out / "size").read_text() == f"2 {['cuda:0' if ON_CUDA else 'cpu']}"
    assert len(pd.read_parquet(out / "items.parquet")) == 1
    assert not (out / "checkpoint").exists()
    assert not (out / "ranks.json").exists()
    assert "started" in done.stderr


@pytest.mark.parametrize(
    ("settings", "state", "reason"),
    [
        ({"mode": "raise"}, "failed", "rank 1: RuntimeError: the second rank only"),
        LONG({"mode": "diverge"}, "diverged", "collapsed"),
    ],
)
def test_the_rank_that_fails_says_why(tmp_path, settings, state, reason):
    out = write(tmp_path, **settings)
    done = run(out)
    assert done.returncode == 0, done.stderr
    assert (status(out)["state"], status(out)["reason"]) == (state, reason)
    assert not of_stage(out, "trainers.parallel")


@pytest.mark.parametrize("victim", ["trainers.parallel.worker", LONG("trainers.parallel.launch")])
def test_what_is_killed_ends_all_and_the_stage_goes_on_with_another_number_of_devices(tmp_path, alone, victim):
    """First a rank or the launcher, then the stage's own process, which takes its ranks along."""
    out = write(tmp_path, pause=1.0)
    process = start(out)
    after_a_checkpoint(out, 1)
    os.kill(of_stage(out, victim)[-1], signal.SIGKILL)
    _, words = process.communicate(timeout=900)
    assert process.returncode == 74, words
    assert not (out / "status.json").exists()
    wait_for(lambda: not of_stage(out, "trainers.parallel"))
    process = start(out)
    after_a_checkpoint(out, reached(out) + 1)
    process.kill()
    process.wait()
    wait_for(lambda: not of_stage(out, "(trainers|ablation)"))
    assert len([path for path in (out / "checkpoint").rglob("*.safetensors") if "-of-2-" in path.name]) >= 2
    with editing(out / "config.json") as plan:
        plan["config"]["pause"] = 0.0
    run(out, 1)
    assert status(out)["state"] == "ok"
    assert metrics(out) == pytest.approx(alone, abs=1e-5)
    steps = {line.rpartition(" ")[2] for line in (out / "log.txt").read_text().splitlines() if "resumed after" in line}
    assert len(steps) == 2  # each went further than the one before it


def impatient(folder, **settings):
    """A stage whose ranks wait for each other 45 seconds in a step, and its code."""
    out, code = write(folder, **settings), folder / "toy_trainer.py"
    shorter = "from datetime import timedelta\nfrom trainers.parallel import group\n"
    code.write_text(f"{shorter}group.TOGETHER = timedelta(seconds=45)\n{code.read_text()}")
    return out, code


def test_a_rank_that_hangs_ends_all_and_the_log_says_where_each_was(tmp_path):
    out, code = impatient(tmp_path, mode="hang")
    done = run(out)
    log = (out / "log.txt").read_text()
    assert done.returncode == 74, done.stderr + log
    assert "rank 0 waited too long for another" in done.stderr
    assert not (out / "status.json").exists()
    hung = log.partition("stack of rank 1:\n")[2]
    assert f'File "{code}", line' in hung
    assert "in asleep" in hung
    waiting = log.partition("Traceback")[2].partition("stack of rank")[0]  # of the rank that gave up
    assert "learner.py" in waiting
    assert not of_stage(out, "trainers.parallel")


@pytest.mark.parallel
def test_a_rank_that_has_work_of_its_own_is_waited_for(tmp_path):
    """The first one saves a model, or comes late to what all load: longer than ranks wait for each other in a step."""
    out, _ = impatient(tmp_path, mode="slow")
    run(out)
    assert status(out)["state"] == "ok", (out / "log.txt").read_text()

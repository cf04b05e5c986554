"""The runner: how a stage ends, what it leaves, and what happens when it is killed, blocked or started twice."""

import contextlib
import fcntl
import json
import logging
import os
import signal
import socket
import subprocess
import sys
import time
from datetime import datetime
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from ablation.contract.code import Code, Sources
from ablation.contract.status import read_state
from ablation.runner.job import import_code
from ablation.runner.run import _used, outcome_of
from tests.simulate import editing
from tests.trainers.toy_stage import command, environment, run_stage, status, write_stage
from tests.workflow.project import wait_for

pytestmark = pytest.mark.slow  # each test starts processes that import torch


def metrics(out):
    return pd.read_parquet(out / "metrics.parquet")


def test_a_stage_that_ends_well(tmp_path):
    out = write_stage(tmp_path)
    done = run_stage(out, "--threads", "2", "--gpus", "1", cold=True, ABLATION_FAKE_GPUS="2")
    assert done.returncode == 0, done.stderr
    found = status(out)
    assert (found["state"], found["reason"], found["stage"], found["seed"]) == ("ok", "", "toy.train", 1)
    assert (found["attempt"], found["device"], found["devices"], found["key"]) == (1, "cpu", 1, "0123456789abcdef")
    assert found["started"] < found["ended"]
    assert metrics(out).groupby("name").step.apply(list).to_dict() == {
        "train/loss": [0, 1, 2, 3, 4, 5],
        "train/norm": [0, 1, 2, 3, 4, 5],
    }
    assert list(pd.read_parquet(out / "items.parquet").columns) == ["item", "subset", "protocol", "name", "value"]
    assert (out / "threads").read_text() == "2 '0'"  # exactly the declared threads, and the leased device only
    assert not (out / "checkpoint").exists()
    assert not (out / "progress.json").exists()
    assert not list(out.glob(".*.tmp.*"))
    provenance = json.loads((out / "provenance.json").read_text())
    assert provenance["packages"]["torch"]
    assert provenance["hardware"]["cores"] == os.cpu_count()
    assert run_stage(out).returncode == 0
    assert status(out)["ended"] == found["ended"]  # taken over, not run again


def test_the_terminal_gets_a_few_lines_and_the_log_the_rest(tmp_path):
    out = write_stage(tmp_path, mode="raise")
    done = run_stage(out)
    lines = done.stderr.splitlines()
    assert lines[0] == "    toy.train  v8 seed 1   started"
    assert lines[1].endswith("RuntimeError: the first line and the second")
    assert len(lines) == 2
    assert done.stdout == ""
    log = (out / "log.txt").read_text()
    for text in ("chatter of a library", "chatter of C code", "Traceback", "and the second"):
        assert text in log


@pytest.mark.parametrize(
    ("settings", "state", "reason"),
    [
        ({"mode": "surrogate"}, "failed", "ValueError: caf\\udce9 \\x1b[31mred"),
        ({"mode": "exit"}, "failed", "SystemExit: 3"),
        ({"mode": "unread"}, "failed", "AttributeError: config.source is missing from the stage's `reads`"),
        ({"mode": "diverge"}, "diverged", "collapsed"),
        ({"lr": -1.0}, "failed", "lr must be positive"),
    ],
)
def test_a_stage_that_does_not_end_well_says_why_and_exits_0(tmp_path, settings, state, reason):
    out = write_stage(tmp_path, **settings)
    done = run_stage(out)
    assert done.returncode == 0
    assert "\x1b" not in done.stderr
    assert status(out)["state"] == state
    assert reason in status(out)["reason"]
    assert "\n" not in status(out)["reason"]


def test_an_abort_rule_ends_it_as_diverged_and_keeps_the_metrics(tmp_path):
    rule = {"metric": "train/loss", "severity": "abort", "diagnosis": "not finite", "remedy": "lower lr"}
    out = write_stage(tmp_path, abort_rules=[rule], mode="nan")
    run_stage(out)
    assert status(out)["state"] == "diverged"
    assert status(out)["reason"] == "train/loss = nan at step 3 (healthy: train/loss finite): not finite; lower lr"
    assert metrics(out).step.max() == 3


@pytest.mark.parametrize("content", ['{"state": "failed", "reason": "no memory"}', None, "{"])
def test_an_input_that_is_not_ok_blocks(tmp_path, content):
    out = write_stage(tmp_path)
    above = tmp_path / "above"
    above.mkdir()
    if content is not None:
        (above / "status.json").write_text(content)
    assert run_stage(out, "--input", f"prepare={above}").returncode == 0
    assert status(out)["state"] == "blocked"
    assert status(out)["reason"].startswith("input prepare ")
    if content and "memory" in content:
        assert status(out)["reason"] == "input prepare failed: no memory"
    assert not (out / "metrics.parquet").exists()


def test_a_second_process_is_refused_and_changes_nothing(tmp_path):
    out = write_stage(tmp_path)
    descriptor = os.open(out / ".lock", os.O_RDWR | os.O_CREAT)
    os.write(descriptor, b"4242\n")
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    before = sorted(os.listdir(out))
    done = run_stage(out)
    os.close(descriptor)
    assert done.returncode == 75
    assert "process 4242 is running this stage" in done.stderr
    assert sorted(os.listdir(out)) == before


def two_processes(folder, pause):
    """Start a stage twice; return its folder, both processes, and what the second says first."""
    out = write_stage(folder, pause=pause)
    first = subprocess.Popen(command(out), env=environment(out), stderr=subprocess.DEVNULL)
    wait_for((out / "checkpoint" / "state.json").exists)
    second = subprocess.Popen(command(out, "--wait", "1"), env=environment(out), stderr=subprocess.PIPE, text=True)
    return out, first, second, second.stderr.readline()


def test_a_second_process_waits_and_takes_over_the_result(tmp_path):
    """Snakemake was killed, its scheduler's job goes on, and the next Snakemake starts the stage again."""
    out, first, second, said = two_processes(tmp_path, pause=3.0)
    assert said.endswith(f"waiting for process {first.pid} on {socket.gethostname()} to finish the stage\n")
    (out / "hurry").touch()
    assert first.wait() == second.wait() == 0
    assert "already finished" in second.stderr.read()
    assert status(out)["attempt"] == 1
    assert not (out / "log.attempt-2.txt").exists()


def test_a_second_process_goes_on_where_the_first_was_killed(tmp_path):
    out, first, second, said = two_processes(tmp_path, pause=3000.0)
    assert "waiting for" in said
    first.kill()
    first.wait()
    (out / "hurry").touch()
    assert second.wait(timeout=900) == 0
    assert status(out)["attempt"] == 2
    assert "resumed after step" in (out / "log.txt").read_text()


def test_a_younger_result_is_taken_over_although_its_status_was_deleted(tmp_path):
    out, asked = write_stage(tmp_path), tmp_path / "asked"
    asked.touch()
    run_stage(out)
    before, log = status(out), (out / "log.txt").read_text()
    for name in ("status.json", "log.txt"):  # as Snakemake does
        (out / name).unlink()
    done = run_stage(out, "--since", str(asked))
    assert "already finished" in done.stderr
    assert (status(out), (out / "log.txt").read_text()) == (before, log)


@pytest.mark.parametrize("why", ["an older result", "no file to compare with", "another key", "not ok"])
def test_no_other_result_is_taken_over(tmp_path, why):
    out, asked = write_stage(tmp_path), tmp_path / "asked"
    asked.touch()
    run_stage(out)
    (out / "status.json").unlink()
    kept = out / "status.kept.json"
    words = {"another key": ("0123", "3210"), "not ok": ('"ok"', '"failed"')}.get(why, ("", ""))
    kept.write_text(kept.read_text().replace(*words))
    if why == "an older result":
        os.utime(asked)
    if why == "no file to compare with":
        asked.unlink()
    run_stage(out, "--since", str(asked))
    assert (status(out)["state"], status(out)["attempt"]) == ("ok", 2)


def test_it_does_not_start_under_a_parent_that_is_gone(tmp_path):
    out = write_stage(tmp_path)
    assert run_stage(out, "--parent", "1", cold=True).returncode == -signal.SIGKILL
    assert not (out / "status.json").exists()


def test_a_stage_that_imports_code_which_its_key_lacks_fails(tmp_path):
    name, reasons = "trainers.objectives.token_ratio", []
    for code in ([], [name]):
        out = write_stage(tmp_path / str(len(code)), code=code)
        late = f"import importlib\n\n\ndef run(stage):\n    importlib.import_module('{name}')\n"
        (out.parent / "toy_trainer.py").write_text(late)
        assert run_stage(out).returncode == 0
        reasons.append(status(out)["reason"])
    assert f"{name}, which its key does not cover" in reasons[0]
    assert reasons[1] == ""


def test_a_broken_plan_of_a_stage_is_one_line_and_no_result(tmp_path):
    out = write_stage(tmp_path)
    (out / "config.json").write_text("{")
    done = run_stage(out)
    assert done.returncode == 74
    [line] = done.stderr.splitlines()
    assert "start snakemake again" in line
    assert not (out / "status.json").exists()


def edited_plan(out, **code):
    """Make the plan's config.json one of another state of the code."""
    with editing(out / "config.json") as plan:
        plan["code"] |= {name: plan["code"][name] | value if name == "files" else value for name, value in code.items()}


def test_code_that_is_not_the_plans_is_refused(tmp_path):
    out = write_stage(tmp_path)
    edited_plan(out, text="other", files={"trainers/running/checkpoint.py": "0123", "trainers/gone.py": "4567"})
    done = run_stage(out)
    assert done.returncode == 78
    assert not (out / "status.json").exists()  # under this key there must be no result of other code
    (line,) = done.stderr.splitlines()
    assert "toy.train  v8 seed 1: its code has changed since the stage was planned (trainers/gone.py, " in line
    assert "trainers/running/checkpoint.py)" in line
    assert line.endswith("start snakemake again")
    out = write_stage(tmp_path / "comments")
    edited_plan(out, text="other")  # of the files, and not of what counts of them
    assert run_stage(out).returncode == 0
    assert status(out)["state"] == "ok"


def test_code_that_is_edited_while_it_is_imported_is_refused(tmp_path, monkeypatch):
    late = tmp_path / "trainers" / "imported_late.py"
    late.parent.mkdir()
    late.write_text("x = 1\n")
    monkeypatch.setattr("ablation.runner.job._PROJECT", tmp_path)
    monkeypatch.setattr("trainers.__path__", [str(late.parent)])
    start, sources = Code(("trainers/imported_late.py",), {}, {}, entry="trainers.imported_late"), Sources(tmp_path)
    code = start._replace(files=sources.files(start), text=sources.text(start.start))
    job = SimpleNamespace(code=code._replace(parts={"number": "trainers.imported_late.x"}))
    assert import_code(job) == {"number": 1}
    late.write_text("x = 1  # a number\n")
    assert import_code(job) == {"number": 1}
    for text in ("x = 2\n", "x = (\n"):  # the second is half of an edit
        late.write_text(text)
        with pytest.raises(OSError, match="its code has changed since the stage was planned"):
            import_code(job)
    sys.modules.pop("trainers.imported_late")


def test_the_status_says_how_long_the_files_are_that_the_stage_left(tmp_path):
    out = write_stage(tmp_path)
    run_stage(out)
    left = status(out)["files"]
    assert {"metrics.parquet", "provenance.json"} <= left.keys()
    assert all((out / name).stat().st_size == size for name, size in left.items())
    assert status(out)["sha256"].keys() == left.keys()
    assert read_state(out, status(out)["key"]).state == "ok"
    whole = (out / "metrics.parquet").read_bytes()
    (out / "metrics.parquet").unlink()
    assert read_state(out).reason == "metrics.parquet: the file has been deleted"
    shorter = pd.read_parquet(BytesIO(whole)).iloc[:-1]
    shorter.to_parquet(out / "metrics.parquet", index=False)
    assert "but the stage wrote" in read_state(out).reason
    below = write_stage(tmp_path / "below")
    run_stage(below, "--input", f"train={out}")
    assert status(below)["state"] == "blocked"
    assert status(below)["reason"].startswith("input train is corrupt: metrics.parquet: ")
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    (out / "metrics.parquet").write_bytes(flipped)
    assert read_state(out).state == "ok"  # by its length; who reads the rows compares the digest
    run_stage(below, "--input", f"train={out}")
    assert (
        status(below)["reason"]
        == "input train is corrupt: metrics.parquet: the content has changed since the stage ended"
    )
    assert run_stage(out).returncode == 0  # it runs again, and does not take its own broken result over
    assert read_state(out).state == "ok"
    assert status(out)["attempt"] == 2


@pytest.mark.parametrize(("allocated", "said"), [([1 << 20, 3 << 20], {"device_memory_mb": 3.0}), ([0, 0], {})])
def test_device_memory_is_that_of_this_process_and_absent_where_its_ranks_used_it(monkeypatch, allocated, said):
    cuda = SimpleNamespace(
        is_initialized=lambda: True, device_count=lambda: 2, max_memory_allocated=allocated.__getitem__
    )
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    assert {name: value for name, value in _used().items() if name.startswith("device")} == said


@pytest.mark.parametrize(
    ("kind", "config", "said"),
    [
        ("OutOfMemoryError", {"update": {"batch_size": 32, "micro_batch": 8}}, "halve update.micro_batch (8). "),
        ("OutOfMemoryError", {"a": {"batch_size": 4}, "batch_size": 6}, "halve a.batch_size (4) or batch_size (6). "),
        ("OutOfMemoryError", {"update": {"micro_batch": None}}, "use a smaller model"),
        ("OutOfMemory", {"micro_batch": 8, "sampling": {"max_new_tokens": 64}}, "halve sampling.max_new_tokens (64). "),
        ("ValueError", {"update": {"micro_batch": 8}}, "ValueError: full"),
    ],
)
def test_running_out_of_memory_names_the_setting_to_halve(kind, config, said):
    def work():
        raise type(kind, (RuntimeError,), {})("full")

    state, reason = outcome_of(work, logging.getLogger(), config)
    assert state == "failed"
    assert said in reason
    assert reason.endswith(f"{kind}: full")


def test_the_wait_for_a_device_is_said_and_not_counted_as_work(tmp_path):
    out = write_stage(tmp_path)
    words = {"env": environment(out, ABLATION_FAKE_GPUS="1"), "stderr": subprocess.PIPE, "text": True}
    with holding(out, 0):
        process = subprocess.Popen(command(out, "--gpus", "1"), **words)
        assert process.stderr.readline() == "    toy.train  v8 seed 1   waiting for 1 free device (visible: 0)\n"
        time.sleep(1)
    _, said = process.communicate(timeout=900)
    assert (process.returncode, "waits" in said) == (0, False)
    found = status(out)
    took = [datetime.fromisoformat(found[when]).timestamp() for when in ("started", "ended")]
    assert found["wait_s"] >= 1
    assert found["wall_s"] == pytest.approx(took[1] - took[0] - found["wait_s"], abs=0.01)
    assert found["wall_s"] > 0


@contextlib.contextmanager
def holding(out, device):
    """Hold the lock of a device, as another stage does."""
    folder = Path(environment(out)["ABLATION_LEASES"])
    folder.mkdir(mode=0o700, exist_ok=True)
    with open(folder / f"gpu-{device}.lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield

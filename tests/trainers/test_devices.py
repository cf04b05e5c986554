"""Devices are never leased twice, and a lease ends exactly when the process that uses the device ends."""

import os
import signal
import subprocess
import sys
import time

import pytest

from trainers import devices

HOLD = """
import sys, time
from trainers.devices import lease
held = lease(int(sys.argv[1]))
print(*held.tokens, flush=True)
time.sleep(float(sys.argv[2]))
"""


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATION_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("ABLATION_FAKE_GPUS", "2")
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_ID", *devices._SCHEDULER_JOBS):
        monkeypatch.delenv(name, raising=False)


def hold(count, seconds, **environment):
    """Start a process that leases and holds devices."""
    return subprocess.Popen(
        [sys.executable, "-c", HOLD, str(count), str(seconds)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, **environment},
    )


def is_free(count=2):
    taken = devices._try_lease(devices.lease_folder(), "", ["0", "1"], count)
    if taken is None:
        return False
    taken.release()
    return True


def test_no_devices_is_the_cpu(monkeypatch):
    monkeypatch.delenv("ABLATION_FAKE_GPUS")
    monkeypatch.setattr(devices, "_count_devices", lambda: 0)
    held = devices.lease(2)
    assert (held.tokens, held.devices) == ([], ["cpu"])


def test_a_stage_without_gpu_sees_none(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    held = devices.lease(0)
    held.export()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
    assert held.devices == ["cpu"]


def test_leases_differ_and_are_numbered_from_zero(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # restored at the end of the test
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    first, second = devices.lease(1), devices.lease(1)
    assert sorted([*first.tokens, *second.tokens]) == ["0", "1"]
    second.export()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == second.tokens[0]
    assert second.devices == ["cuda:0"]


def test_more_than_there_are_is_an_error():
    with pytest.raises(ValueError, match="3 devices asked, 2 visible"):
        devices.lease(3)


@pytest.mark.parametrize(
    ("named", "tokens"),
    [("", []), ("3,1", ["3", "1"]), ("0,-1,1", ["0"]), ("GPU-8f2a, 2", ["GPU-8f2a", "2"]), ("-1", [])],
)
def test_named_devices_are_the_pool(monkeypatch, named, tokens):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert devices.visible_devices() == tokens


def test_all_or_nothing():
    one = devices.lease(1)
    assert devices._try_lease(devices.lease_folder(), "", ["0", "1"], 2) is None
    other = devices.lease(1)  # the attempt above kept nothing
    assert other.tokens != one.tokens


def test_scheduler_jobs_do_not_hinder_each_other_but_share_within_one(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")  # constrained cgroups: each job sees its device as 0
    monkeypatch.setenv("SLURM_JOB_ID", "11")
    assert devices.lease(1).tokens == ["0"]
    first = devices.lease_folder()
    assert devices._try_lease(first, devices._namespace({"SLURM_JOB_ID": "12"}), ["0"], 1) is not None
    assert devices._try_lease(first, devices._namespace({"SLURM_JOB_ID": "11"}), ["0"], 1) is None


def test_a_removed_lock_file_is_not_taken_for_a_lock():
    held = devices.lease(2)
    path = devices.lease_folder() / "gpu-0.lock"
    descriptor = os.open(path, os.O_RDWR)
    path.unlink()  # as a cleaner of /tmp would
    held.release()
    fresh = devices._try_lock(path)
    assert os.fstat(fresh).st_ino == path.stat().st_ino
    os.close(descriptor)
    os.close(fresh)


def test_a_folder_of_someone_else_is_refused(tmp_path, monkeypatch):
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.setenv("ABLATION_LEASES", str(tmp_path / "link"))
    with pytest.raises(PermissionError):
        devices.lease_folder()


def test_a_killed_holder_frees_its_device_at_once():
    holder = hold(2, 60)
    assert holder.stdout.readline().split() == ["0", "1"]
    assert not is_free(1)
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert is_free(2)


def test_an_orphan_keeps_its_lease_until_it_ends():
    start = f"subprocess.Popen([sys.executable, '-c', {HOLD!r}, '1', '60'])"
    parent_code = f"import subprocess, sys, time; {start}; time.sleep(60)"
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline().split() == ["0"]
    orphan = int((devices.lease_folder() / "gpu-0.lock").read_text())
    parent.kill()
    parent.wait()
    assert not is_free(2)
    os.kill(orphan, signal.SIGKILL)
    deadline = time.monotonic() + 5
    while not is_free(2):
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_child_program_does_not_keep_the_lease():
    code = HOLD.replace(
        "print(", "import subprocess; subprocess.Popen(['sleep', '20'], stdout=subprocess.DEVNULL); print("
    )
    holder = subprocess.Popen([sys.executable, "-c", code, "2", "60"], stdout=subprocess.PIPE, text=True)
    holder.stdout.readline()
    holder.kill()
    holder.wait()
    assert is_free(2)


def test_twelve_processes_never_share_a_device(tmp_path):
    code = """
import os, random, sys, time
from trainers.devices import lease
held = lease(random.choice([1, 1, 2]), poll=0.02)
for token in held.tokens:
    os.close(os.open(f"{sys.argv[1]}/{token}", os.O_CREAT | os.O_EXCL))  # fails if someone else is there
time.sleep(0.05)
for token in held.tokens:
    os.unlink(f"{sys.argv[1]}/{token}")
print(len(held.tokens))
"""
    (tmp_path / "in-use").mkdir()
    command = [sys.executable, "-c", code, str(tmp_path / "in-use")]
    running = [subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for _ in range(12)]
    for process in running:
        out, error = process.communicate(timeout=60)
        assert process.returncode == 0, error
        assert out.strip() in ("1", "2")

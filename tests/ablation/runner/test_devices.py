"""Devices are never leased twice, and a lease ends exactly when the process that uses the device ends."""

import os
import signal
import subprocess
import sys

import pytest

from ablation.runner import devices
from tests.workflow.project import wait_for

HOLD = """
import sys, time
from ablation.runner.devices import lease
held = lease(int(sys.argv[1]))
print(*held.tokens, flush=True)
time.sleep(float(sys.argv[2]))
"""


HOST = {"0": "gpu-0.lock", "1": "gpu-1.lock"}


@pytest.fixture(autouse=True)
def _own_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ABLATION_LEASES", str(tmp_path / "leases"))
    monkeypatch.setenv("ABLATION_FAKE_GPUS", "2")
    for name in ("CUDA_VISIBLE_DEVICES", "SLURM_STEP_GPUS", "SLURM_JOB_GPUS", *devices._SCHEDULER_JOBS):
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
    taken = devices._try_lease(devices.lease_folder(), HOST, count)
    if taken is None:
        return False
    taken.release()
    return True


def test_no_devices_is_the_cpu(monkeypatch):
    monkeypatch.delenv("ABLATION_FAKE_GPUS")
    monkeypatch.setattr(devices, "_uuids", list)
    held = devices.lease(2)
    assert (held.tokens, held.devices) == ([], ["cpu"])


def test_more_devices_than_there_are_is_refused():
    with pytest.raises(ValueError, match=r"needs 3 devices, but the only visible ones are 0, 1"):
        devices.lease(3)


def test_leases_differ_and_are_numbered_from_zero(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")  # restored at the end of the test
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES")
    first, second = devices.lease(1), devices.lease(1)
    assert sorted([*first.tokens, *second.tokens]) == ["0", "1"]
    second.export()
    assert os.environ["CUDA_VISIBLE_DEVICES"] == second.tokens[0]
    assert second.devices == ["cuda:0"]


@pytest.mark.parametrize(
    ("named", "tokens"),
    [
        ("", []),
        (" 2, 0", ["2", "0"]),
        ("0,-1,1", ["0"]),
        ("-1", []),
        ("NoDevFiles", []),
        ("0,4,1", ["0"]),
        ("0,1,0", []),
        ("GPU-8f2a,GPU-77", ["GPU-8f2a", "GPU-77"]),
        ("GPU-8f2a, 2", ["GPU-8f2a"]),
        ("2,GPU-8f2a", ["2"]),
        ("GPU-8f2a,GPU-8f", []),
        ("GPU-77,GPU-,GPU-8f2a", ["GPU-77"]),
        ("GPU-12,GPU-77", []),
        ("MIG-5,MIG-6", ["MIG-5", "MIG-6"]),
    ],
)
def test_named_devices_are_read_as_cuda_reads_them(monkeypatch, named, tokens):
    monkeypatch.delenv("ABLATION_FAKE_GPUS")
    monkeypatch.setattr(devices, "_uuids", lambda: ["GPU-8f2ac1", "GPU-771", "GPU-a", "GPU-b"])
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
    assert devices.visible_devices() == tokens


def test_scheduler_jobs_do_not_hinder_each_other_but_share_within_one():
    """With constrained cgroups each job sees its device as 0: real processes, of two jobs and two of the same."""
    first = hold(1, 900, CUDA_VISIBLE_DEVICES="0", SLURM_JOB_ID="11")
    other = hold(1, 900, CUDA_VISIBLE_DEVICES="0", SLURM_JOB_ID="12")
    assert [holder.stdout.readline().split() for holder in (first, other)] == [["0"], ["0"]]
    same = hold(1, 0, CUDA_VISIBLE_DEVICES="0", SLURM_JOB_ID="11")
    with pytest.raises(subprocess.TimeoutExpired):
        same.wait(timeout=0.7)
    first.kill()
    assert same.stdout.readline().split() == ["0"]
    assert is_free(2)  # none of this touched the pool of the host
    other.kill()


@pytest.mark.parametrize(
    ("visible", "environment", "locks"),
    [
        (["0"], {}, ["gpu-0"]),
        (["0"], {"SLURM_JOB_ID": "7"}, ["SLURM_JOB_ID-7-gpu-0"]),
        # two overlapping steps of one job share a device, two exclusive ones do not, though both see 0
        (["0"], {"SLURM_JOB_ID": "7", "SLURM_STEP_GPUS": "3"}, ["SLURM_JOB_ID-7-gpu-3"]),
        (["0", "1"], {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "2,5"}, ["SLURM_JOB_ID-7-gpu-2", "SLURM_JOB_ID-7-gpu-5"]),
        (["1"], {"SLURM_JOB_ID": "7", "SLURM_JOB_GPUS": "0,1"}, ["SLURM_JOB_ID-7-gpu-1"]),  # narrowed by the user
        (["0"], {"LSB_JOBID": "8"}, ["LSB_JOBID-8-gpu-0"]),
        (["0"], {"SGE_JOB_SPOOL_DIR": "/spool/9.1"}, ["SGE_JOB_SPOOL_DIR-_spool_9.1-gpu-0"]),
        (["0"], {"JOB_ID": "3"}, ["gpu-0"]),  # anybody's variable
    ],
)
def test_names_of_the_locks(visible, environment, locks):
    named = devices._lock_names(visible, {"CUDA_VISIBLE_DEVICES": ",".join(visible), **environment})
    assert named == {token: f"{lock}.lock" for token, lock in zip(visible, locks, strict=True)}


def test_a_job_that_was_given_no_devices_shares_the_pool_of_the_host():
    """A shell inside `salloc` on a login node has a job's number, but its devices are the host's."""
    assert devices._lock_names(["0", "1"], {"SLURM_JOB_ID": "11"}) == HOST


def test_index_and_uuid_are_the_same_device(monkeypatch):
    monkeypatch.setattr(devices, "_uuids", lambda: ["GPU-aa11", "GPU-aa22"])
    assert devices._lock_names(["GPU-aa22", "GPU-aa1", "0", "GPU-aa", "MIG-1"], {}) == {
        "GPU-aa22": "gpu-1.lock",
        "GPU-aa1": "gpu-0.lock",
        "0": "gpu-0.lock",
        "GPU-aa": "gpu-GPU-aa.lock",  # ambiguous: CUDA refuses it
        "MIG-1": "gpu-MIG-1.lock",
    }


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


def test_an_orphan_keeps_its_lease_until_it_ends():
    start = f"subprocess.Popen([sys.executable, '-c', {HOLD!r}, '1', '900'])"
    parent_code = f"import subprocess, sys, time; {start}; time.sleep(900)"
    parent = subprocess.Popen([sys.executable, "-c", parent_code], stdout=subprocess.PIPE, text=True)
    assert parent.stdout.readline().split() == ["0"]
    orphan = int((devices.lease_folder() / "gpu-0.lock").read_text())
    parent.kill()
    parent.wait()
    assert not is_free(2)
    os.kill(orphan, signal.SIGKILL)
    wait_for(lambda: is_free(2))


def test_a_child_program_does_not_keep_the_lease():
    code = HOLD.replace(
        "print(", "import subprocess; subprocess.Popen(['sleep', '20'], stdout=subprocess.DEVNULL); print("
    )
    holder = subprocess.Popen([sys.executable, "-c", code, "2", "900"], stdout=subprocess.PIPE, text=True)
    holder.stdout.readline()
    holder.kill()
    holder.wait()
    assert is_free(2)


def test_twelve_processes_never_share_a_device(tmp_path):
    code = """
import os, random, sys, time
from ablation.runner.devices import lease
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
        out, error = process.communicate(timeout=900)
        assert process.returncode == 0, error
        assert out.strip() in ("1", "2")

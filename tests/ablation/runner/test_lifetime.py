"""The lock of a stage's folder: a glance of the tracker is waited for, a runner is not."""

import fcntl
import os
import socket
import threading
import time

import pytest

from ablation.runner.lifetime import FolderInUse, lock_folder


def hold(folder, kind):
    descriptor = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(descriptor, kind)
    return descriptor


def test_a_glance_at_the_lock_does_not_keep_a_runner_out(tmp_path):
    glance = hold(tmp_path, fcntl.LOCK_SH)
    timer = threading.Timer(0.3, os.close, [glance])
    timer.start()
    start = time.monotonic()
    held = lock_folder(tmp_path)
    assert 0.25 < time.monotonic() - start < 0.9
    timer.join()
    assert (tmp_path / ".lock").read_text().split() == [str(os.getpid()), socket.gethostname()]
    os.close(held)


def test_the_holder_is_named_after_a_second(tmp_path):
    runner = hold(tmp_path, fcntl.LOCK_EX)
    os.write(runner, b"4242\n")
    start = time.monotonic()
    with pytest.raises(FolderInUse, match="process 4242 is running"):
        lock_folder(tmp_path)
    assert 1 <= time.monotonic() - start < 3
    os.close(runner)
    os.close(lock_folder(tmp_path))  # the refused call left nothing behind


def test_it_waits_as_long_as_it_is_told_and_says_for_whom(tmp_path):
    runner = hold(tmp_path, fcntl.LOCK_EX)
    os.write(runner, b"4242 node7, Slurm job 11,\n")
    timer = threading.Timer(1.6, os.close, [runner])
    timer.start()
    said = []
    held = lock_folder(tmp_path, wait=30, on_wait=said.append)
    assert said == ["process 4242 on node7, Slurm job 11,"]
    timer.join()
    os.close(held)


def test_a_job_of_slurm_names_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    os.close(lock_folder(tmp_path))
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()} {socket.gethostname()}, Slurm job 17,\n"


def test_a_free_folder_is_locked_at_once_and_against_others(tmp_path):
    start = time.monotonic()
    held = lock_folder(tmp_path)
    assert time.monotonic() - start < 0.2
    with (tmp_path / ".lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(held)

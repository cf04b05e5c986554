"""The lock of a stage's folder: a glance of the tracker is waited for, a runner is not."""

import fcntl
import os
import threading
import time

import pytest

from trainers.lifetime import FolderInUse, lock_folder


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
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()}\n"
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


def test_a_free_folder_is_locked_at_once_and_against_others(tmp_path):
    start = time.monotonic()
    held = lock_folder(tmp_path)
    assert time.monotonic() - start < 0.2
    with (tmp_path / ".lock").open() as other, pytest.raises(BlockingIOError):
        fcntl.flock(other, fcntl.LOCK_SH | fcntl.LOCK_NB)
    os.close(held)

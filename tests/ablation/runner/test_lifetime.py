"""The lock of a stage's folder: a glance of the tracker is waited for, a runner is not."""

import fcntl
import os
import socket
import threading
import time

from ablation.runner.lifetime import lock_folder


def test_a_glance_at_the_lock_does_not_keep_a_runner_out(tmp_path):
    glance = os.open(tmp_path / ".lock", os.O_RDWR | os.O_CREAT)
    fcntl.flock(glance, fcntl.LOCK_SH)
    timer = threading.Timer(0.3, os.close, [glance])
    timer.start()
    start = time.monotonic()
    held = lock_folder(tmp_path)
    assert time.monotonic() - start > 0.25
    timer.join()
    assert (tmp_path / ".lock").read_text().split() == [str(os.getpid()), socket.gethostname()]
    os.close(held)


def test_a_job_of_slurm_names_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "17")
    os.close(lock_folder(tmp_path))
    assert (tmp_path / ".lock").read_text() == f"{os.getpid()} {socket.gethostname()}, Slurm job 17,\n"

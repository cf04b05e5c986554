"""Who holds a lock is alone, also where the one before has removed its file."""

import fcntl
import threading

from ablation.contract.process import alone


def is_free(lock):
    with lock.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


def test_who_waited_for_a_lock_that_was_removed_holds_the_one_that_others_find(tmp_path, monkeypatch):
    lock = tmp_path / "folder/.lock"
    waits, holds, done = threading.Event(), threading.Event(), threading.Event()
    flock = fcntl.flock

    def waiting(handle, kind):
        if threading.current_thread() is second:
            waits.set()
        flock(handle, kind)

    monkeypatch.setattr(fcntl, "flock", waiting)

    def wait():
        with alone(lock):
            holds.set()
            done.wait(900)

    second = threading.Thread(target=wait)
    with alone(lock):
        assert not is_free(lock)
        second.start()
        assert waits.wait(900)
        assert not holds.wait(0.05)
        lock.unlink()
        lock.parent.rmdir()
    assert holds.wait(900)
    assert not is_free(lock)
    done.set()
    second.join()
    assert is_free(lock)

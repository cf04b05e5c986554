"""Whether a process is running a stage."""

import fcntl
import os
from pathlib import Path


def is_locked(folder: Path) -> bool:
    """Whether a runner holds the stage's lock. The check takes a shared lock for an instant."""
    try:  # a pipe of this name is not waited for
        handle = os.open(folder / ".lock", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    except OSError:
        return False
    finally:
        os.close(handle)
    return False

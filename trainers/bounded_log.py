"""A command's output on its way to the log, which keeps the beginning and the end where there is very much of it."""

import contextlib
import os
from pathlib import Path

HEAD, TAIL, MOST = 32 << 20, 16 << 20, 64 << 20  # bytes of the log
_LINE = 1 << 16  # so far a line is looked for; a longer one is cut


def pump(source: int, log: Path) -> None:
    """Append what comes from the pipe `source` to the log until its other end is closed.

    Whoever writes to the pipe is never refused: what a full disk does not take is dropped.
    """
    file = os.open(log, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o644)
    head = left_out = 0
    while chunk := os.read(source, 1 << 16):
        with contextlib.suppress(OSError):
            _write(file, chunk)
            if (size := os.fstat(file).st_size) > MOST:
                if not head:
                    head = HEAD - len(os.pread(file, _LINE, HEAD - _LINE).rpartition(b"\n")[2])
                tail = os.pread(file, TAIL, size - TAIL)
                tail = tail[tail[:_LINE].find(b"\n") + 1 :]
                left_out += size - head - len(tail)
                os.ftruncate(file, head)
                note = b"[about %d MB of the command's output are left out here]\n" % round(left_out / 1e6)
                _write(file, note + tail)
    os.close(file)
    os.close(source)


def _write(file: int, data: bytes) -> None:
    while data:
        data = data[os.write(file, data) :]

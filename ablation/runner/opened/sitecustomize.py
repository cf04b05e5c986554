"""Notes which files of the project a command's Python reads, a line each, in the file that ABLATION_OPENED names.

`ablation.runner.command` puts this folder into PYTHONPATH, so every Python below the command begins with this
module, whatever its version: it must avoid new features, and a failure here must not reach the program.
"""

import os
import sys

_MOST = 1000  # lines of one process
_WRITING = os.O_WRONLY | os.O_RDWR


def _watch() -> None:
    report, root = os.environ["ABLATION_OPENED"].split("\n")[:2]
    apart = tuple(os.path.join(folder, "") for folder in os.environ["ABLATION_OPENED"].split("\n")[2:])
    apart += os.path.join(sys.prefix, ""), os.path.join(sys.base_prefix, "")
    root = os.path.join(root, "")
    if root.startswith(apart):  # a project within Python's own folder, as /usr
        apart = apart[:-2]
    seen: set[str] = set()

    def hook(event: str, arguments: "tuple[str, str | None, int]") -> None:
        if event != "open":
            return
        try:
            path, _, flags = arguments
            if flags & _WRITING or isinstance(path, int) or len(seen) >= _MOST:
                return
            path = os.fsdecode(path)
            if path[:1] != "/" or ".." in path:
                path = os.path.abspath(path)
            if not path.startswith(root) or path.startswith(apart):
                return
            folder, name = os.path.split(path)
            if os.path.basename(folder) == "__pycache__":
                path = os.path.join(os.path.dirname(folder), name.split(".")[0] + ".py")
            if path in seen or "\n" in path or os.sep + "." in path[len(root) - 1 :]:
                return
            seen.add(path)
            descriptor = os.open(report, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            try:
                os.write(descriptor, os.fsencode(path) + b"\n")
            finally:
                os.close(descriptor)
        except Exception:  # the program is not to see it
            return

    sys.addaudithook(hook)


def _hand_over() -> None:
    """Import the sitecustomize that this one hides, if there is one."""
    here, ours = os.path.dirname(os.path.abspath(__file__)), sys.modules.pop(__name__)
    sys.path[:] = [folder for folder in sys.path if os.path.abspath(folder) != here]
    try:
        __import__(__name__)
    except ImportError:
        if __name__ in sys.modules or getattr(sys.exc_info()[1], "name", "") != __name__:
            raise
    finally:
        sys.modules.setdefault(__name__, ours)


try:  # noqa: SIM105 - contextlib costs milliseconds
    _watch()
except Exception:
    pass
_hand_over()

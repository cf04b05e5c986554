"""Project files that a command opened and its `code` does not name: a change to them would not rerun it.

An audit hook of Python (`ablation/runner/opened/sitecustomize.py`) reports them, below shells and launchers too; files
opened by other programs and C libraries are not seen.
"""

import os
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path

from ablation.contract.code_files import FileCode, is_installed

_HOOK = str(Path(__file__).with_name("opened"))


def watched(
    words: Sequence[str], report: Path, code: FileCode, environment: Mapping[str, str]
) -> tuple[list[str], dict[str, str]]:
    """Return the command and its additional environment, so that each Python below it writes to `report`."""
    report.unlink(missing_ok=True)
    place = [report.absolute(), Path().absolute(), *(Path(folder).absolute() for folder in code.outside)]
    before = environment.get("PYTHONPATH")
    more = {
        "ABLATION_OPENED": "\n".join(map(str, place)),
        "PYTHONPATH": _HOOK + (os.pathsep + before if before else ""),
    }
    written = "PYTHONPATH="
    hooked = f"{written}{_HOOK}{os.pathsep}"
    return [word.replace(written, hooked, 1) if word.startswith(written) else word for word in words], more


def unnamed(report: Path, code: FileCode, since: float) -> list[str]:
    """Return the opened files that are not code, relative to the project's folder, except files written since."""
    try:
        opened = {os.path.relpath(os.fsdecode(line)) for line in report.read_bytes().splitlines()}
    except OSError:  # nothing was
        return []
    report.unlink(missing_ok=True)
    known = {os.path.realpath(name) for name in code.files}
    return sorted(name for name in opened if _is_older(name, since) and os.path.realpath(name) not in known)


def _is_older(name: str, moment: float) -> bool:
    try:
        found = os.stat(name)
    except OSError:
        return False
    return stat.S_ISREG(found.st_mode) and found.st_mtime < moment and not is_installed(Path(), name)

"""Environments of other people's libraries: one for each list `tests/peers/NAME.txt`, made by `make peers`.

Each stands over the everyday environment, whose packages it sees, so that torch is installed once. A list names every
package that is added, with its version, and is installed as it stands (`pip install --no-deps`). To renew a list,
install the library into an environment that `make peers` has made, and take `pip freeze --path` of its site-packages.

`NAME.json` is a `package.json` of npm with a Node for Linux on x86-64; the Makefile names the day of other packages.
"""

import os
from pathlib import Path

import pytest

from tests.repository import ROOT

FOLDER = ROOT / ".venv-peers"


def python_of(name: str) -> Path:
    """Return the interpreter that sees the library. Without it a test is skipped; in CI (PEER_TESTS) it fails."""
    return folder_of(name) / "bin" / "python"


def folder_of(name: str) -> Path:
    """Return the folder of an environment. Without it a test is skipped; in CI (PEER_TESTS) it fails, unless of npm."""
    folder = FOLDER / name
    if not (folder / ".installed").is_file():
        needed = os.environ.get("PEER_TESTS") and (ROOT / f"tests/peers/{name}.txt").is_file()
        lacking = pytest.fail if needed else pytest.skip
        lacking(f"no environment {folder.relative_to(ROOT)}: make peers")
    return folder

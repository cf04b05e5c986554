"""Faults on purpose. `make chaos` runs the long form (ABLATION_CHAOS=long), `make test-rest` a short one."""

import fcntl
import os
import subprocess
from pathlib import Path

import pytest

from tests.chaos.light import finish, light
from tests.workflow.project import Project, wait_for

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents:
            item.add_marker(pytest.mark.chaos)


@pytest.fixture(scope="session")
def long():
    return os.environ.get("ABLATION_CHAOS") == "long"


@pytest.fixture
def mount(long):
    """mount(folder, size) puts a small file system there; mount(folder, read_only=True) makes the folder read-only."""
    mounted = []

    def mount(folder, size=None, read_only=False):
        commands = [["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]] if size else []
        if read_only:
            commands = [["mount", "--bind", str(folder), str(folder)], ["mount", "-o", "remount,bind,ro", str(folder)]]
        for command in commands:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                lacking = pytest.fail if long else pytest.skip
                lacking(f"mounting needs root: {done.stderr.strip()}; run `sudo make chaos`")
            if command[1] != "-o":
                mounted.append(folder)

    yield mount
    for folder in reversed(mounted):
        subprocess.run(["umount", "-l", str(folder)], check=False)


@pytest.fixture(scope="session")
def finished(tmp_path_factory):
    """A project in which everything has run once, undisturbed; tests that change it take a copy."""
    base = tmp_path_factory.getbasetemp()
    root = base.parent if "PYTEST_XDIST_WORKER" in os.environ else base  # one for all workers
    project = Project(root / "finished")
    with (root / "finished.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not project.folder.exists():
            made = light(root / "unfinished", seeds=3, pause=0.05)
            finish(made)
            made.folder.rename(project.folder)
    return project


@pytest.fixture
def project(finished, tmp_path):
    """A copy of the finished project, which no process may outlive; the fork server takes a moment to end."""
    project = finished.copy(tmp_path / "project")
    yield project
    wait_for(lambda: project.processes() == [])

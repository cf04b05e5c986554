"""Our `sacct` before Slurm's: a cancelled job is recognised, and where Slurm keeps no accounts slurmctld is asked."""

import os
import subprocess

import pytest

from tests.repository import ROOT

FOLDER = ROOT / "workflow" / "profiles" / "slurm" / "bin"
QUESTION = ["-X", "--parsable2", "--noheader", "--format=JobIdRaw,State", "--name", "run-1"]


DISABLED = "echo Slurm accounting storage is disabled >&2; exit 1"
STATES = "printf '1|COMPLETED\\n2|CANCELLED by 1000\\n3|CANCELLED\\n'"
OTHER = ["-j", "7.0", "--format=Reason", "--noheader"]


@pytest.mark.parametrize(
    ("words", "commands", "told"),
    [
        (QUESTION, {"sacct": STATES}, ("1|COMPLETED\n2|CANCELLED\n3|CANCELLED\n", 0)),  # states that the plugin knows
        (QUESTION, {"sacct": "exit 0", "squeue": "echo wrong"}, ("", 0)),  # no jobs
        (
            QUESTION,
            {"sacct": DISABLED, "squeue": 'echo "$@"'},
            ("--states=all --noheader --format=%i|%T --name run-1\n", 0),
        ),
        (QUESTION, {"sacct": DISABLED, "squeue": "exit 1"}, ("", 1)),  # while nobody answers the plugin is told so
        (OTHER, {"sacct": DISABLED, "squeue": "echo wrong"}, ("", 0)),
    ],
    ids=["cancelled", "none", "without accounts slurmctld is asked", "nobody answers", "other questions"],
)
def test_what_the_plugin_is_told(tmp_path, words, commands, told):
    """Ours is called, with stand-ins for Slurm's own commands."""
    for name, text in commands.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    environment = os.environ | {"PATH": os.pathsep.join([str(FOLDER), str(tmp_path), "/usr/bin", "/bin"])}
    call = {"env": environment, "capture_output": True, "text": True, "timeout": 900}
    done = subprocess.run(["sacct", *words], check=False, **call)
    assert (done.stdout, done.returncode) == told

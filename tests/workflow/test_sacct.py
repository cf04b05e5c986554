"""Our `sacct` before Slurm's: a cancelled job is recognised, and where Slurm keeps no accounts slurmctld is asked."""

import os
import subprocess

import pytest

from tests.repository import ROOT

FOLDER = ROOT / "workflow" / "profiles" / "slurm" / "bin"
QUESTION = ["-X", "--parsable2", "--noheader", "--format=JobIdRaw,State", "--name", "run-1"]


@pytest.fixture
def ask(tmp_path):
    """Call ours with stand-ins for Slurm's own commands."""

    def run(*words, **commands):
        for name, text in commands.items():
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        path = os.pathsep.join([str(FOLDER), str(tmp_path), "/usr/bin", "/bin"])
        environment = {**os.environ, "PATH": path}
        return subprocess.run(
            ["sacct", *words], env=environment, capture_output=True, text=True, check=False, timeout=10
        )

    return run


def test_a_cancelled_job_has_the_state_that_the_plugin_knows(ask):
    done = ask(*QUESTION, sacct="printf '1|COMPLETED\\n2|CANCELLED by 1000\\n3|CANCELLED\\n'")
    assert (done.stdout, done.returncode) == ("1|COMPLETED\n2|CANCELLED\n3|CANCELLED\n", 0)


def test_no_jobs_are_no_lines(ask):
    done = ask(*QUESTION, sacct="exit 0", squeue="echo wrong")
    assert (done.stdout, done.returncode) == ("", 0)


DISABLED = "echo Slurm accounting storage is disabled >&2; exit 1"


def test_without_accounts_slurmctld_is_asked_for_the_jobs_of_this_run(ask):
    done = ask(*QUESTION, sacct=DISABLED, squeue='echo "$@"')
    assert done.stdout == "--states=all --noheader --format=%i|%T --name run-1\n"
    assert done.returncode == 0


def test_while_nobody_answers_the_plugin_is_told_so(ask):
    assert ask(*QUESTION, sacct=DISABLED, squeue="exit 1").returncode == 1


def test_other_questions_have_no_answer_without_accounts(ask):
    done = ask("-j", "7.0", "--format=Reason", "--noheader", sacct=DISABLED, squeue="echo wrong")
    assert (done.stdout, done.returncode) == ("", 0)

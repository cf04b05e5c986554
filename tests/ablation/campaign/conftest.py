"""A repository with a loop's program: a shell script whose value is that of `gain`, with noise by its seed."""

import subprocess

import pytest

from tests.ablation.typed import typed

TRAIN = """
seed=${2:-0}
sleep ${SLEEP:-0}
awk -v s=$seed -v g=$(cat gain) 'BEGIN { x = sin(s * 12.9898) * 43758.5453; x -= int(x); print "score:   " g + x }'
"""
INIT = ("campaign", "init", "--run", "sh train.sh", "--metric", "score:max", "--seed-arg", "--seed {seed}")
MORE = ("--min-seconds", 0)


def git(folder, *words):
    return subprocess.run(["git", *words], cwd=folder, check=True, capture_output=True, text=True).stdout.strip()


class Loop:
    """What a loop does: edit, commit, try, reset."""

    def __init__(self, folder, capsys):
        self.folder, self.capsys = folder, capsys
        git(folder, "init", "-q")
        git(folder, "config", "user.email", "loop@example.org")
        git(folder, "config", "user.name", "loop")
        self.write("train.sh", TRAIN)
        self.write("gain", "0")
        self.write("evaluate.py", "def score():\n    return 1\n")
        self.commit("baseline")

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(exist_ok=True, parents=True)
        path.write_text(text)

    def commit(self, text="change"):
        git(self.folder, "add", "-A")
        git(self.folder, "commit", "-q", "--allow-empty", "-m", text)
        return git(self.folder, "rev-parse", "HEAD")

    def say(self, *words):
        """Status, output and errors of a command, typed in the repository."""
        return typed(self.capsys, *words)

    def begin(self, *more):
        status, out, err = self.say(*INIT, *MORE, *more)
        assert status == 0, err
        return out

    def attempt(self, gain=None, why="change", *more):
        if gain is not None:
            self.write("gain", str(gain))
            self.commit(why)
        return self.say("try", "--why", why, *more)

    def ledger(self):
        return (self.folder / "campaign.jsonl").read_text().splitlines()


@pytest.fixture
def loop(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GIT_DIR", raising=False)
    monkeypatch.setenv("ABLATION_FAKE_GPUS", "0")
    return Loop(tmp_path, capsys)

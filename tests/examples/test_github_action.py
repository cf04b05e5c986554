"""examples/github-action: what its steps do, with stand-ins for lm_eval and gh. The comment is a golden file."""

import os
import stat
import subprocess
import sys

import pytest
import yaml

from ablation.store.collect import collect
from tests.peers.environment import ROOT
from tests.simulate import Study, simulate

EXAMPLE = ROOT / "examples/github-action"
STEPS, GRID = (
    {
        step["name"]: step["run"]
        for step in yaml.safe_load((EXAMPLE / f"{job}.yml").read_text())["jobs"][job]["steps"]
        if "name" in step
    }
    for job in ("gate", "grid")
)
LM_EVAL = f"""#!{sys.executable}
import sys
from pathlib import Path
from tests.ablation.readers.samples import hits, row, write_samples
words = [word for word in sys.argv[1:] if word != "--log_samples"]
given = dict(zip(words[::2], words[1::2]))
gain = float(given["--model_args"].removeprefix("pretrained=model"))
rows = [row(i, v) for i, v in enumerate(hits(int(given["--seed"]), gain, 400))]
write_samples(Path(given["--output_path"]), rows, task=given["--tasks"])
"""
GH = """#!/bin/bash
printf '%s\\n' "$*" >> asked.txt
case "$*" in *--jq*) cat known.txt;; *) [ ! -e denied ];; esac
"""


@pytest.fixture
def steps(tmp_path, monkeypatch):
    """Runs a named step as GitHub does, and returns its exit status."""
    for name, text in (
        ("lm_eval", LM_EVAL),
        ("gh", GH),
        ("ablation", f"#!/bin/sh\nexec {sys.executable} -m ablation $@"),
    ):
        path = tmp_path / "bin" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text.replace("$@", '"$@"'))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
    (tmp_path / "known.txt").touch()
    given = {"GITHUB_REPOSITORY": "me/it", "NUMBER": "7", "GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    environment = {**os.environ, **given, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)}

    def run(name, steps=STEPS, **variables):
        command = ["bash", "--noprofile", "--norc", "-eo", "pipefail", "-c", steps[name]]
        return subprocess.run(command, cwd=tmp_path, env=environment | variables, check=False, timeout=900).returncode

    def evaluated(base, new):
        for side, gain in (("base", base), ("new", new)):
            (tmp_path / side).mkdir(exist_ok=True)
            (tmp_path / side / "model.txt").write_text(f"model{gain}\n")
        assert run("Evaluate") == 0

    run.evaluated = evaluated  # type: ignore[attr-defined]
    return run


def test_a_pull_request_gets_one_comment_and_the_status_of_the_gate(steps, tmp_path):
    steps.evaluated(base=0.0, new=0.1)
    assert steps("Gate") == 0
    comment = (tmp_path / "comment.md").read_text()
    assert comment == (EXAMPLE / "comment.md").read_text()
    assert comment == "<!-- ablation gate -->\n" + (tmp_path / "summary.md").read_text()
    listed, posted = (tmp_path / "asked.txt").read_text().splitlines()
    assert listed.startswith("api --paginate repos/me/it/issues/7/comments --jq ")
    assert posted == "api --method POST repos/me/it/issues/7/comments --field body=@comment.md"
    # The next push is worse: the comment that is there is changed, and a fork's token does not change the answer.
    steps.evaluated(base=0.1, new=0.0)
    (tmp_path / "known.txt").write_text("41\n42\n")
    (tmp_path / "denied").touch()
    assert steps("Gate") == 10
    assert "new against base: worse" in (tmp_path / "comment.md").read_text()
    patched = (tmp_path / "asked.txt").read_text().splitlines()[-1]
    assert patched == "api --method PATCH repos/me/it/issues/comments/41 --field body=@comment.md"


def test_evaluations_that_cannot_be_compared_are_no_pass(steps, tmp_path):
    (tmp_path / "runs").mkdir()
    assert steps("Gate") == 2
    assert "error: " in (tmp_path / "comment.md").read_text()


def test_a_grid_ends_with_the_status_of_its_gate(steps, tmp_path):
    worse = Study(
        "example", variants=2, seeds=5, distances={"v1": 0.3}, seed_sd=0.005, items={"gender": 500, "race": 500}
    )
    simulate(tmp_path / "results", [worse])
    collect(tmp_path / "results")
    assert steps("Gate", GRID, STUDY="example") == 10
    assert "example: worse" in (tmp_path / "summary.md").read_text()

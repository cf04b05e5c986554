"""`verdicts --brief`: the sentences of the last report where it was made of what is here, and never old ones."""

import os
import re
import shutil
import subprocess
import sys

import pytest

from ablation.cli import brief
from ablation.cli.main import main
from ablation.judge import verdicts
from ablation.store.collect import collect
from tests.repository import ROOT
from tests.simulate import Study, simulate


def run_grid(results, **words):
    simulate(results, [Study("one", variants=2, **words), Study("two", variants=2)])
    collect(results)


@pytest.fixture
def said(tmp_path, capsys):
    """A function that returns what a command prints about these results."""

    def ask(*words, status=0):
        folders = ["--results", str(tmp_path), *(["--reports", str(tmp_path / "reports")] if "report" in words else [])]
        assert main([*words, *folders]) == status
        return " ".join(capsys.readouterr().out.split())

    return ask


@pytest.fixture
def judged(monkeypatch):
    """The studies that were judged, a call after the other."""
    calls = []
    original = verdicts.judge_studies

    def judge_studies(store, study=None):
        calls.append(study)
        return original(store, study)

    monkeypatch.setattr(verdicts, "judge_studies", judge_studies)
    return calls


def test_the_report_has_judged_already(tmp_path, said, judged):
    run_grid(tmp_path)
    before = said("verdicts", "--brief")
    assert re.fullmatch(r"one: \S.*\. two: \S.*\.", before)
    second = said("verdicts", "two", "--brief")
    assert judged == [None, "two"]
    assert before.endswith(second)
    assert "reports/index.html" in said("report")
    assert (said("verdicts", "--brief"), said("verdicts", "two", "--brief")) == (before, second)
    assert judged == [None, "two"]
    said("verdicts", "onne", "--brief", status=2)
    page = (tmp_path / "reports/index.html").read_text()
    assert all(answer in page for answer in re.split(r" ?\b(?:one|two): ", before))


def test_other_results_are_judged(tmp_path, said, judged):
    run_grid(tmp_path)
    said("report")
    before = said("verdicts", "--brief")
    run_grid(tmp_path, distances={"v1": 0.4})
    after = said("verdicts", "--brief")
    assert after != before
    assert judged == [None]
    said("report")
    assert said("verdicts", "--brief") == after
    assert judged == [None]


def test_answers_hold_for_one_database_one_code_and_one_whole_file(tmp_path, monkeypatch):
    (tmp_path / "judge").mkdir()
    (tmp_path / "judge/judge.py").write_text("margin = 1")
    (tmp_path / "tracker.duckdb").write_bytes(b"rows")
    monkeypatch.setattr(brief, "_PACKAGE", tmp_path)
    brief.keep_answers(tmp_path, brief.digest_of(tmp_path), {"one": "Yes."})
    for file, other in (("tracker.duckdb", "row"), ("judge/judge.py", "margin = 2"), ("judge/new.py", "")):
        path = tmp_path / file
        before = path.read_text() if path.exists() else None
        assert brief.kept_answers(tmp_path) == {"one": "Yes."}
        path.write_text(other)
        assert brief.kept_answers(tmp_path) is None, file
        path.unlink()
        if before is not None:
            assert brief.kept_answers(tmp_path) is None, file
            path.write_text(before)
    for broken in ("", "[]", '{"digest": 1, "answers": [1]}', '{"answers": {}}', "null"):
        (tmp_path / brief.ANSWERS).write_text(broken)
        assert brief.kept_answers(tmp_path) is None, broken


def test_since_belongs_to_brief(tmp_path, capsys):
    run_grid(tmp_path)
    assert main(["verdicts", "--since", "x", "--results", str(tmp_path)]) == 2
    assert "--since = 'x': belongs to --brief" in capsys.readouterr().err


GRID = """#!/bin/sh
echo "grid $*"
{start}
exit {status}
"""


@pytest.mark.parametrize(
    ("start", "status", "speaks"),
    [("touch results/.lock", 0, True), ("touch results/.lock", 1, True), ("", 1, False)],
    ids=["done", "a stage failed", "refused"],
)
def test_make_demo_ends_with_the_sentences_of_its_own_grid(tmp_path, start, status, speaks):
    """The grid is a stub: what it had made is there, and older; where it was refused, nothing of that is shown."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    run_grid(tmp_path / "results")
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/index.html").touch()
    (tmp_path / "results/.lock").touch()
    os.utime(tmp_path / "results/.lock", (0, 0))
    tools = tmp_path / ".venv/bin"
    tools.mkdir(parents=True)
    for name, text in (
        ("snakemake", GRID.format(start=start, status=status)),
        ("python", f'#!/bin/sh\nexec "{sys.executable}" "$@"\n'),
    ):
        (tools / name).write_text(text)
        (tools / name).chmod(0o755)
    for name in ("pyproject.toml", "requirements.lock", ".venv/.installed"):
        (tmp_path / name).touch()
    words = ["make", "-s", "demo", "STUDY=two", "SEEDS=3"]
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "STUDY", "SEEDS")}
    environment["PYTHONPATH"] = str(ROOT)
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == (status != 0), done.stderr
    where, first, *rest = done.stdout.splitlines()
    assert where.startswith("The page, reports/index.html, comes with the first results")
    assert first.endswith("--config seeds=3 study=two"), done.stdout
    if speaks:
        assert rest[0].startswith("two: ")
        assert rest[-1] == "reports/index.html"
        assert "one: " not in done.stdout
    else:
        assert rest == []

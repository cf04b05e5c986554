"""The sentences of the report as text, with which `make demo` ends."""

import os
import re
import shutil
import subprocess

import pytest

from ablation.store.collect import collect
from tests.ablation.typed import output
from tests.repository import ROOT
from tests.simulate import Study, simulate


def test_a_sentence_for_each_study_as_the_report_has_it(tmp_path, capsys):
    simulate(tmp_path, [Study("one", variants=2), Study("two", variants=2)])
    collect(tmp_path)
    both = " ".join(output(capsys, "verdicts", "--brief", "--results", tmp_path).split())
    assert re.fullmatch(r"one: \S.*\. two: \S.*\.", both)
    assert both.endswith(" ".join(output(capsys, "verdicts", "two", "--brief", "--results", tmp_path).split()))
    output(capsys, "report", "--results", tmp_path, "--reports", tmp_path / "reports")
    page = (tmp_path / "reports/index.html").read_text()
    assert all(answer in page for answer in re.split(r" ?\b(?:one|two): ", both))
    assert (tmp_path / "reports/findings.txt").read_text().split() == both.split()


@pytest.mark.parametrize(
    ("start", "status", "speaks"),
    [("", 0, True), ("touch -t 203001010000 reports/index.html", 1, True), ("", 1, False)],
    ids=["nothing to be done", "a stage failed", "refused"],
)
def test_make_demo_ends_with_the_sentences_of_its_own_grid(tmp_path, start, status, speaks):
    """The grid is a stub: what it had made is there, and older; where it was refused, nothing of that is shown."""
    shutil.copy(ROOT / "Makefile", tmp_path)
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/index.html").touch()
    (tmp_path / "reports/findings.txt").write_text("one: is\n    wrapped.\ntwo: is better.\n")
    os.utime(tmp_path / "reports/index.html", (0, 0))
    tools = tmp_path / ".venv/bin"
    tools.mkdir(parents=True)
    (tools / "snakemake").write_text(f'#!/bin/sh\necho "grid $*"\n{start}\nexit {status}\n')
    (tools / "snakemake").chmod(0o755)
    for name in ("pyproject.toml", "requirements.lock", ".venv/.installed"):
        (tmp_path / name).touch()
    words = ["make", "-s", "demo", "STUDY=two", "SEEDS=3"]
    environment = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "STUDY", "SEEDS")}
    done = subprocess.run(words, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode != 0) == (status != 0), done.stderr
    where, first, *rest = done.stdout.splitlines()
    assert where.startswith("The page, reports/index.html, is written with the first results")
    assert first.endswith("--config seeds=3 study=two"), done.stdout
    assert rest == (["two: is better.", "reports/index.html"] if speaks else [])

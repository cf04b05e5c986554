"""Where a number comes from, and whether a paper still has it."""

import json
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from ablation.runner.provenance import describe_tree
from ablation.store.collect import collect
from tests.ablation.typed import refused, typed
from tests.simulate import Study, editing, simulate, stage_dir


@pytest.fixture
def results(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = simulate(tmp_path / "results", [Study("toy", seeds=2)])
    git = ("git", "-c", "user.name=a", "-c", "user.email=a@b")
    code = tmp_path / "train.py"
    code.write_text("committed = 1\n")
    for words in (["init", "-q"], ["add", "train.py"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *words], check=True)
    code.write_text("committed = 1\nedited = 2\n")
    (tmp_path / "new.py").write_text("")
    (tmp_path / ".gitignore").write_text("results\n")
    tree = describe_tree(tmp_path)
    for seed in (0, 1):
        for stage in ("prepare", "train", "evaluate"):
            folder = stage_dir(plan, "toy", "v1", seed, stage)
            with editing(folder / "provenance.json") as provenance:
                provenance["git"] = {**tree, "diff": None, "diff_file": "diff.patch"}
            (folder / "diff.patch").write_text(tree["diff"])
    for words in (["checkout", "-q", "train.py"], ["commit", "-q", "--allow-empty", "-m", "second"]):
        subprocess.run([*git, *words], check=True)
    collect(tmp_path / "results")
    return tmp_path / "results"


def test_a_cell_leads_to_its_runs_and_their_code(results, capsys):
    status, out, _ = typed(capsys, "trace", "toy", "v1", "mean", "--results", "results", "--json")
    printed = json.loads(out)
    assert (status, printed["metric"]) == (0, "edited/mean/distance")
    assert [(row["seed"], row["stage"]) for row in printed["rows"]] == [
        (seed, stage) for seed in (0, 1) for stage in ("prepare", "train", "evaluate")
    ]
    values = {row["seed"]: row["value"] for row in printed["rows"]}
    assert printed["shown"].startswith(f"{sum(values.values()) / 2:.3f} ± ")
    text = typed(capsys, "trace", "reports/toy/table.tex", "v1", "edited/mean/distance", "--results", "results")[1]
    assert "with uncommitted changes to train.py (" in text
    assert "with files not under version control: .gitignore, new.py\n" in text
    checkout, apply, again = text.split("to run these stages again:\n")[1].strip().split("\n")
    for command in (checkout, apply):
        subprocess.run(shlex.split(command), check=True)
    assert Path("train.py").read_text() == "committed = 1\nedited = 2\n"
    assert "snakemake --cores all --config" in again  # run in tests/test_followed_pages.py
    reference = json.loads(typed(capsys, "trace", "toy", "unedited", "mean", "--results", "results", "--json")[1])
    assert {row["variant"] for row in reference["rows"]} == {"v0", "v1", "v2", "v3"}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("no", "v1", "mean"), "is not in the database"),
        (("toy", "v9", "mean"), "ROW = 'v9': is not a row"),
        (("toy", "v1", "meen"), "COLUMN = 'meen': is not a column or a metric; did you mean 'mean'?"),
    ],
)
def test_what_is_not_there_is_one_line(results, capsys, words, said):
    assert said in refused(capsys, "trace", *words, "--results", "results")


def test_a_paper_is_held_to_the_results(results, capsys, tmp_path):
    paper, numbers = tmp_path / "paper.tex", tmp_path / "reports/toy/numbers.tex"
    assert typed(capsys, "tables", "--macros", "--results", "results", "--reports", "reports")[0] == 0
    paper.write_text(
        "\\documentclass{article}\n\\usepackage[T1]{fontenc}\\usepackage{booktabs,graphicx,textcomp}\n\\begin{document}\n"
        "\\input{reports/toy/numbers}\n\\input{reports/toy/metrics.tex}\n"
        "It is \\ablation{toy/v1/mean}. % \\ablation{toy/v7/mean}\n\\end{document}\n"
    )
    check = ("check-paper", "paper.tex", "--results", "results")
    assert typed(capsys, *check) == (0, "paper.tex: 15 of 15 numbers match the results\n", "")
    defined = re.search(r"toy/v1/mean.endcsname\{(.*)\}", numbers.read_text())[1]
    edited = numbers.read_text().replace(f"toy/v1/mean\\endcsname{{{defined}}}", "toy/v1/mean\\endcsname{0.9}")
    numbers.write_text(edited)
    paper.write_text(paper.read_text() + "\\ablation{toy/v8/mean}")
    status, out, _ = typed(capsys, *check)
    assert status == 1
    assert out.splitlines() == [
        f"toy/v1/mean: the paper has 0.9, but the results have {defined}",
        "toy/v8/mean: this number is not defined; input the numbers.tex of its study",
        "paper.tex: 14 of 16 numbers match the results",
    ]
    paper.write_text("nothing")
    assert "does not use any number of a table" in typed(capsys, *check)[2]
    assert "cannot be read" in refused(capsys, "check-paper", "gone.tex", "--results", "results")
    said = refused(capsys, "tables", "--macros", "--by", "lr", "--results", "results")
    assert "cannot be combined with --by" in said


DEFINES = "\\expandafter\\def\\csname ablation:toy/v1/mean\\endcsname{{{}}}\n"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (r"\subfile{part}", "toy/v1/mean: the paper has 0.9"),
        (r"\input part ", "toy/v1/mean: the paper has 0.9"),
        (r"\import{sub/}{part}", "toy/v1/mean: the paper has 0.8"),
        (r"\InputIfFileExists{gone}{}{}\InputIfFileExists{part}{}{}", "0 of 1 numbers match"),
        (r"\includestandalone[mode=tex]{part}", "toy/v1/mean: the paper has 0.9"),
        (r"\makeatletter\@input{part}", "toy/v1/mean: the paper has 0.9"),
        (r"\usepackage{own}", "toy/v1/mean: the paper has 0.7"),
        (r"\input{part}\input{sub/part}", "toy/v1/mean: the paper defines this number as 0.8 and as 0.9"),
        (r"\input{part}\input{gone}", "gone does not exist"),
        (r"\newcommand{\of}[1]{\ablation{toy/#1/mean}}\of{v1}", r"\ablation is used without a name 1 time"),
        (r"\let\of\ablation \of{toy/v1/mean}", r"\ablation is used without a name 1 time"),
        (r"It is \csname ablation:toy/v1/mean\endcsname", r"\ablation is used without a name 1 time"),
    ],
)
def test_what_is_not_looked_at_does_not_match(results, capsys, tmp_path, text, said):
    (tmp_path / "sub").mkdir()
    for name, value in (("part.tex", 0.9), ("sub/part.tex", 0.8), ("own.sty", 0.7)):
        (tmp_path / name).write_text(DEFINES.format(value) + "\\ablation{toy/v1/mean}\n")
    (tmp_path / "paper.tex").write_text(f"\\input{{glyphtounicode}}\n{text}\n")
    status, out, _ = typed(capsys, "check-paper", "paper.tex", "--results", "results")
    assert status == 1
    assert said in out

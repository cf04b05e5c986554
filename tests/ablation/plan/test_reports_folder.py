"""A folder of reports shows the results of one folder."""

import os

import pytest

from ablation.cli.main import main
from ablation.plan.collected import claim_reports
from tests.simulate import simulate


@pytest.fixture
def folders(tmp_path):
    for name in ("one", "two", "reports"):
        (tmp_path / name).mkdir()
    return tmp_path / "one", tmp_path / "two", tmp_path / "reports"


def test_both_may_move_together(folders, tmp_path):
    claim_reports(folders[0], folders[2])
    (tmp_path / "elsewhere").mkdir()
    for folder in (folders[0], folders[2]):
        folder.rename(tmp_path / "elsewhere" / folder.name)
    claim_reports(tmp_path / "elsewhere/one", tmp_path / "elsewhere/reports")


def test_reports_without_a_note_are_drawn_again(folders):
    one, _, reports = folders
    (reports / "toy").mkdir()
    for name in ("toy/table.md", "toy/table.html", "mine.txt"):
        (reports / name).write_text("of whom?")
    claim_reports(one, reports)
    assert (reports / "toy/table.md").stat().st_mtime == 1  # older than any database
    assert (reports / "mine.txt").stat().st_mtime > 1
    os.utime(reports / "toy/table.md")
    claim_reports(one, reports)
    assert (reports / "toy/table.md").stat().st_mtime > 1


def test_the_commands_refuse_the_reports_of_other_results(tmp_path, capsys):
    for name in ("one", "two"):
        simulate(tmp_path / name)
    reports = ["--reports", str(tmp_path / "reports")]
    assert main(["tables", "--results", str(tmp_path / "one"), *reports]) == 0
    before = (tmp_path / "reports/toy/table.md").read_bytes()
    for command in ("tables", "figures", "report"):
        assert main([command, "--results", str(tmp_path / "two"), *reports]) == 2
        assert "shows the results in" in capsys.readouterr().err
    assert (tmp_path / "reports/toy/table.md").read_bytes() == before
    assert main(["report", "--results", str(tmp_path / "two"), "--output", str(tmp_path / "two.html")]) == 0

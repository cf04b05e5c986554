"""Names, numbers, clocks and folders that nobody should have."""

import csv
import json
import os
from pathlib import Path

import pandas as pd
import pytest

from ablation.cli.main import main
from ablation.contract.errors import explained
from ablation.contract.process import alone
from ablation.contract.status import read_state
from ablation.plan.collected import sources_now
from ablation.runner.lifetime import lock_folder
from ablation.show.tables import build_table
from ablation.store.database import Store
from tests.simulate import Study, simulate, stage_dir


def test_a_hostile_variant_is_one_line_and_starts_nothing(project):
    """All the names and texts that are refused: tests/ablation/config."""
    project.write("configs/studies/debias/'; touch owned; '.yaml", "extends: a\nwhy: hostile\nsteps: 7\n")
    done = project.snakemake(check=False)
    assert done.returncode != 0
    [line] = [line for line in done.stdout.splitlines() if line.startswith("error:")]
    assert "is not a valid variant name" in line
    assert "Traceback" not in done.stdout
    assert not list(project.folder.rglob("owned"))


def test_read_only_results_are_one_line_and_can_still_be_read(project, mount):
    mount(project.folder / "results", read_only=True)
    done = project.snakemake(check=False)
    assert done.returncode != 0
    assert "Traceback" not in done.stdout
    [line] = [line for line in done.stdout.splitlines() if "rror" in line]
    assert "Read-only file system" in line
    for command in ("tables", "report", "status --failed", "status"):
        assert project.tracker(command).returncode == 0
    collected = project.tracker("collect")
    assert collected.returncode == 2
    [line] = collected.stderr.splitlines()
    assert "Read-only file system" in line


def test_a_file_system_without_locks_is_one_line(project):
    whole = project.read("Snakefile")
    refuse = "import fcntl, os\ndef refuse(*_): raise OSError(38, os.strerror(38))\nfcntl.flock = refuse\n"
    project.write("Snakefile", refuse + whole)
    done = project.snakemake(check=False)
    line = "error: results/.lock: cannot be locked (Function not implemented); mount the file system with file locks"
    assert done.returncode == 1
    assert done.stdout.splitlines()[-1].startswith(line)


def test_a_stage_folder_that_leads_out_of_the_results_is_refused(project, tmp_path):
    """A trainer would write over, and delete, what is not its own."""
    folder = next(path.parent for path in project.statuses() if "train" in path.parts)
    (tmp_path / "precious").mkdir()
    (tmp_path / "precious" / "log.txt").write_text("mine")
    for file in folder.rglob("*"):
        if file.is_file():
            file.unlink()
    folder.rename(tmp_path / "old")
    folder.symlink_to(tmp_path / "precious")
    done = project.snakemake(check=False)
    assert done.returncode != 0
    [line] = [line for line in done.stdout.splitlines() if line.startswith("error:")]
    assert "is a link to" in line
    assert sorted(os.listdir(tmp_path / "precious")) == ["log.txt"]


# --- numbers ----------------------------------------------------------------------------------------------------


def test_what_is_not_finite_is_a_failed_cell_and_everything_renders(tmp_path):
    results = tmp_path / "results"
    plan = simulate(results)
    values = {"v1": float("nan"), "v2": float("-inf"), "v3": 3e38}
    for variant, value in values.items():
        for stage in ("train", "evaluate"):
            path = stage_dir(plan, "toy", variant, 0, stage) / "metrics.parquet"
            pd.read_parquet(path).assign(value=value).to_parquet(path, index=False)
        path = stage_dir(plan, "toy", variant, 0, "evaluate") / "items.parquet"
        pd.read_parquet(path).assign(value=value).to_parquet(path, index=False)
    for command in ("collect", "tables", "figures", "report"):
        folder = [] if command == "collect" else ["--reports", str(tmp_path / "reports")]
        assert main([command, "--results", str(results), *folder]) == 0
    with Store(results / "tracker.duckdb") as store:
        rows = {row.name: row for row in build_table(store, "toy").rows}
        for variant, value in values.items():
            key = stage_dir(plan, "toy", variant, 0, "evaluate").name
            stored = store.sql("SELECT value FROM metrics WHERE key = ?", [key])["value"]
            assert stored.map(repr).unique().tolist() == [repr(value)]  # as it was logged
    assert [name for name, row in rows.items() if row.cells[0].failed] == ["v1", "v2"]


def test_cells_that_look_like_formulas_are_text_and_numbers_stay_numbers(tmp_path):
    results = tmp_path / "results"
    plan = simulate(results, [Study(states={("v1", 0): "failed"})])
    status = stage_dir(plan, "toy", "v1", 0, "train") / "status.json"
    status.write_text(json.dumps(json.loads(status.read_text()) | {"reason": "=HYPERLINK(1)"}))
    path = stage_dir(plan, "toy", "v2", 0, "evaluate") / "metrics.parquet"
    pd.read_parquet(path).assign(value=-0.25).to_parquet(path, index=False)
    assert main(["tables", "--results", str(results), "--reports", str(tmp_path / "reports")]) == 0
    cells = {
        cell for text in (tmp_path / "reports/toy").glob("*.csv") for row in csv.reader(text.open()) for cell in row
    }
    assert {"'=HYPERLINK(1)", "-0.25"} <= cells
    for cell in cells:
        if cell.startswith(tuple("=+-@\t\r")):
            float(cell)


# --- clocks -----------------------------------------------------------------------------------------------------


def test_a_stage_that_ended_under_a_clock_that_was_set_back_is_collected(project):
    """Killed between the stage's end and the collect, with a status that is older than the database."""
    status = next(path for path in project.statuses() if "evaluate" in path.parts)
    status.write_text(json.dumps(json.loads(status.read_text()) | {"attempt": 7, "ended": "2001-01-01T00:00:00+00:00"}))
    for path in project.statuses():  # all of them long ago, each younger than its inputs
        order = ("prepare", "train", "evaluate").index(path.parts[-3])
        os.utime(path, (10**9 + order, 10**9 + order))
    project.snakemake()
    with Store(Path(project.folder / "results/tracker.duckdb")) as store:
        attempts = store.sql("SELECT attempt FROM stages WHERE key = ?", [status.parent.name])["attempt"].tolist()
    assert attempts == [7]
    assert "Nothing to be done" in project.snakemake().stdout


# --- two users --------------------------------------------------------------------------------------------------


def as_user(number, umask, work):
    """Do the work in a process of another user of group 1600; return what it raised, as text."""
    reader, writer = os.pipe()
    if (child := os.fork()) == 0:
        said = ""
        try:
            os.setgroups([])
            os.setresgid(1600, 1600, 1600)
            os.setresuid(number, number, number)
            os.umask(umask)
            work()
        except BaseException as error:
            said = f"{type(error).__name__}: {explained(error)}"
        os.write(writer, said.encode())
        os._exit(0)
    os.waitpid(child, 0)
    os.close(writer)
    with open(reader) as file:
        return file.read()


def leave_a_stage():
    os.close(lock_folder(Path()))
    with alone(Path(".collect.lock")):
        Path("tracker.duckdb").write_text("a database")
    Path("status.json").write_text('{"state": "ok", "stage": "toy.train", "key": "0"}')


@pytest.mark.skipif(os.getuid() != 0, reason="needs root, to be two users")
def test_results_that_another_keeps_to_himself_are_not_damaged(tmp_path, monkeypatch):
    os.chown(tmp_path, 0, 1600)
    tmp_path.chmod(0o2775)
    monkeypatch.chdir(tmp_path)  # above it nobody may look, so paths are from here
    assert not as_user(1501, 0o077, leave_a_stage)
    Path("plan.json").touch(mode=0o600)
    for work in (lambda: read_state(Path()), lambda: sources_now(Path())):
        said = as_user(1502, 0o002, work)
        assert "PermissionError: " in said
        assert "json: cannot be used (Permission denied); ask the owner to make this path readable" in said

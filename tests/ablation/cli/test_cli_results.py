"""The commands as a user types them."""

import csv
import io
import json
import shutil
from dataclasses import replace

import duckdb
import pandas as pd
import pytest

import ablation
from ablation.cli.main import main
from ablation.store.collect import collect
from ablation.store.database import DATABASE, Store
from tests.ablation.typed import output, refused, typed
from tests.repository import ROOT
from tests.simulate import Study, simulate, stage_dir


@pytest.mark.parametrize("words", ["collect", "status", "tables", "status --failed", "sql runs", "report"])
def test_without_a_plan_every_command_says_so_in_one_line(results, capsys, words):
    assert refused(capsys, *words.split(), "--results", results)


def test_the_gate_fails_only_for_failures(results, capsys):
    simulate(results, [Study(states={("v1", 0): "missing"})])
    typed(capsys, "collect", "--results", results)
    status, out, _ = typed(capsys, "status", "--failed", "--results", results)
    assert (status, out) == (0, "16 stages ok, 0 not ok, 2 not run\n")
    plan = simulate(results, [Study(states={("v1", 0): "failed", ("v2", 1): "diverged"})])
    (stage_dir(plan, "toy", "v3", 0, "evaluate") / "status.json").write_text("{")
    typed(capsys, "collect", "--results", results)
    status, out, err = typed(capsys, "status", "--failed", "--results", results)
    assert (status, out) == (1, "")
    lines = err.splitlines()
    assert [line.split(":")[0] for line in lines[:5]] == ["failed", "diverged", "blocked", "blocked", "corrupt"]
    assert "failed: toy.train v1 seed 0: RuntimeError: simulated failure" in lines[0]
    assert lines[-1] == "13 stages ok, 5 not ok"


def test_the_page_so_far_takes_the_place_of_an_older_one_only_while_something_is_to_run(
    results, tmp_path, capsys, monkeypatch
):
    monkeypatch.setattr("os.nice", lambda by: 0)
    page = tmp_path / "reports" / "index.html"
    words = ["report", "--so-far", "--results", results, "--reports", page.parent]
    simulate(results, [Study(states={("v1", 0): "missing"})])
    status, out, _ = typed(capsys, *words)
    assert (status, out.startswith(f"{page}: written while the grid runs; 2 stages to run")) == (0, True)
    assert "v1" in page.read_text()
    assert not (results / DATABASE).exists()

    def grid(store, root):
        page.write_text("the grid's own")
        return "older"

    with monkeypatch.context() as meanwhile:
        meanwhile.setattr("ablation.cli.report.draw", grid)
        assert typed(capsys, *words) == (0, "", "")
    assert page.read_text() == "the grid's own"
    simulate(results, [Study()])
    assert typed(capsys, *words) == (0, "", "")
    assert page.read_text() == "the grid's own"


def ended(results):
    """Stages of the database that have ended, and its variants."""
    query = "SELECT (SELECT count(*) FROM stages WHERE state <> 'missing'), (SELECT count(*) FROM variants)"
    with Store(results / DATABASE) as store:
        return store.rows(query)[1][0]


@pytest.mark.parametrize("words", ["verdicts --brief", "figures", "report", "status --failed", "sql from.runs"])
def test_no_command_shows_a_database_of_another_plan_or_of_fewer_stages(results, tmp_path, capsys, words):
    def show():
        reports = ["--reports", tmp_path] if words.split()[0] in ("tables", "figures", "report") else []
        status, _, err = typed(capsys, *(w.replace(".", " ") for w in words.split()), "--results", results, *reports)
        assert (status, "note" in err) == (0, False), err

    few = Study(seeds=1, variants=2, states={("v1", 0): "missing"})
    simulate(results, [few])
    typed(capsys, "report", "--results", results, "--reports", tmp_path)
    assert ended(results) == (4, 2)
    simulate(results, [replace(few, states={})])  # the same plan; its stages have ended
    show()
    assert ended(results) == (6, 2)
    simulate(results, [replace(few, states={}, variants=3)])
    show()
    assert ended(results) == (8, 3)


def test_a_database_that_is_not_the_present_one_is_said_to_be(results, capsys, monkeypatch):
    plan = simulate(results, [Study(seeds=1, variants=2)])
    typed(capsys, "collect", "--results", results)
    (stage_dir(plan, "toy", "v1", 0, "evaluate") / "status.json").unlink()  # to run again
    status, out, err = typed(capsys, "sql", "from runs", "--results", results)
    assert status == 0
    assert "(2 rows)" in out
    assert err.startswith(f"note: {results / DATABASE} is out of date: ")
    assert ended(results) == (6, 2)  # nothing is lost before somebody collects

    def refuse(results):
        raise OSError("Read-only file system")

    simulate(results, [Study(seeds=1, variants=3)])
    monkeypatch.setattr("ablation.store.collect.collect", refuse)
    _, out, err = typed(capsys, "sql", "from runs", "--results", results)
    assert ("(3 rows)" in out, err) == (True, "")  # of a temporary database
    monkeypatch.setattr("ablation.store.collect.collect_apart", lambda results, database: refuse(results))
    _, out, err = typed(capsys, "sql", "from runs", "--results", results)
    assert "(2 rows)" in out
    assert err.startswith(f"note: {results / DATABASE} is out of date: ")
    assert err.endswith(": Read-only file system\n")


def test_a_copy_of_the_database_alone_is_shown_as_it_is(results, tmp_path, capsys):
    simulate(results, [Study(seeds=1, variants=2)])
    typed(capsys, "collect", "--results", results)
    for name in (DATABASE, "plan.json"):
        (tmp_path / "copy" / name).parent.mkdir(exist_ok=True)
        shutil.copy(results / name, tmp_path / "copy")
    assert typed(capsys, "sql", "from runs", "--results", tmp_path / "copy")[2] == ""
    assert ended(tmp_path / "copy") == (6, 2)


def test_sql_prints_a_table_csv_or_json(results, capsys):
    simulate(results)
    query = "select variant, seed, 1/3 as third, null as nothing from runs where variant = 'v1' order by seed"
    lines = output(capsys, "sql", query, "--results", results).splitlines()
    assert lines[0].split() == ["variant", "seed", "third", "nothing"]
    assert lines[2].split() == ["v1", "0", "0.333333"]
    assert lines[-1] == "(2 rows)"
    rows = list(csv.DictReader(io.StringIO(typed(capsys, "sql", "--csv", query, "--results", results)[1])))
    assert [float(row["third"]) for row in rows] == [1 / 3, 1 / 3]
    formula = ("sql", "--csv", "select '=1+1' as \"@a\", -1 as b", "--results", results)
    assert output(capsys, *formula) == "'@a,b\n'=1+1,-1\n"
    second = json.loads(output(capsys, "sql", "--json", query, "--results", results))["rows"][1]
    assert second == {"variant": "v1", "seed": 1, "third": pytest.approx(1 / 3), "nothing": None}


def test_sql_reads_stdin_and_refuses_to_write(results, capsys, monkeypatch):
    simulate(results)
    monkeypatch.setattr("sys.stdin", io.StringIO("select count(*) as n from runs"))
    assert typed(capsys, "sql", "-", "--results", results)[1].split()[:3] == ["n", "-", "8"]
    assert "read-only" in refused(capsys, "sql", "delete from metrics", "--results", results)


@pytest.mark.parametrize(
    ("words", "more"),
    [
        (["verdicts", "toy"], {"guardrails", "interactions", "joint_steps"}),
        (["gate", "toy"], {"outcome", "required", "notes"}),
        (["power", "toy", "--effect", "0.1"], {"notes"}),
        (["status"], set()),
        (["sql", "from runs"], set()),
        (["collect"], {"tables", "problems"}),
        (["validate", "--config", "studies=gad"], {"scale", "unlogged", "notes"}),
        (["trace", "toy", "v1", "mean"], {"metric", "shown", "rerun"}),
        (["variants", "gad"], {"study"}),
        (["audit", "debias"], {"file"}),
        (["diff", "debias/v4", "debias/v8"], {"why", "effect"}),
        (["diff", "v0", "v1"], {"why", "effect"}),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_json_has_one_form(results, capsys, monkeypatch, words, more):
    monkeypatch.chdir(ROOT)
    if words[0] not in ("variants", "audit", "validate"):
        simulate(results)
        collect(results)
        words = [*words, "--results", results]
    status, out, _ = typed(capsys, *words, "--json")
    printed = json.loads(out)
    assert status in (0, 1, 11)
    assert printed.keys() == {"schema", "command", "rows"} | more
    assert (printed["schema"], printed["command"]) == (1, words[0])
    assert all(isinstance(row, dict) for row in printed["rows"])


def test_export_tables_is_read_by_other_programs(tmp_path):
    results, folder = tmp_path / "results", tmp_path / "tables"
    simulate(results)
    assert main(["export-tables", "--results", str(results), "--output", str(folder)]) == 0
    with ablation.open(results) as own:
        expected = own.sql("SELECT * FROM results ORDER BY ALL")
    assert len(expected) == 2 * 4 * 10
    columns = list(expected.columns)
    read = [pd.read_parquet(folder / "results.parquet")]
    with duckdb.connect() as database:
        script = (folder / "views.sql").read_text().replace("FROM '", f"FROM '{folder}/")
        database.execute(script)
        read.append(database.sql("SELECT * FROM results").df())
        assert database.sql("SELECT count(*) FROM items JOIN finals USING (key)").fetchall() == [(1600,)]
        assert database.sql("SELECT definition->>'name' FROM studies").fetchall() == [("toy",)]
    for frame in read:
        pd.testing.assert_frame_equal(frame.sort_values(columns, ignore_index=True), expected, check_dtype=False)

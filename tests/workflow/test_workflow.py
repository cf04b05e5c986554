"""The workflow with a toy study: what runs, what does not, and what a failure or a kill costs."""

import csv
import fcntl
import json
import os
import re
import shutil
import subprocess
import sys
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import duckdb
import pytest

from ablation.contract.stage_folder import DATABASE
from tests.repository import ROOT
from tests.workflow.project import Project, kill, wait_for

pytestmark = pytest.mark.slow

STAGES_ONLY = ("--until", "debias_evaluate")  # where no table is looked at
RENDERED = {"collect": 1, "tables": 1, "figures": 1, "report": 1, "gate": 1}


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    """A project in which everything has run once; tests that change it take a copy."""
    project = Project.create(tmp_path_factory.mktemp("finished") / "project")
    project.output = project.snakemake().stdout
    return project


@pytest.fixture
def project(finished, tmp_path):
    return finished.copy(tmp_path / "project")


def state(path):
    return json.loads(path.read_text())["state"]


def training_of(project, variant):
    stages, wanted = json.loads(project.read("results/plan.json"))["stages"], ("train", f"{variant} seed 0")
    return next(project.folder / each["dir"] for each in stages if (each["stage"], each["label"]) == wanted)


def test_the_grid_ends_with_tables_and_every_variant(finished):
    assert len(finished.statuses()) == 1 + 3 + 3  # what variants share runs once
    assert {state(path) for path in finished.statuses()} == {"ok"}
    table = finished.read("reports/debias/table.csv")
    for score in ("5.5", "6.5"):  # 4 and 5 steps from seed 0, plus the mean of the items 0..3
        assert score in table
    for name in ("metric", "curves", "variant-tree"):
        assert (finished.folder / f"reports/debias/{name}.svg").stat().st_size
    for stage in finished.statuses():
        assert {"log.txt", "provenance.json"} <= set(os.listdir(stage.parent))
    assert "debias.train  b seed 0" in finished.output
    assert "debias.prepare  all variants" in finished.output
    assert "of 13 steps" in finished.output  # 7 stages, collect, tables, figures, report, gate, all


@pytest.mark.rest
def test_snakemakes_own_report_shows_tables_and_figures(project):
    done = project.snakemake("--report", "snakemake.html")
    for name in ("table.html", "metric.svg", "curves.svg", "variant-tree.svg"):
        assert f"Adding {name}" in done.stdout
    page = project.read("snakemake.html")
    for text in ("comparison table", "learning curves", "Lines are means over seeds"):  # labels, and a caption
        assert text in page


def test_a_second_run_does_nothing(project):
    files = [path for path in project.folder.glob("re*/**/*") if path.is_file() and path.name != ".lock"]
    times = {path: path.stat().st_mtime_ns for path in files}
    assert "Nothing to be done" in project.snakemake().stdout
    assert {p: p.stat().st_mtime_ns for p in times} == times


@pytest.mark.rest
def test_stages_that_have_ended_are_part_of_all_that_asks_for_the_whole_grid(project):
    """They are left out of the graph where only what is missing is to run, and nowhere else."""
    assert project.snakemake("-n", "--until", "debias_train").stdout.count("Nothing to be done") == 1
    assert project.would_run("--forcerun", "debias_evaluate")["debias_evaluate"] == 3
    assert project.would_run("--forceall")["debias_train"] == 3
    assert project.would_run("--rerun-triggers", "mtime", "input") == {}
    summary = project.snakemake("--summary").stdout
    graph = project.snakemake("--dag").stdout
    for path in project.statuses():
        assert str(path.relative_to(project.folder)) in summary
    assert graph.count("debias_evaluate") == 3
    assert "debias_evaluate" in project.snakemake("--list-rules").stdout


def test_a_file_that_is_lost_or_replaced_is_noticed_though_its_stage_has_ended(project):
    database = project.folder / "results" / "tracker.duckdb"
    os.utime(database, (1, 1))  # one of last year, put back: the statuses are the same that it was collected from
    assert project.would_run() == RENDERED
    train = next(path.parent for path in project.statuses() if "train" in path.parts)
    (train / "metrics.parquet").unlink()
    done = project.snakemake().stdout
    assert "runs again because its files are damaged (" in done
    assert (train / "metrics.parquet").exists()
    assert "Nothing to be done" in project.snakemake().stdout
    database.unlink()
    assert project.would_run() == RENDERED


def test_an_edit_reruns_what_it_reaches_and_nothing_else(project):
    """Arithmetic its users, a lost status its own stage, although tables exist; times, comments and texts nothing."""
    for path in project.statuses():
        if "evaluate" not in path.parts:
            os.utime(path)
    project.edit("trainers/objectives/second.py", "Second.", "The second.")
    project.edit("trainers/objectives/second.py", "2.0 / x", "3.0 / x  # a comment")
    for name, why in (("a", "the root"), ("b", "another objective")):
        project.edit(f"configs/studies/debias/{name}.yaml", why, "to see what happens")
    (training_of(project, "c") / "status.json").unlink()
    assert project.would_run() == {"debias_train": 2, "debias_evaluate": 1, **RENDERED}  # c's numbers are the same


def test_code_edited_while_a_stage_waits_for_its_device_is_not_run_under_the_old_key(tmp_path):
    project = Project.create(tmp_path / "project")
    leases = project.folder / "leases"
    leases.mkdir()
    with ThreadPoolExecutor(1) as pool, ExitStack() as held:
        for device in range(2):
            fcntl.flock(held.enter_context(open(leases / f"gpu-{device}.lock", "w")), fcntl.LOCK_EX)
        running = pool.submit(project.snakemake, "--retries", "0", *STAGES_ONLY, check=False)
        wait_for(lambda: len(list(project.folder.glob("results/stages/debias/train/*/attempt.json"))) == 2)
        project.edit("trainers/objectives/second.py", "2.0 / x", "3.0 / x")
        held.close()
        assert running.result().returncode != 0
    assert not (training_of(project, "b") / "status.json").exists()
    assert {path.parts[-3] for path in project.statuses()} == {"prepare", "train", "evaluate"}  # a and c are done


COMMAND = """
title: A command
question: Does an edit of what it reads run it again?
source: a test
base: {steps: 4}
stages:
  train:
    command: "{python} -m lab.train --data=data/items.csv {output} {value:steps} {seed}"
    code: [data/items.csv]
    reads: [steps]
    seeded: true
    resources: {threads: 1, mem_mb: 500, runtime: 5, gpu: 0}
    collect: [items]
table:
  columns: [{metric: test/all/value, label: value}]
analysis: {value: value, protocol: test, subsets: [all], direction: max, margin: 0.1}
"""


def test_a_module_and_a_file_that_a_command_names_run_it_again(tmp_path):
    project = Project.create(tmp_path / "project")
    project.edit("configs/config.yaml", "[debias]", "[command]")
    project.write("configs/scales/smoke.yaml", "seeds: 1\n")
    project.write("configs/studies/command/_study.yaml", COMMAND)
    project.write("configs/studies/command/a.yaml", "why: the root\n")
    project.write("data/items.csv", "item,value\na,1\n")
    project.write("lab/train.py", "import sys\nfrom .copy import copy\ncopy(sys.argv[1][7:], sys.argv[2])\n")
    copy = "import shutil\n\n\ndef copy(data, out):\n    shutil.copy(data, out)\n"
    project.write("lab/copy.py", copy)
    project.snakemake()
    assert set(project.would_run()) <= set(RENDERED)
    project.write("lab/copy.py", copy.replace("shutil.copy(", "shutil.copy2("))
    assert project.would_run()["command_train"] == 1
    project.write("data/items.csv", "item,value\na,7\n")
    project.snakemake()
    assert "7" in project.read("reports/command/table.csv")


WANDB = """
class Run:
    def __getattr__(self, name):
        return lambda *arguments, **named: None


def init(*, mode, id, **named):
    with open("runs", "a") as runs:
        runs.write(f"{mode} {id}\\n")
    return Run()
"""


@pytest.mark.rest
def test_the_settings_alone_say_whether_stages_log_to_wandb(tmp_path):
    """The environment of tests has another mode: without the setting, nothing is started."""
    project = Project.create(tmp_path / "project")
    project.write("wandb.py", WANDB)
    project.snakemake(*STAGES_ONLY, "--config", "variant=a", "wandb=offline")
    assert {line.split()[0] for line in project.read("runs").splitlines()} == {"offline"}
    logged, stages = project.read("runs"), len(project.statuses())
    assert len(logged.splitlines()) == stages
    project.snakemake(*STAGES_ONLY, "--config", "variant=b")
    assert len(project.statuses()) > stages
    assert project.read("runs") == logged


def test_selection_runs_a_part(tmp_path):
    project = Project.create(tmp_path / "project")
    selected = project.would_run("--config", "variant=b", "seeds=3", "seed=2")
    parent_too = {"debias_prepare": 1, "debias_train": 2, "debias_evaluate": 2, **RENDERED}
    assert selected == parent_too  # without it the one comparison that was asked for could not be judged
    assert project.would_run("tables")["debias_train"] == 3
    assert not (project.folder / "results").exists()  # a dry run writes nothing


def test_a_wrong_setting_is_one_line(finished):
    done = finished.snakemake("-n", "--config", "scael=smoke", check=False)
    assert done.returncode != 0
    assert "did you mean 'scale'" in done.stdout
    assert "Traceback" not in done.stdout
    assert len([line for line in done.stdout.splitlines() if "error" in line.lower()]) == 1


def test_a_failing_variant_costs_only_its_row_and_can_be_retried(project):
    project.write("configs/studies/debias/d.yaml", "extends: a\nwhy: broken\nmode: raise\n")
    done = project.snakemake(check=False)
    assert done.returncode != 0
    assert "failed: debias.train d seed 0: RuntimeError: this variant is broken" in done.stdout
    with (project.folder / "reports/debias/table.csv").open() as file:
        rows = {row["variant"]: row for row in csv.DictReader(file)}
    assert {name: row["score mean"] for name, row in rows.items()} == {"a": "5.5", "b": "5.5", "c": "6.5", "d": ""}
    assert (rows["d"]["state"], rows["d"]["reason"]) == ("failed", "RuntimeError: this variant is broken")
    assert sorted(map(state, project.statuses())) == ["blocked", "failed", *["ok"] * 7]
    assert project.would_run() == {"gate": 1}  # it stays failed, and the gate says so each time
    assert project.snakemake(check=False).returncode != 0
    (project.folder / "mended").touch()
    before = {path: path.stat().st_mtime_ns for path in project.statuses() if state(path) == "ok"}
    project.snakemake("--config", "retry=failed")
    assert {state(path) for path in project.statuses()} == {"ok"}
    assert {path: path.stat().st_mtime_ns for path in before} == before
    assert project.would_run() == {}


@pytest.mark.rest
def test_runs_are_imported_while_a_grid_runs(project):
    """Both write the database, one after the other; neither loses what the other has brought."""
    project.write("configs/studies/debias/d.yaml", "extends: a\nwhy: takes its time\npause: 3000.0\n")
    for seed in range(2):
        history = [{"step": step, "loss": 1 / step} for step in (1, 2)]
        state = {"global_step": 2, "max_steps": 2, "log_history": history}
        project.write(f"runs/base/seed_{seed}/trainer_state.json", json.dumps(state))
    words = "import trainer_state runs --study loss --metric loss --direction min --margin 0.1"
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(project.snakemake)
        try:
            wait_for(lambda: list(project.folder.glob("results/stages/debias/train/*/checkpoint/state.json")))
            assert project.tracker(words, words).returncode == 0
            assert not running.done()
        finally:
            (project.folder / "hurry").touch()
        running.result()
    with duckdb.connect(str(project.folder / "results" / DATABASE), read_only=True) as database:
        runs = dict(database.execute("SELECT study, count(*) FROM runs GROUP BY study").fetchall())
    assert runs == {"debias": 4, "loss": 2}


@pytest.mark.rest
def test_the_threads_of_snakemake_do_not_grow_with_the_rounds(project):
    """Its limit of jobs a second, 100 by default, starts a timer at every round, and every timer another round."""
    process = project.start("--config", "seeds=12")
    most = 0
    while process.poll() is None and len(project.statuses()) < 30:
        most = max(most, len(os.listdir(f"/proc/{process.pid}/task")))
        time.sleep(0.05)
    kill(process.pid)
    process.wait()
    assert len(project.statuses()) >= 30
    assert most < 15


def test_a_watched_demo_serves_its_page_and_after_kill_9_leaves_no_orphan_and_goes_on(project, monkeypatch):
    monkeypatch.delenv("MAKEFLAGS", raising=False)  # of the make that runs the tests
    project.write("configs/studies/debias/d.yaml", "extends: a\nwhy: slow\npause: 3000.0\n")
    project.write("configs/demo.yaml", "seeds: 1\n")
    shutil.copy(ROOT / "Makefile", project.folder)
    project.edit("Makefile", "serve &", "serve --port 0 &")
    here = sys.prefix
    words = ["make", f"--old-file={here}/.installed", f"VENV={here}", "CORES=2", "demo", "WATCH=1"]
    with (project.folder / "demo.log").open("w") as log:
        process = subprocess.Popen(words, cwd=project.folder, env=project.environment(), stdout=log, stderr=log)
    checkpoints = "results/stages/debias/train/*/checkpoint/state.json"
    wait_for(lambda: process.poll() is not None or list(project.folder.glob(checkpoints)))
    assert process.poll() is None, project.read("demo.log")
    wait_for(lambda: "http://" in project.read("demo.log"))
    address = re.search(r"http://\S+", project.read("demo.log"))[0]
    wait_for(lambda: b"Does the workflow work?" in urllib.request.urlopen(address).read())
    second = project.snakemake(check=False)
    assert second.returncode != 0
    assert "another snakemake is running here" in second.stdout
    (trainer,) = project.trainers()
    (snakemake,) = project.processes("--configfile")
    kill(snakemake)
    assert process.wait() != 0
    wait_for(lambda: not project.processes())
    (project.folder / "hurry").touch()
    project.snakemake("--configfile", "configs/demo.yaml")
    (slow,) = [p for p in project.statuses() if json.loads(p.read_text())["attempt"] == 2]
    assert "resumed after step 1" in (slow.parent / "log.txt").read_text()
    assert trainer not in project.trainers()


@pytest.mark.rest
def test_ctrl_c_ends_everything_at_once(project):
    project.write("configs/studies/debias/d.yaml", "extends: a\nwhy: slow\npause: 3000.0\n")
    process = project.start()
    wait_for(lambda: list(project.folder.glob("results/stages/debias/train/*/checkpoint/state.json")))
    for running in (*project.trainers(), process.pid):  # a terminal sends it to all
        os.kill(running, 2)
    assert process.wait(timeout=900) != 0
    assert not project.trainers()
    assert "not run" in project.read("reports/debias/table.md")  # onerror rendered what is there


def test_stages_are_forked_where_this_snakemake_runs_them_and_nowhere_else(project):
    """A scheduler's job runs a Snakemake of its own (`--mode remote`) with the same rules."""

    def commands(*arguments):
        text = project.snakemake("-n", "-p", "--forceall", *arguments).stdout
        return {name for name in ("ablation/runner/fork_client.py", "-m ablation.runner.run") if name in text}

    assert commands() == {"ablation/runner/fork_client.py"}
    assert commands("--config", "fork_server=false") == {"-m ablation.runner.run"}
    assert commands("--mode", "remote") == {"-m ablation.runner.run"}
    used = [json.loads(path.read_text()) for path in project.statuses()]
    assert all(status["cpu_s"] < 2.5 and status["memory_mb"] > 10 for status in used)  # 0.2; 3 and more with imports

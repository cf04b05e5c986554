"""examples/trl: a study of TRL's GRPOTrainer, from `snakemake` to a verdict for each comparison, with the real TRL."""

import json
import os
import shutil
import subprocess
import sys

import duckdb
import pytest

from tests.peers.environment import ROOT, python_of

pytestmark = [pytest.mark.peers, pytest.mark.slow]
STEPS = 30


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """A copy of the example, run: nine trainings, then the report."""
    python = python_of("trl")
    folder = tmp_path_factory.mktemp("it's a project") / "trl"
    shutil.copytree(ROOT / "examples/trl", folder, ignore=shutil.ignore_patterns("results", "reports", ".snakemake"))
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])  # as where TRL's environment is activated
    run(folder, "snakemake", "--cores", "2", PATH=path, HF_HUB_OFFLINE="1")
    return folder


def run(folder, module, *arguments, **environment):
    """Run a module of the everyday environment in the example's folder; return what it says."""
    process = subprocess.run(
        [sys.executable, "-m", module, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )
    assert process.returncode == 0, process.stdout[-5000:]
    return process.stdout


@pytest.fixture(scope="module")
def query(project):
    with duckdb.connect(project / "results" / "tracker.duckdb", read_only=True) as database:
        yield lambda text: database.execute(text).fetchall()


def test_a_verdict_for_each_comparison(project):
    said = run(project, "ablation", "verdicts", "parity")
    print(said)
    rows = {words[0]: words for line in said.splitlines() if (words := line.split())[1:2] == ["grpo"]}
    assert set(rows) == {"kl", "dr-grpo"}
    assert rows["kl"][2] == "worse"  # 0.36 of 0.80, which three seeds decide
    assert rows["dr-grpo"][2] == "undecided"  # of three seeds too few behave alike for `equivalent`
    assert (project / "reports" / "index.html").is_file()


def test_what_trl_logged_is_there(project, query):
    """The tracker's numbers are those of the files that TRL wrote, step for step."""
    found = query(
        "select s.dir, m.step, m.name, m.value from metrics m join stages s using (key) where m.name not like 'test/%'"
    )
    assert len({folder for folder, *_ in found}) == 9
    by_run = {}
    for folder, step, name, value in found:
        by_run.setdefault(folder, {})[step, name] = value
    for folder, values in by_run.items():
        history = json.loads((project / folder / "output" / "trainer_state.json").read_text())["log_history"]
        logged = {(row["step"], name): value for row in history for name, value in row.items() if name != "step"}
        assert values == pytest.approx(logged)
        assert sum(name == "reward" for _, name in values) == STEPS


def test_items_are_those_of_the_script(project, query):
    rows = query("select s.dir, i.item, i.value from items i join stages s using (key) where i.name = 'value'")
    assert len(rows) == 900
    assert len({item for _, item, _ in rows}) == 100  # the same prompts in every run
    for folder in {folder for folder, *_ in rows}:
        lines = (project / folder / "output" / "items.jsonl").read_text().splitlines()
        written = {row["item"]: row["value"] for row in map(json.loads, lines)}
        assert written == {item: value for where, item, value in rows if where == folder}


def test_the_policy_learns_unless_it_is_held(query):
    """Of TRL's own log: without the KL term the reward rises in every seed; with it there is a KL and less rise."""
    first_and_last = query(
        "select variant, seed, avg(value) filter (step <= 3), avg(value) filter (step > 27)"
        " from curves where metric = 'reward' group by all"
    )
    rise = {(variant, seed): last - first for variant, seed, first, last in first_and_last}
    assert len(rise) == 9
    assert min(rise["grpo", seed] for seed in range(3)) > 0.2
    assert max(rise["kl", seed] for seed in range(3)) < min(rise["grpo", seed] for seed in range(3))
    assert query("select distinct variant from curves where metric = 'kl'") == [("kl",)]

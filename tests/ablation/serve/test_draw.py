"""`serve`: what the page is drawn from, and that the results stay as they are."""

import os
import re
import shutil
import signal
import subprocess
import sys
import urllib.request

import pandas as pd

from ablation.serve import draw as draw_module
from ablation.serve.draw import draw
from ablation.store.collect import collect, collect_apart
from ablation.store.database import Store
from tests.ablation.serve.asking import TOY, fail_the_last, progress
from tests.ablation.show.elements import unfolded
from tests.repository import ROOT
from tests.simulate import Study, locked, simulate, stage_dir
from tests.workflow.project import wait_for


def tree(folder):
    return {path: (path.stat().st_mtime_ns, path.stat().st_size) for path in sorted(folder.rglob("*"))}


def rows(database):
    with Store(database) as store:
        names = ("metrics", "items", "health", "stages", "runs", "results", "variants", "run_stages", "weights")
        return {name: store.rows(f"SELECT * FROM {name} ORDER BY ALL")[1] for name in names}


def test_a_database_apart_holds_the_same_and_leaves_no_trace(results, tmp_path):
    simulate(results, [Study(states={("v1", 1): "failed"})])
    before = tree(results)
    collect_apart(results, tmp_path / "apart.duckdb")
    assert tree(results) == before
    assert rows(tmp_path / "apart.duckdb") == rows(collect(results).database)


def test_a_running_stage_has_its_curves_there_and_no_results(results, tmp_path):
    plan = simulate(results, [TOY])
    folder = stage_dir(plan, "toy", "v2", 0, "train")
    shutil.copy(stage_dir(plan, "toy", "v2", 1, "train") / "metrics.parquet", folder)
    broken = stage_dir(plan, "toy", "v3", 0, "train")
    progress(broken)
    (broken / "metrics.parquet").write_bytes(b"half of")
    query = (
        "SELECT state, count(*) FROM curves JOIN runs USING (study, variant, seed) WHERE variant = 'v2' GROUP BY ALL"
    )
    with locked(folder), locked(broken):
        collect_apart(results, tmp_path / "apart.duckdb")
        with Store(tmp_path / "apart.duckdb") as store:
            assert dict(store.rows(query)[1]) == {"ok": 60, "running": 60}
            assert store.rows("SELECT DISTINCT seed FROM results WHERE variant = 'v2'")[1] == [(1,)]
            assert store.rows("SELECT count(*) FROM stages WHERE state = 'running'")[1] == [(2,)]
        with Store(collect(results).database) as store:
            assert dict(store.rows(query)[1]) == {"ok": 60}


def test_the_page_is_drawn_beside_the_results_or_from_their_own_database_once_it_is_whole(
    results, tmp_path, monkeypatch
):
    plan = simulate(results, [TOY])
    folder = stage_dir(plan, "toy", "v2", 0, "train")
    used = []
    monkeypatch.setattr(draw_module, "read_page", lambda store: used.append(store.path.parent))
    monkeypatch.setattr(draw_module, "draw_page", lambda _, live: live.marker)
    own = tmp_path / "own"
    own.mkdir()
    collect(results)
    with locked(folder):
        draw(results, own, 30.0)
    draw(results, own, 30.0)
    fail_the_last(results)
    draw(results, own, 30.0)  # the grid has gone on
    shutil.rmtree(results / "stages")
    draw(results, own, 30.0)  # moved here without its stages
    assert used == [own, results, own, results]


def test_the_command_draws_what_changes_and_ends_cleanly(results, tmp_path):
    plan = simulate(results, [TOY])
    for variant in ("v0", "v1"):
        folder = stage_dir(plan, "toy", variant, 0, "evaluate")
        items = pd.read_parquet(folder / "items.parquet", columns=["item", "subset", "protocol"])
        items.assign(prompt="", response=f"{variant} said it", reference="").to_parquet(folder / "samples.parquet")
    before = tree(results)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    command = [sys.executable, "-m", "ablation", "serve", "--results", str(results), "--port", "0", "--every", "1"]
    started = subprocess.Popen(
        ["env", "--default-signal=INT", *command],
        cwd=ROOT,
        env={**os.environ, "TMPDIR": str(scratch)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    line = started.stdout.readline()
    assert line.startswith("http://127.0.0.1:")
    url = line.split()[0]

    def page():
        with urllib.request.urlopen(url, timeout=900) as answer:
            return answer.read().decode()

    wait_for(lambda: "Simulated study toy" in page())
    drawn = page()
    assert "connect-src 'self'" in drawn.replace("&#39;", "'")
    assert '<noscript><meta http-equiv="refresh" content="2"></noscript>' in drawn
    assert "v1 said it" in re.sub("<[^>]+>", "", unfolded(drawn))  # what differs is marked; beside the database
    assert tree(results) == before
    version = re.search('data-page="([0-9]+)"', drawn)[1]
    fail_the_last(results)
    wait_for(lambda: version not in page())
    assert len(list(scratch.iterdir())) == 1
    started.send_signal(signal.SIGINT)
    said, _ = started.communicate(timeout=900)
    assert started.returncode == 0, said
    assert "Traceback" not in said
    assert list(scratch.iterdir()) == []

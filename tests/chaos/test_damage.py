"""Damaged files: the run is corrupt, the rest renders, and the next run repairs it."""

import json
import os

import pandas as pd
import pytest
import torch

from ablation.cli.main import main
from ablation.contract.reading import sha256
from ablation.store.collect import collect
from ablation.store.current import load_or_collect
from ablation.store.database import Store
from tests.ablation.show.elements import unfolded
from tests.chaos import database
from tests.simulate import Study, simulate
from trainers.running import checkpoint


def truncate(path):
    os.truncate(path, path.stat().st_size // 2)


def garbage(path):
    path.write_bytes(b"\xff\xfe\x00garbage" * 50)


def lose_a_row(path):
    pd.read_parquet(path).iloc[:-1].to_parquet(path, index=False)


DAMAGE = [  # six of nine runs at the most
    ("train", "metrics.parquet", truncate),
    ("evaluate", "metrics.parquet", os.unlink),
    ("evaluate", "items.parquet", lose_a_row),
    ("train", "provenance.json", garbage),
    ("evaluate", "status.json", garbage),
    ("train", "provenance.json", os.unlink),
]


def test_each_damage_costs_its_run_and_the_next_call_repairs_it(project, finished):
    stages = {name: sorted(project.folder.glob(f"results/stages/debias/{name}/*")) for name in ("train", "evaluate")}
    damaged = [(stages[stage].pop(), file, harm) for stage, file, harm in DAMAGE]
    for folder, file, harm in damaged:
        harm(folder / file)
    before = {path: path.stat().st_mtime_ns for path in project.statuses()}

    done = project.tracker("collect", "tables", "figures", "report")
    assert done.returncode == 0, done.stderr
    with Store(project.folder / "results/tracker.duckdb") as store:
        found = dict(store.sql("SELECT key, state FROM stages").itertuples(index=False))
        reasons = dict(store.sql("SELECT key, reason FROM stages").itertuples(index=False))
        runs = store.runs("debias")
    assert {key for key, state in found.items() if state == "corrupt"} == {folder.name for folder, _, _ in damaged}
    for folder, file, _ in damaged:
        assert reasons[folder.name].startswith(f"{file}: "), reasons[folder.name]
        assert "\n" not in reasons[folder.name]
    assert 0 < (runs["state"] == "ok").sum() < len(runs)
    assert "corrupt" in project.read("reports/debias/table.md")
    assert "corrupt" in unfolded(project.read("reports/index.html"))
    failed = project.tracker("status --failed")
    assert failed.returncode == 1
    assert failed.stderr.count("corrupt: ") == len(damaged)

    output = project.snakemake().stdout
    assert output.count("runs again because its files are damaged") == len(damaged)
    database.assert_equal(project.folder / "results/tracker.duckdb", finished.folder / "results/tracker.duckdb")
    again = {folder for folder, _, _ in damaged}
    for stage in json.loads(project.read("results/plan.json"))["stages"]:  # in order: what is below runs again, too
        if again & {project.folder / path for path in stage["inputs"].values()}:
            again.add(project.folder / stage["dir"])
    whole = [path for path in before if path.parent not in again]
    assert whole
    assert {path: path.stat().st_mtime_ns for path in whole} == {path: before[path] for path in whole}
    assert "Nothing to be done" in project.snakemake().stdout


def middle(path):
    """Bytes in the middle: the file opens, and only reading the rows shows it."""
    content = bytearray(path.read_bytes())
    place = len(content) // 2
    content[place : place + 64] = bytes(byte ^ 0xFF for byte in content[place : place + 64])
    path.write_bytes(content)


@pytest.mark.parametrize("harm", [truncate, garbage, middle, os.unlink])
def test_a_damaged_database_is_built_again_by_whoever_reads_it(tmp_path, harm, capsys):
    results = tmp_path / "results"
    simulate(results, [Study(steps=4000, seeds=2)])
    collect(results)
    with Store(results / "tracker.duckdb") as store:
        expected = store.results("toy")
    harm(results / "tracker.duckdb")
    arguments = ["--results", str(results), "--reports", str(tmp_path / "reports")]
    assert main(["tables", *arguments]) == 0, capsys.readouterr().err
    with Store(load_or_collect(results)) as store:
        assert store.results("toy").equals(expected)


class Evil:
    """Makes a folder when it is unpickled."""

    def __init__(self, marker):
        self.marker = marker

    def __reduce__(self):
        return os.mkdir, (self.marker,)


def test_a_pickled_checkpoint_is_refused(tmp_path):
    """Also one whose digest is right: nothing of it is ever unpickled."""
    folder, marker = tmp_path / "checkpoint", tmp_path / "marker"
    checkpoint.save(folder, 3, {"w": torch.ones(4)}, {})
    [tensors] = folder.rglob("*.safetensors")
    torch.save(Evil(str(marker)), tmp_path / "evil.pt")
    tensors.write_bytes((tmp_path / "evil.pt").read_bytes())
    state = json.loads((folder / "state.json").read_text())
    state["files"] = {str(tensors.relative_to(folder)): sha256(tensors)}
    (folder / "state.json").write_text(json.dumps(state))
    assert checkpoint.load(folder) is None
    assert not marker.exists()
    torch.load(tmp_path / "evil.pt", weights_only=False)
    assert marker.exists()  # it would have run

"""benchmarks/grid.py on a simulated grid of two variants with two seeds, whose costs are known."""

import json
import runpy

from ablation.plan.plan_file import read_plan
from tests.repository import ROOT
from tests.simulate import Study, simulate, stage_dir

TABLE = runpy.run_path(str(ROOT / "benchmarks" / "grid.py"))["table"]


def test_a_shared_stage_counts_once_and_alone_for_each_run(tmp_path):
    path = simulate(tmp_path / "results", [Study(variants=2, seeds=2)])
    plan = read_plan(path)
    seconds = {"assets": 100.0, "prepare": 10.0, "train": 4.0, "evaluate": 1.0}
    for stage in plan.stages:
        file = stage.dir / "status.json"
        file.write_text(json.dumps(json.loads(file.read_text()) | {"cpu_s": seconds[stage.stage], "wall_s": 2.0}))
    rows = TABLE(plan, tmp_path / "results")
    assert {key: tuple(row) for key, row in rows.iterrows()} == {
        ("assets", "assets"): (1, 100, 2, 400),
        ("toy", "prepare"): (1, 10, 2, 40),
        ("toy", "train"): (4, 16, 8, 16),
        ("toy", "evaluate"): (4, 4, 8, 4),
    }
    file = stage_dir(path, "toy", "v1", 0, "train") / "status.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"state": "failed"}))
    assert TABLE(plan, tmp_path / "results").loc[("toy", "train"), "stages"] == 3

"""`status` counts what is there, and its estimate is that of an independent hand computation."""

import json
from datetime import datetime
from pathlib import Path

import pytest

from ablation.contract.stage_folder import Progress, read_progress
from ablation.store.progress import describe, seconds_left, stage_views, watch
from tests.simulate import Study, locked, simulate, stage_dir, write_status

NOW = datetime.fromisoformat("2026-01-01T00:00:10+00:00").timestamp()  # ten seconds into a running stage: 5 of 20 steps


def set_wall(plan, stage, seconds):
    """Give the finished stages of a kind these wall times, in turn; return how many there are."""
    entries = [s for s in json.loads(plan.read_text())["stages"] if s["stage"] == stage]
    done = [s for s in entries if (Path(s["dir"]) / "status.json").exists()]
    for index, entry in enumerate(done):
        write_status(Path(entry["dir"]), entry, "ok", wall_s=seconds[index % len(seconds)])
    return len(done)


def test_time_left_of_a_running_stage_is_its_rate():
    progress = Progress(done=5, total=20, unit="steps", started=100.0, updated=110.0)
    assert progress.seconds_left(110.0) == 30.0  # 15 steps at half a step a second
    assert progress.seconds_left(114.0) == 26.0
    assert progress.seconds_left(500.0) == 0.0
    assert Progress(0, 20, "steps", 100.0, 110.0).seconds_left(110.0) is None


def test_progress_is_read_and_never_an_error(tmp_path):
    file = tmp_path / "progress.json"
    content = {"done": 1, "total": 2, "unit": "steps", "started": 0, "updated": 5}
    file.write_text(json.dumps(content))
    assert read_progress(tmp_path) == Progress(1, 2, "steps", 0.0, 5.0)
    for broken in ("", "{", "[]", '{"done": 1}', json.dumps(content | {"started": "soon"})):
        file.write_text(broken)
        assert read_progress(tmp_path) is None
    file.unlink()
    assert read_progress(tmp_path) is None


def test_the_grid_takes_the_median_of_each_kind_over_what_runs_now(results):
    states = {("v2", 0): "running", ("v2", 1): "running", ("v3", 0): "missing", ("v3", 1): "missing"}
    plan = simulate(results, [Study(states=states)])
    assert set_wall(plan, "train", [10.0, 20.0, 30.0, 400.0]) == 4  # median 25
    assert set_wall(plan, "evaluate", [7.0]) == 4
    with locked(stage_dir(plan, "toy", "v2", 0, "train")), locked(stage_dir(plan, "toy", "v2", 1, "train")):
        left, unknown = seconds_left(stage_views(results, NOW), NOW)
    # running: 2 x 30 s; to do: 2 x train 25 s, 4 x evaluate 7 s; two at a time
    assert left == pytest.approx((2 * 30 + 2 * 25 + 4 * 7) / 2)
    assert unknown == 0
    (stage_dir(plan, "toy", "v2", 1, "train") / "progress.json").unlink()  # as of a stage that never writes one
    with locked(stage_dir(plan, "toy", "v2", 0, "train")), locked(stage_dir(plan, "toy", "v2", 1, "train")):
        assert seconds_left(stage_views(results, NOW), NOW)[0] == pytest.approx((30 + 3 * 25 + 4 * 7) / 2)


def test_a_grid_is_not_done_before_its_longest_stage(results):
    plan = simulate(results, [Study(seeds=1, variants=2, states={("v0", 0): "running", ("v1", 0): "running"})])
    for variant, total in (("v0", 10), ("v1", 500)):
        folder = stage_dir(plan, "toy", variant, 0, "train")
        content = json.loads((folder / "progress.json").read_text())
        (folder / "progress.json").write_text(json.dumps(content | {"total": total}))
    with locked(stage_dir(plan, "toy", "v0", 0, "train")), locked(stage_dir(plan, "toy", "v1", 0, "train")):
        left, unknown = seconds_left(stage_views(results, NOW), NOW)
    assert left == pytest.approx(990.0)  # 495 steps at half a step a second; v0 is done long before
    assert unknown == 2  # no evaluation has ended or runs


def test_the_text_names_counts_running_stages_and_failures(results):
    states = {("v1", 0): "failed", ("v2", 0): "running", ("v3", 1): "missing"}
    plan = simulate(results, [Study(states=states), Study("other", variants=1)])
    with locked(stage_dir(plan, "toy", "v2", 0, "train")):
        text = describe(results, NOW)
    toy, other = [line for line in text.splitlines() if line.startswith(("toy ", "other "))]
    # toy: prepare, 8 train, 8 evaluate; missing are both stages of v3 seed 1 and the evaluation of v2 seed 0
    assert toy.endswith("11/17 done, 1 failed, 1 blocked, 1 running, 3 missing")
    assert other.endswith("5/5 done")  # prepare, 2 train, 2 evaluate
    assert "toy.train  v2 seed 0: 5/20 steps, 30 s left" in text
    assert "toy.train  v1 seed 0: failed: RuntimeError: simulated failure" in text
    assert str(stage_dir(plan, "toy", "v1", 0, "train") / "log.txt") in text
    assert "1 more stage is blocked by failed stages" in text
    assert "4 stages to run" in text


def test_watch_ends_when_nothing_is_left(results):
    simulate(results)
    [text] = list(watch(results))
    assert "nothing is left to run" in text

"""Offline runs that wandb wrote, against what was logged."""

import json
import math
import random
import shutil
import subprocess

import pytest

from ablation.readers import wandb_log
from ablation.readers.wandb import read
from tests.ablation.readers.stored import points, read_all
from tests.ablation.typed import output, refused
from tests.peers.environment import python_of

PACKAGE, SCRIPT = "wandb", "wandb_runs.py"
BLOCK = 1 << 15


def file_of(folder, run, place=0):
    files = sorted(path for path in folder.glob(f"wandb/offline-run-*/run-{run}.wandb"))
    return files[place]


def test_configuration_name_and_state(folder, told):
    runs, problems = read_all(read, folder / "wandb")
    expected = told["abc1"]["config"]
    assert runs["abc1"].config == expected | {"nan": None}  # wandb writes null
    assert runs["abc1"].config["optim"] == {"name": "sgd"}  # changed later
    assert {key: (run.name, run.config.get("seed"), run.state) for key, run in runs.items()} == {
        "abc1": ("first run", 3, "finished"),
        "bad3": ("bad3", None, "failed"),
        "res2": ("resumed", 1, "finished"),
        "hf5": ("hf5", 5, "finished"),
        "cut4": ("cut4", 4, "running"),
    }
    assert all(run.started.startswith("20") and run.started.endswith("+00:00") for run in runs.values())
    assert any("abc1: values that are not numbers are left out: hist, table, text" in line for line in problems)


def test_numbers_of_every_kind_by_the_step_that_counts(folder):
    """Of a metric with whole steps of its own that one, else W&B's; what only the summary has, at the last step."""
    found = points(read_all(read, file_of(folder, "abc1"))[0]["abc1"])
    logged = {(1, "loss"): 0.5, (1, "ok"): 0.0, (1, "nested.a"): 1.0, (1, "nested.b.c"): 0.5}
    logged |= {(7, 'odd/näme "q" .x\\y #1'): 7.0, (20, "whole"): 2.0**40, (20, "nan"): "NaN", (20, "-inf"): -math.inf}
    logged |= {(100, "eval/acc"): 0.25, (23, "half/acc"): 0.25, (30, "loss"): 0.25, (200, "test/acc"): 0.875}
    assert logged.items() <= found.items()


def test_several_files_of_a_run(folder):
    runs, problems = read_all(read, folder / "wandb")
    assert points(runs["res2"]) == {(s, "loss"): float(s) if s < 6 else 10.0 + s for s in range(9)}
    second = file_of(folder, "res2", 1).resolve()
    replaced = "the values logged earlier for that step and later steps are replaced (4)"
    line = f"{second}: run res2 begins again at step 6; {replaced}"
    assert line in problems
    alone, _ = read_all(read, second)
    assert points(alone["res2"]) == {(s, "loss"): 10.0 + s for s in (6, 7, 8)}


def test_a_resumed_run_with_steps_of_its_own(folder):
    """W&B's step begins at 0 again in the second file; the step metric, by which this run counts, goes back to 20."""
    runs, problems = read_all(read, folder / "wandb")
    expected = {(step, "train/loss"): 1.0 + step for step in (0, 10, 20, 25)} | {(25, "eval/loss"): 27.0}
    assert points(runs["hf5"]) == expected | {(step, "train/global_step"): float(step) for step in (0, 10, 20, 25)}
    assert any("run hf5 begins again at step 20;" in line for line in problems)


@pytest.mark.parametrize(
    ("resume", "first", "expected"),
    [
        (True, 0, {0: 0.0, 1: 1.0, 2: 2.0, 3: 10.0, 4: 11.0}),  # W&B's own count
        (False, 0, {0: 10.0, 1: 11.0}),  # begins again at 0
        (True, 1, {0: 0.0, 1: 10.0, 2: 11.0}),  # `step=` from a checkpoint
        (True, 3, {0: 0.0, 1: 1.0, 2: 2.0, 3: 10.0, 4: 11.0}),
    ],
)
def test_a_run_that_was_resumed_offline(resume, first, expected, tmp_path):
    record = wandb_log.parse(b"").__class__
    for number, (begins, values) in enumerate([(0, (0.0, 1.0, 2.0)), (first, (10.0, 11.0))]):
        head = record(run={"run_id": b"x", "resume": resume, "start_time": {"seconds": 10 + number}})
        rows = [
            record(
                history={"step": {"num": begins + at}, "item": [{"key": b"loss", "value_json": str(value).encode()}]}
            )
            for at, value in enumerate(values)
        ]
        file = tmp_path / f"offline-run-2026010{number}-x/run-x.wandb"
        file.parent.mkdir()
        file.write_bytes(as_file([each.SerializeToString() for each in (head, *rows)]))
    runs, problems = read_all(read, tmp_path)
    assert points(runs["x"]) == {(step, "loss"): value for step, value in expected.items()}
    assert [("continues them after step 2" in line, "begins again" in line) for line in problems] == {
        (True, 0): [(True, False)],
        (True, 3): [],
    }.get((resume, first), [(False, True)])


def test_a_resumed_run_is_found_again(written, tmp_path):
    """A later import knows a run by its source and id, so both stay as files are added."""
    places = [file_of(written, "res2", number).parent for number in (0, 1)]
    shutil.copytree(places[0], tmp_path / places[0].name)
    [first] = read_all(read, tmp_path)[0].values()
    shutil.copytree(places[1], tmp_path / places[1].name)
    [both] = read_all(read, tmp_path)[0].values()
    assert (first.source, first.id) == (both.source, both.id)
    assert (first.state, both.state) == ("failed", "finished")


def test_two_projects_with_a_run_of_one_id(written, tmp_path):
    content = file_of(written, "bad3").read_bytes()
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "run-bad3.wandb").write_bytes(content)
    record = next(
        record for record in wandb_log.read_records(tmp_path / "two/run-bad3.wandb", print) if b"grid" in record
    )
    (tmp_path / "two/run-bad3.wandb").write_bytes(as_file([record.replace(b"grid", b"gird")]))
    assert list(read_all(read, tmp_path)[0]) == ["gird/bad3", "grid/bad3"]


def as_file(records):
    """Return a file of records that each fit into the first block."""
    import struct
    import zlib

    parts = [struct.pack("<IHB", zlib.crc32(b"\x01" + record), len(record), 1) + record for record in records]
    return wandb_log.HEADER + b"".join(parts)


@pytest.mark.parametrize("run", ["abc1", "bad3"])
def test_a_torn_tail(written, tmp_path, run):
    content = file_of(written, run).read_bytes()
    whole = points(read_all(read, file_of(written, run))[0][run])
    file = tmp_path / f"run-{run}.wandb"
    comparisons = [comparison + off for comparison in range(0, len(content), BLOCK) for off in (-7, -1, 0, 1, 6, 7, 8)]
    ends = [
        *range(0, len(content), 1499 if run == "abc1" else 7),
        *(end for end in comparisons if 0 <= end < len(content)),
    ]
    counts = []
    for end in sorted(ends):
        file.write_bytes(content[:end])
        runs, problems = read_all(read, file)
        if end < len(wandb_log.HEADER):
            assert not runs
            assert "does not begin like a W&B file" in problems[0]
            continue
        found = points(runs[run])
        assert found.items() <= whole.items()
        assert runs[run].state == "running"
        counts.append(len(found))
        for line in problems:
            assert str(file) in line
    assert counts == sorted(counts)
    assert counts[0] == 0
    assert counts[-1] >= len(whole) - 2


def test_the_file_of_a_killed_writer(folder):
    """It ends where a block does: mostly in the middle of a record, sometimes just after one."""
    file = file_of(folder, "cut4")
    runs, problems = read_all(read, file)
    found = points(runs["cut4"])
    assert found == {(step, "loss"): 1 / (step + 1) for step in range(len(found))}
    assert 100 < len(found) <= 300
    assert runs["cut4"].state == "running"
    assert all("cut off or damaged" in line for line in problems)


def test_no_damage_raises(written, tmp_path):
    """Bytes of records changed at random, under checksums that hold; `tests/chaos` changes bytes of files."""
    draw = random.Random(0)
    records, file = list(wandb_log.read_records(file_of(written, "bad3"), print)), tmp_path / "run-x.wandb"
    for _ in range(150):
        changed = [bytearray(record) for record in records]
        for record in changed:
            for _ in range(draw.randint(0, 3)):
                record[draw.randrange(len(record))] = draw.randrange(256)
        file.write_bytes(as_file(list(map(bytes, changed))))
        assert len(read_all(read, file)[0]) == 1


@pytest.mark.peers
def test_the_numbers_of_fields_are_wandbs():
    names = {"RunRecord": "Run", "RunExitRecord": "Exit", "HistoryStep": "Step", "ConfigRecord": "Updates"}
    names |= {"HistoryRecord": "History", "MetricRecord": "Metric", "HistoryItem": "Item", "SummaryRecord": "Updates"}
    messages = {theirs: wandb_log.MESSAGES[ours] for theirs, ours in (names | {"Record": "Record"}).items()}
    code = f"""
import json
from wandb.proto import wandb_internal_pb2 as found
names = {list(messages)!r}
print(json.dumps({{name: {{f.name: f.number for f in getattr(found, name).DESCRIPTOR.fields}} for name in names}}))"""
    done = subprocess.run([python_of("wandb"), "-c", code], capture_output=True, text=True, check=True)
    found = json.loads(done.stdout)
    for message, fields in messages.items():
        assert {name: number for name, (number, _) in fields.items()}.items() <= found[message].items()


def test_a_dry_run_shows_all_runs_where_one_does_not_tell_its_seed(written, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    plan = ("--metric", "loss", "--direction", "min", "--margin", "0.1")
    words = ("import", "wandb", written / "wandb", "--study", "s", *plan)
    said = output(capsys, *words, "--dry-run")
    assert "5 runs of" in said
    assert "has no known seed" in said
    assert "nothing was written" in said
    assert "has no known seed" in refused(capsys, *words)

"""Logs of Inspect and runs of HELM: read right, and refused where they are damaged."""

import json
import struct
import subprocess
import tarfile
import zipfile
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from ablation.readers import helm, inspect_ai
from ablation.readers.sheet import Wanted
from tests.ablation.readers.command import read, refused
from tests.peers.environment import python_of

HERE = Path(__file__).parent


# Inspect.

CORRECT = {"a": [1, 0], "b": [1, 1], "c": [0, 0]}  # by epoch


def log(scores=CORRECT, **more):
    samples = [
        {
            "id": item,
            "epoch": epoch,
            "input": [{"role": "user", "content": f"What is {item}?"}],
            "target": item.upper(),
            "choices": None,
            "scores": {"match": {"value": "C" if hit else "I"}, "judge": {"value": {"style": hit / 2, "tone": True}}},
            "output": {"completion": item.upper() if hit else "?"},
        }
        for item, hits in scores.items()
        for epoch, hit in enumerate(hits, 1)
    ]
    about = {"task": "letters", "task_version": 0, "model": "mockllm/model", "model_args": {}}
    return {"version": 2, "status": "success", "eval": about, "results": None, "samples": samples} | more


def write_log(path, content):
    path.parent.mkdir(parents=True, exist_ok=True)
    if path.suffix == ".json":
        path.write_text(json.dumps(content))
        return path
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("header.json", json.dumps({k: v for k, v in content.items() if k != "samples"}))
        for sample in content["samples"]:
            archive.writestr(f"samples/{sample['id']}_epoch_{sample['epoch']}.json", json.dumps(sample))
    return path


def pack_with_zstandard(path):
    """As Inspect packs: the members of a zip by method 93, which Python's zipfile writes from 3.14 on."""
    with zipfile.ZipFile(path) as archive:
        members = [(info.filename.encode(), archive.read(info), info.CRC) for info in archive.infolist()]
    body, directory = b"", b""
    for name, content, crc in members:
        packed = pa.compress(content, codec="zstd", asbytes=True)
        about = struct.pack("<4H3L2H", 0, 93, 0, 33, crc, len(packed), len(content), len(name), 0)
        of_directory = b"PK\x01\x02" + struct.pack("<2H", 20, 20) + about + struct.pack("<3H2L", 0, 0, 0, 0, len(body))
        directory += of_directory + name
        body += b"PK\x03\x04" + struct.pack("<H", 20) + about + name + packed
    count = len(members)
    end = b"PK\x05\x06" + struct.pack("<4H2LH", 0, 0, count, count, len(directory), len(body), 0)
    path.write_bytes(body + directory + end)


def test_members_that_are_packed_with_zstandard(tmp_path, capsys):
    path = write_log(tmp_path / "a.eval", log())
    (plain,) = inspect_ai.sheets(path, Wanted())
    pack_with_zstandard(path)
    with zipfile.ZipFile(path) as archive:
        assert {info.compress_type for info in archive.infolist()} == {93}
    (sheet,) = inspect_ai.sheets(path, Wanted())
    assert (sheet.items.tolist(), sheet.values.tolist()) == (plain.items.tolist(), plain.values.tolist())
    content = path.read_bytes()
    at = content.index(b"samples/b_epoch_1.json") + 40
    bad = tmp_path / "bad.eval"
    bad.write_bytes(content[:at] + bytes([content[at] ^ 255]) + content[at + 1 :])
    assert "cannot be read" in refused(capsys, path, "--with", bad)


@pytest.mark.parametrize("suffix", [".eval", ".json"])
def test_a_log_of_inspect(suffix, tmp_path, capsys):
    a = write_log(tmp_path / "a" / f"log{suffix}", log())
    b = write_log(tmp_path / "b" / f"log{suffix}", log(CORRECT | {"c": [1, 1]}))
    (sheet,) = inspect_ai.sheets(a, Wanted())
    assert sheet.items.tolist() == ["a", "b", "c"]
    assert sheet.values.tolist() == [0.5, 1.0, 0.0]
    assert sheet.facts.repeats == 2
    found = read(capsys, a, "--with", b)
    assert found["effect"] == pytest.approx(1 / 3)
    assert found["best"][0]["text"] == {"asked": "user: What is c?", "wanted": "C", "answered": "C"}
    assert found["best"][0]["answer_before"] == "?"
    assert read(capsys, a, "--with", b, "--metric", "judge/tone")["effect"] == 0
    assert "match, judge/style, judge/tone" in refused(capsys, a, "--with", b, "--metric", "other")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (log(status="error"), "the evaluation did not end"),
        (log({"a": [1, 1], "b": [1]}), "item a was asked 2 times, item b 1"),
        (log(samples=[]), "the log holds none; evaluate without --no-log-samples"),
        (log(samples=[log()["samples"][0] | {"scores": None}]), "has none of this name"),
        (log(samples=[log()["samples"][0], log()["samples"][1] | {"scores": None}]), "or name a metric"),
        (log(samples=[log()["samples"][0] | {"scores": {"match": {"value": "maybe"}}}]), "has no number of its own"),
        (log(samples=[log()["samples"][0] | {"scores": {"match": {"value": float("nan")}}}]), "no finite value"),
    ],
)
def test_a_log_that_is_wrong(content, words, tmp_path, capsys):
    good, bad = write_log(tmp_path / "good.eval", log()), write_log(tmp_path / "bad.eval", content)
    assert words in refused(capsys, good, "--with", bad)


@pytest.mark.parametrize("option", ["--cluster", "--filter"])
def test_an_option_that_samples_do_not_have_is_refused(option, tmp_path, capsys):
    one, other = (write_log(tmp_path / name, log()) for name in ("one.eval", "other.eval"))
    assert f"leave {option} out" in refused(capsys, one, "--with", other, option, "x")


def test_damaged_logs(tmp_path, capsys):
    good, bad = write_log(tmp_path / "good.eval", log()), tmp_path / "bad.eval"
    bad.write_bytes(good.read_bytes()[:300])
    assert "cannot be read" in refused(capsys, good, "--with", bad)
    with zipfile.ZipFile(bad, "w") as archive:
        archive.writestr("_journal/start.json", "{}")
    assert "the evaluation did not end" in refused(capsys, good, "--with", bad)


@pytest.mark.peers
def test_logs_that_inspect_itself_writes(tmp_path, capsys):
    done = subprocess.run(
        [python_of("inspect"), HERE / "write_inspect.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for suffix in ("eval", "json"):
        sides = [next((tmp_path / arm).glob(f"*.{suffix}")) for arm in ("base", "new")]
        for path in sides:
            (sheet,) = inspect_ai.sheets(path, Wanted("match"))
            assert sheet.facts.reported == pytest.approx(sheet.values.mean())
            assert (len(sheet.items), sheet.facts.repeats) == (20, 2)
            truth = {str(at): ((at + (path.parent.name == "new")) % 3 == 0) for at in range(1, 21)}
            assert sheet.values.tolist() == [float(truth[item]) for item in sheet.items]
        found = read(capsys, sides[0], "--with", sides[1])
        assert found["metric"] == "match"
        assert found["best"][0]["text"]["asked"].startswith("Say ")


# HELM.


def write_run(folder, values, *, model="a/one", instructions="", trials=1, more=()):
    """The files of a run that are read, as crfm-helm writes them."""
    folder.mkdir(parents=True)

    def stat(name, value, **of):
        return {"name": {"name": name, "split": "test"} | of, "count": 1, "sum": value, "mean": value, "stddev": 0.0}

    def entry(at, trial, *stats, **of):
        return {"instance_id": f"id{at}", "train_trial_index": trial, "stats": stats} | of

    references, typos = stat("num_references", 4), {"perturbation": {"name": "typos"}}
    entries = [
        entry(at, trial, references, stat("exact_match", value))
        for trial in range(trials)
        for at, value in enumerate(values)
    ]
    copy = entry(0, 0, stat("exact_match", 1.0, **typos), **typos)
    (folder / "per_instance_stats.json").write_text(json.dumps([*entries, copy, *more]))
    instances = []
    for at in range(len(values)):
        right, wrong = {"output": {"text": f"answer {at}"}, "tags": ["correct"]}, {"output": {"text": "x"}, "tags": []}
        asked = {"input": {"text": f"Question {at}?"}, "split": "test", "id": f"id{at}"}
        instances.append(asked | {"references": [right, wrong]})
    (folder / "instances.json").write_text(json.dumps(instances))
    adapter = {"method": "generation", "instructions": instructions, "model": model, "model_deployment": model}
    name = f"mmlu:subject=anatomy,method=generation,model={model.replace('/', '_')}"
    (folder / "run_spec.json").write_text(json.dumps({"name": name, "adapter_spec": adapter}))
    return folder / "per_instance_stats.json"


def test_a_run_of_helm(tmp_path, capsys):
    values = np.random.default_rng(0).integers(0, 2, (2, 30)).astype(float)
    a = write_run(tmp_path / "a" / "run", values[0].tolist())
    b = write_run(tmp_path / "b" / "run", values[1].tolist(), model="b/two", trials=2)
    (sheet,) = helm.sheets(b, Wanted("exact_match"))
    assert dict(zip(sheet.items, sheet.values, strict=True)) == {f"id{at}": v for at, v in enumerate(values[1])}
    assert (sheet.subset, sheet.facts.repeats) == ("mmlu:subject=anatomy,method=generation", 2)
    found = read(capsys, tmp_path / "a", "--with", tmp_path / "b", "--metric", "exact_match")
    assert found["effect"] == pytest.approx(values[1].mean() - values[0].mean())
    assert found["best"][0]["text"]["asked"].startswith("Question ")
    assert found["best"][0]["text"]["wanted"].startswith("answer ")
    assert "exact_match, num_references" in refused(capsys, a, "--with", b)


def test_runs_of_helm_that_were_asked_otherwise_or_are_damaged(tmp_path, capsys):
    a = write_run(tmp_path / "a" / "run", [1.0, 0.0])
    b = write_run(tmp_path / "b" / "run", [1.0, 0.0], instructions="Think first.")
    metric = ("--metric", "exact_match")
    assert "the prompt of 2 of 2 items" in refused(capsys, a, "--with", b, *metric)
    again = {"instance_id": "id1", "stats": [{"name": {"name": "exact_match", "split": "test"}, "mean": 1}]}
    c = write_run(tmp_path / "c" / "run", [1.0, 0.0], more=[again])
    assert "item id1 stands twice" in refused(capsys, a, "--with", c, *metric)
    d = write_run(tmp_path / "d" / "run", [1.0, float("nan")])
    assert "item id1 has none (trial 0)" in refused(capsys, a, "--with", d, *metric)
    b.write_text(b.read_text()[:-30])
    assert "cannot be read" in refused(capsys, a, "--with", b, *metric)


def test_a_statistic_of_helm_that_no_test_instance_has_is_that_of_the_other_split(tmp_path):
    tuned = {"name": {"name": "tuned", "split": "valid"}, "mean": 0.5}
    path = write_run(tmp_path / "run", [1.0, 0.0], more=[{"instance_id": "v0", "stats": [tuned]}])
    (sheet,) = helm.sheets(path, Wanted("tuned"))
    assert (list(sheet.items), sheet.values.tolist()) == (["v0"], [0.5])


@pytest.fixture
def written_by_helm(tmp_path):
    """Runs a, b and c, two seeds each, of 30 instances and two trials, by the classes of crfm-helm 0.5.16: `c` has
    other instructions and was not summarized; the statistic `defined` is NaN for instance id3."""
    with tarfile.open(HERE / "fixtures/helm.tar.gz") as archive:
        archive.extractall(tmp_path, filter="data")
    return tmp_path / "runs"


def test_runs_that_helm_itself_wrote(written_by_helm, capsys):
    a, b, metric = written_by_helm / "a", written_by_helm / "b", ("--metric", "exact_match")

    def mean(folder):
        rows = [row for path in folder.rglob("per_instance_stats.json") for row in json.loads(path.read_text())]
        own = [row for row in rows if "perturbation" not in row]
        return np.mean([s["mean"] for row in own for s in row["stats"] if s["name"]["name"] == "exact_match"])

    found = read(capsys, a, "--with", b, *metric)
    assert (found["items"], found["paired_seeds"]) == (30, [0, 1])
    assert found["effect"] == pytest.approx(mean(b) - mean(a))
    assert found["best"][0]["text"]["wanted"].startswith("answer ")


def test_helm_before_summarize_has_its_questions_in_the_scenario_state(written_by_helm, capsys):
    b, c, metric = written_by_helm / "b", written_by_helm / "c", ("--metric", "exact_match")
    assert not list(c.rglob("instances.json"))
    assert "the prompt of 30 of 30 items" in refused(capsys, b, "--with", c, *metric)
    for file in b.rglob("instances.json"):
        file.unlink()
    assert read(capsys, written_by_helm / "a", "--with", b, *metric)["items"] == 30


def test_an_instance_of_which_helm_left_out_the_nan_is_refused(written_by_helm, capsys):
    said = refused(capsys, written_by_helm / "a", "--with", written_by_helm / "b", "--metric", "defined")
    assert "defined: item id3 has none (trial 0): HELM leaves out what is not a number" in said

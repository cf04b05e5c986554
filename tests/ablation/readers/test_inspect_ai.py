"""Logs of Inspect: read right, and refused where they are damaged."""

import json
import random
import re
import struct
import subprocess
import textwrap
import zipfile
from pathlib import Path

import pyarrow as pa
import pytest

from ablation.contract.errors import ConfigError
from ablation.readers import evaluation, inspect_ai
from ablation.readers.sheet import Wanted
from tests.ablation import typed
from tests.ablation.readers.command import read, refused, told
from tests.peers.environment import python_of
from tests.repository import ROOT

HERE = Path(__file__).parent


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


SAMPLE = log()["samples"][0]


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


def test_the_page_shows_what_the_command_prints(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for side, share in (("base", 0.6), ("new", 0.7)):
        hits = {
            f"q{at}": [int(random.Random(f"{at} {epoch}").random() < share) for epoch in range(3)] for at in range(300)
        }
        write_log(tmp_path / f"logs/{side}/arc.eval", log(hits))
    page = (ROOT / "docs/how-to/inspect.md").read_text(encoding="utf-8")
    [(command, shown)] = re.findall(r"^    \$ ablation compare (.*)\n((?:    .*\n|\n)+)    \.\.\.$", page, re.MULTILINE)
    assert told(capsys, *command.split()).startswith(textwrap.dedent(shown))


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (log(status="error"), "the evaluation did not finish"),
        (log({"a": [1, 1], "b": [1]}), "item a has 2 samples, but item b has 1"),
        (log(samples=[]), "the log holds no samples; evaluate without --no-log-samples"),
        (log(samples=[SAMPLE | {"scores": None}]), "has no score; evaluate again"),
        (
            log(samples=[SAMPLE, log()["samples"][1] | {"scores": None}]),
            "pass --metric with a metric that every item has",
        ),
        (log(samples=[SAMPLE | {"scores": {"match": {"value": "maybe"}}}]), "has no number for this metric"),
        (log(samples=[SAMPLE | {"scores": {"match": {"value": float("nan")}}}]), "no item has a score"),
    ],
)
def test_a_log_that_is_wrong(content, words, tmp_path, capsys):
    good, bad = write_log(tmp_path / "good.eval", log()), write_log(tmp_path / "bad.eval", content)
    assert words in refused(capsys, good, "--with", bad)


@pytest.mark.parametrize("scores", [None, {"match": {"value": float("nan")}}])
def test_a_sample_that_ended_with_an_error_is_named_and_left_out_of_both_groups_when_asked(scores, tmp_path, capsys):
    content = log(CORRECT | {"c": [1, 1]})
    content["samples"][1] |= {"scores": scores, "error": {"message": "TimeoutError: the sandbox"}}
    a, b = write_log(tmp_path / "a/log.json", log()), write_log(tmp_path / "b/log.eval", content)
    said = refused(capsys, a, "--with", b)
    assert "item a of letters has no score: TimeoutError: the sandbox; " in said
    assert "--errors leave-out" in said
    for groups in ((a, b), (b, a)):
        found = read(capsys, groups[0], "--with", groups[1], "--common-items")
        assert (found["items"], abs(found["effect"])) == (2, 0.5)  # of b and c, in both epochs
        assert any("letters: --common-items leaves out 1 item that some run lacks" in note for note in found["notes"])
    content["samples"][1] |= {"scores": {"match": {"value": "I"}}}  # --score-on-error
    assert "the scores of samples that ended with an error are used (1)" in str(
        read(capsys, a, "--with", write_log(b, content))["notes"]
    )


def about(task_id, day, task="letters", model="mock/a", **more):
    """Of a try of a task; `more`: of its log."""
    of_try = {"task": task, "task_id": task_id, "model": model, "created": f"2026-11-{day}T10:00:00+00:00"}
    return {"eval": log()["eval"] | of_try} | more


def test_of_logs_in_a_folder_both_forms_and_of_each_task_the_last_try_are_read(tmp_path, capsys):
    write_log(tmp_path / "a/seed_0/x.eval", log(**about("a0", 10)))
    write_log(tmp_path / "a/seed_1/x.json", log(**about("a1", 11)))
    for name in ("results_x.json", "logs.json"):
        (tmp_path / "a" / name).write_text("{}")
    write_log(tmp_path / "b/seed_0/z.eval", log(**about("b0", 10, status="error")))
    write_log(tmp_path / "b/seed_0/again.json", log(CORRECT | {"c": [1, 1]}, **about("b0", 11)))
    write_log(tmp_path / "b/seed_0/again.eval", log(CORRECT | {"c": [1, 1]}, **about("b0", 11)))
    with zipfile.ZipFile(tmp_path / "b/seed_1.eval", "w") as archive:  # killed
        archive.writestr("_journal/start.json", json.dumps(about("b1", 12)))
    write_log(tmp_path / "b/seed_1/y.eval", log(CORRECT | {"c": [1, 1]}, **about("b1", 13)))
    found = read(capsys, tmp_path / "a", "--with", tmp_path / "b")
    assert (found["paired_seeds"], found["effect"]) == ([0, 1], pytest.approx(1 / 3))
    assert [note.replace(f"{tmp_path}/", "") for note in found["notes"][:3]] == [
        "b/seed_0/again.eval: is left out, because again.json is the same log",
        "b/seed_0/z.eval: is left out (status error), because again.json is a later try of the task",
        "b/seed_1.eval: is left out (status started), because y.eval is a later try of the task",
    ]


def test_of_several_tries_of_a_task_the_ones_that_ended_are_read_and_the_others_are_named(tmp_path, capsys):
    write_log(tmp_path / "a/2026-11-10.eval", log(**about("a", 10)))
    failed = write_log(tmp_path / "b/2026-11-10.eval", log(**about("b1", 10, status="error")))
    write_log(tmp_path / "b/2026-11-11.json", log(CORRECT | {"c": [1, 1]}, **about("b2", 11)))
    groups = (tmp_path / "a", "--with", tmp_path / "b")
    assert "the evaluation did not finish" in (said := refused(capsys, *groups))
    assert "--latest" in said
    left_out = f"{failed}: is left out, because the evaluation did not finish (status error)"
    found = read(capsys, *groups, "--latest")
    assert (found["effect"], found["notes"][0]) == (pytest.approx(1 / 3), left_out)
    required = ("--latest", "--require", "not-worse", "--margin", "0.05", "--direction", "max")
    typed.output(capsys, "compare", *groups, *required, status=11)  # undecided, not refused
    notes = []
    (run,) = evaluation.read(tmp_path / "b", notes.append)
    assert (run.items.num_rows, left_out in notes) == (3, True)

    cancelled = write_log(tmp_path / "b/2026-11-12.eval", log(**about("b3", 12, status="cancelled")))
    assert any(note.startswith(f"{cancelled}: is left out") for note in read(capsys, *groups, "--latest")["notes"])
    assert str(cancelled) in refused(capsys, *groups, *required)  # what ended is out of date
    cancelled.unlink()
    for name, model in (("other.eval", "mock/b"), ("seed_2.json", "mock/a")):  # not a try of what ended
        other = write_log(tmp_path / "b" / name, log(**about("b5", 10, model=model, status="error")))
        assert name in refused(capsys, *groups, "--latest")
        other.unlink()

    write_log(tmp_path / "b/words.eval", log(**about("b4", 9, "words", status="started")))
    assert "words.eval" in refused(capsys, *groups, "--latest")  # nothing of this task ended
    notes = []
    assert len(list(evaluation.read(tmp_path / "b", notes.append))) == 1
    assert sum("left out, because the evaluation did not finish" in note for note in notes) == 2
    with pytest.raises(ConfigError, match="the evaluation did not finish"):
        list(evaluation.read(failed, notes.append))


def test_imported_logs_are_runs_of_a_folder_and_a_model_with_their_tasks(tmp_path):
    for model in ("mock/a", "mock/b"):
        for task in ("letters", "words"):
            for hour in range(2):
                content = log(**about(f"{model}{task}{hour}", f"0{1 + hour}", task, model))
                write_log(tmp_path / f"s/2026-11-0{1 + hour}_{task}_{model[-1]}.eval", content)
    told = []
    runs = list(evaluation.read(tmp_path / "s", told.append))
    names = [("s/mock/a", "01"), ("s/mock/b", "01"), ("s/mock/a", "02"), ("s/mock/b", "02")]
    assert [(run.name.partition("/")[2], run.started[8:10]) for run in runs] == names
    assert all(set(run.items["subset"].to_pylist()) == {"letters", "words"} for run in runs)
    assert len({run.id for run in runs}) == 4
    assert len(told) == 2


def test_an_archive_is_opened_once_for_all_its_samples_and_none_is_unpacked_beyond_bounds(
    tmp_path, capsys, monkeypatch
):
    path = write_log(tmp_path / "a.eval", log({str(at): [1] for at in range(300)}))
    opened = []
    once = zipfile.ZipFile
    monkeypatch.setattr(zipfile, "ZipFile", lambda *given, **more: opened.append(given) or once(*given, **more))
    list(inspect_ai.sheets(path, Wanted()))
    assert len(opened) == 1
    monkeypatch.undo()
    large = write_log(tmp_path / "large.eval", log())
    with zipfile.ZipFile(large, "a", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("samples/large_epoch_1.json", b" " * (257 << 20))
    assert large.stat().st_size < 1 << 20
    assert "the limits are" in refused(capsys, path, "--with", large)


@pytest.mark.peers
def test_logs_that_inspect_itself_writes(tmp_path, capsys):
    done = subprocess.run(
        [python_of("inspect"), HERE / "write_inspect.py", tmp_path], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    for suffix in ("eval", "json"):
        groups = [next((tmp_path / group).glob(f"*.{suffix}")) for group in ("base", "new")]
        for path in groups:
            (sheet,) = inspect_ai.sheets(path, Wanted("match"))
            assert sheet.facts.reported == pytest.approx(sheet.values.mean())
            assert (len(sheet.items), sheet.facts.repeats) == (20, 2)
            truth = {str(at): ((at + (path.parent.name == "new")) % 3 == 0) for at in range(1, 21)}
            assert sheet.values.tolist() == [float(truth[item]) for item in sheet.items]
        found = read(capsys, groups[0], "--with", groups[1])
        assert found["metric"] == "match"
        assert found["best"][0]["text"]["asked"].startswith("Say ")

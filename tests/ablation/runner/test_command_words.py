"""What is read while a command runs and when it has ended: its log and its files, whatever they hold."""

import json
import os
import resource

import pytest

from ablation.runner import command_progress
from ablation.runner.command import NoResult, _failure, _grace, _last_words
from ablation.runner.command_progress import Follower
from tests.time_limit import time_limit

NINES = "9" * 5000  # more digits than Python makes a number of


@pytest.fixture
def look(tmp_path):
    """A function that says how far a command is, by what is in its folder and its log."""
    log = tmp_path / "log.txt"
    log.touch()

    def ask(total=None, text=""):
        log.write_text(text)
        return Follower(tmp_path, log, 0, ["metrics", "trainer_state", "verl"], total).look()

    return ask


@pytest.mark.parametrize("bar", [f"{NINES}/{NINES} [00:01<00:02]", "3/0 [00:01<00:02]", "x" * 10_000, "\x00" * 9000])
def test_a_bar_of_nonsense_is_none(look, bar):
    assert look(text=bar) is None
    assert look(text=f"{bar} 2/9 [00:01<00:02]") == (2, 9)


@pytest.mark.parametrize("step", ["1e999", "NaN", NINES, '"²"', "[]", "-1", '{"a": 1}', "null"])
def test_a_step_of_nonsense_is_none(look, tmp_path, step):
    (tmp_path / "trainer_state.json").write_text(f'{{"global_step": {step}, "max_steps": 10}}')
    (tmp_path / "metrics.jsonl").write_text(f'{{"step": {step}}}\n')
    (tmp_path / "metrics.csv").write_text(f"step,x\n{step.strip(chr(34))},1\n")
    assert look(total=10) in (None, (10, 10))


def test_a_pipe_is_not_waited_for(look, tmp_path):
    os.mkfifo(tmp_path / "metrics.csv")
    (tmp_path / "metrics.jsonl").write_text('{"step": 4}\n')
    with time_limit(20):
        assert look(total=10) == (4, 10)


def test_a_gigabyte_without_an_end_of_line_is_not_read(look, tmp_path):
    for name in ("metrics.csv", "metrics.jsonl", "log.txt"):
        (tmp_path / name).touch()
    follower = Follower(tmp_path, tmp_path / "log.txt", 0, ["metrics"], 10)
    for name in ("metrics.csv", "metrics.jsonl", "log.txt"):
        os.truncate(tmp_path / name, 1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert follower.look() is None
    assert _last_words(tmp_path / "log.txt", 0)[:4] == "\\x00"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_what_has_not_changed_is_not_read_again(look, tmp_path, monkeypatch):
    """The file of a long training has tens of megabytes, and is asked after each second."""
    read, original = [], command_progress.read_json

    def counted(path):
        read.append(path.parent.name)
        return original(path)

    monkeypatch.setattr(command_progress, "read_json", counted)
    for step in (5, 10):
        (tmp_path / f"checkpoint-{step}").mkdir()
        text = json.dumps({"global_step": step, "max_steps": 20})
        (tmp_path / f"checkpoint-{step}" / "trainer_state.json").write_text(text)
    follower = Follower(tmp_path, tmp_path / "log.txt", 0, ["trainer_state"], None)
    assert [follower.look() for _ in range(3)] == [(10, 20)] * 3
    assert sorted(read) == ["checkpoint-10", "checkpoint-5"]
    (tmp_path / "checkpoint-15").mkdir()
    (tmp_path / "checkpoint-15" / "trainer_state.json").write_text('{"global_step": 15, "max_steps": 20}')
    assert follower.look() == (15, 20)
    assert read[2:] == ["checkpoint-15"]


@pytest.mark.parametrize(
    ("log", "words"),
    [
        ("FutureWarning: old\nTraceback (most recent call last):\n  x\nAssertionError\n", "AssertionError"),
        ("ValueError: a\ncleaning up\n", "ValueError: a"),
        ("[rank0]: torch.OutOfMemoryError: no room\n[rank0]: more\n", "[rank0]: torch.OutOfMemoryError: no room"),
        ("UserWarning: at last\n", "UserWarning: at last"),
        ("it went well\nError\n", "Error"),
        ("KeyboardInterrupt\n\n", "KeyboardInterrupt"),
        ("", ""),
    ],
)
def test_the_last_words(tmp_path, log, words):
    (tmp_path / "log.txt").write_text(log)
    assert _last_words(tmp_path / "log.txt", 0) == words


@pytest.mark.parametrize("seconds", ["ten", "-1", "nan", "inf", " "])
def test_a_grace_is_a_number_of_seconds(monkeypatch, seconds):
    monkeypatch.setenv("ABLATION_GRACE", seconds)
    with pytest.raises(NoResult, match="is not a number of seconds"):
        _grace()
    for written, grace in (("0", "0"), ("2.5", "2.5"), ("", "10")):
        monkeypatch.setenv("ABLATION_GRACE", written)
        assert _grace() == grace


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (3, "exit status 3: why"),
        (255, "exit status 255: why"),
        (139, "exit status 139: why"),
        (-11, "the command was ended by SIGSEGV: why"),
        (-35, "the command was ended by signal 35: why"),
        (-9, "the command was ended by SIGKILL: why"),
        (143, "the command was ended by SIGTERM: why"),
    ],
)
def test_how_it_ended_has_a_name(code, reason):
    assert str(_failure(code, "why")) == reason
    assert isinstance(_failure(code, "why"), NoResult) == ("KILL" in reason or "TERM" in reason)

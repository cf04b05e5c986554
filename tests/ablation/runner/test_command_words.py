"""What is read of a command's log, whatever it holds, and how its end is told."""

import os
import resource

import pytest

from ablation.runner import command
from ablation.runner.command import LeftOut, NoResult, _failure, _grace, _last_words, _newest_bar, _shorten, _tail


def test_a_gigabyte_without_an_end_of_line_is_not_read(tmp_path):
    log = tmp_path / "log.txt"
    log.touch()
    os.truncate(log, 1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert _newest_bar(_tail(log, 0), None) is None
    assert _last_words(log, 0)[:4] == "\\x00"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


@pytest.mark.parametrize("line", [b"x" * 99 + b"\n", b"x" * 2999 + b"\n", b"x" * 10_000])
def test_a_log_says_once_what_is_left_out_however_often_it_is_shortened(tmp_path, monkeypatch, line):
    """With lines that are longer than the note, and without ends of lines."""
    for name, size in {"HEAD": 32 << 10, "TAIL": 16 << 10, "MOST": 64 << 10, "_LINE": 1 << 12}.items():
        monkeypatch.setattr(command, name, size)
    log, left_out, written = tmp_path / "log.txt", LeftOut(), 0
    for _ in range(5):
        with log.open("ab") as file:
            while file.tell() <= command.MOST:
                written += file.write(line)
        left_out = _shorten(log, left_out)
    content = log.read_bytes()
    assert content.count(b"[about ") == 1
    assert content[left_out.at :].startswith(b"[about ")
    notes = content.index(b"\n", left_out.at) + 1 - left_out.at
    assert left_out.size == pytest.approx(written - (len(content) - notes), abs=5 * notes)


def test_a_log_that_the_program_has_begun_anew_says_why_all_the_same(tmp_path):
    """A shell's `echo ... > /dev/stderr` empties the file that standard error is."""
    (tmp_path / "log.txt").write_text("echoed\nValueError: no such model\n")
    assert _last_words(tmp_path / "log.txt", 5000) == "ValueError: no such model"


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

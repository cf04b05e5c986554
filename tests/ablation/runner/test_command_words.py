"""What is read of a command's log, whatever it holds, and how its end is told."""

import os
import resource

import pytest

from ablation.runner.command import _newest_bar
from ablation.runner.guarded import NoResult, _grace, failure, last_words, tail


def test_a_gigabyte_without_an_end_of_line_is_not_read(tmp_path):
    log = tmp_path / "log.txt"
    log.touch()
    os.truncate(log, 1 << 30)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert _newest_bar(tail(log, 0), None) is None
    assert last_words(log, 0)[:4] == "\\x00"
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 100_000


def test_a_log_that_the_program_has_begun_anew_says_why_all_the_same(tmp_path):
    """A shell's `echo ... > /dev/stderr` empties the file that standard error is."""
    (tmp_path / "log.txt").write_text("echoed\nValueError: no such model\n")
    assert last_words(tmp_path / "log.txt", 5000) == "ValueError: no such model"


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
def test_thelast_words(tmp_path, log, words):
    (tmp_path / "log.txt").write_text(log)
    assert last_words(tmp_path / "log.txt", 0) == words


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
    assert str(failure(code, "why")) == reason
    assert isinstance(failure(code, "why"), NoResult) == ("KILL" in reason or "TERM" in reason)

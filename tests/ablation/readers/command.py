"""`ablation compare` as it is typed."""

import json

from ablation.cli.main import main


def told(capsys, *words):
    """Status 0 and what was printed."""
    status = main(["compare", *map(str, words)])
    captured = capsys.readouterr()
    assert status == 0, captured.err
    return captured.out


def refused(capsys, *words):
    """Status 2, nothing printed, and one line."""
    status = main(["compare", *map(str, words)])
    captured = capsys.readouterr()
    assert (status, captured.out) == (2, "")
    assert captured.err.count("\n") == 1
    assert captured.err.startswith("error: ")
    return captured.err


def read(capsys, *words):
    printed = json.loads(told(capsys, *words, "--json"))
    (found,) = printed["rows"]
    return found | {"notes": printed["notes"]}

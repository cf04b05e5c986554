"""`ablation compare` as it is typed."""

import json

from tests.ablation import typed


def told(capsys, *words):
    """Status 0 and what was printed."""
    return typed.output(capsys, "compare", *words)


def refused(capsys, *words):
    """Status 2, nothing printed, and one line."""
    return typed.refused(capsys, "compare", *words)


def read(capsys, *words):
    printed = json.loads(told(capsys, *words, "--json"))
    (found,) = printed["rows"]
    return found | {"notes": printed["notes"]}

"""benchmarks/lines_read.py on a function that is counted by hand, and the numbers in architecture.md."""

import re
from pathlib import Path

from benchmarks.lines_read import calls, functions_run, lines_of

ROOT = Path(__file__).parents[1]
DOCUMENTED = {
    "judge two arrays": "`ablation.judge` of arrays",
    "compare two tables": "`compare` of two tables",
    "gate a study": "a gate",
    "plan the smoke grid": "planning a grid",
}


def decorated(function):
    return function


@decorated
def outer():
    """Return a function that counts as a part of this one."""

    def inner():
        return [number for number in range(3)]

    return inner


def test_a_function_counts_from_its_decorator_on_and_what_is_nested_in_it_once():
    names = {"tests/test_lines_read.py:outer": 8, "tests/test_lines_read.py:decorated": 2}
    assert lines_of({outer.__code__, decorated.__code__, outer().__code__}) == names


def test_the_documented_numbers_are_about_those_that_it_prints(tmp_path, monkeypatch):
    monkeypatch.chdir(ROOT)
    text = " ".join((ROOT / "docs/explanation/architecture.md").read_text().split())
    for title, call in calls(tmp_path).items():
        [stated] = re.findall(rf"{re.escape(DOCUMENTED[title])} ([\d,]+)[,.]", text)
        lines = sum(lines_of(functions_run(call)).values())
        assert abs(lines - int(stated.replace(",", ""))) < 0.1 * lines, f"{title}: {lines}"

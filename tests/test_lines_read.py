"""benchmarks/lines_read.py on a function that is counted by hand, and the numbers in architecture.md."""

import re
import subprocess
import sys
from pathlib import Path

from benchmarks.lines_read import lines_of

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


def test_the_documented_numbers_are_about_those_that_it_prints():
    words = [sys.executable, "benchmarks/lines_read.py"]
    done = subprocess.run(words, cwd=ROOT, capture_output=True, text=True, check=True)
    text = " ".join((ROOT / "docs/explanation/architecture.md").read_text().split())
    printed = dict(re.findall(r"([\d,]+)  ([^:]+): ", line)[0][::-1] for line in done.stdout.splitlines())
    assert printed.keys() == DOCUMENTED.keys()
    for title, call in DOCUMENTED.items():
        [stated] = re.findall(rf"{re.escape(call)} ([\d,]+)[,.]", text)
        lines, written = (int(number.replace(",", "")) for number in (printed[title], stated))
        assert abs(lines - written) < 0.1 * lines, f"{title}: {lines}"

"""A command imports what it needs: a ceiling on the packages that are in memory when it ends, by name.

Half of the three seconds that any command once took was pandas and statsmodels, which most do not need.
"""

import os
import subprocess
import sys

import pytest

from ablation.store.collect import collect
from tests.repository import ROOT
from tests.simulate import Study, simulate

CODE = """
import sys
from ablation.cli.main import main
try:
    status = main()
except SystemExit as end:  # --help
    status = end.code
named = {name.split(".")[0] for name in sys.modules} - sys.stdlib_module_names
print(status, *sorted(named), file=sys.stderr)
"""
ALWAYS = {"ablation", "cython_runtime"}
YAML = {"yaml"}
PYDANTIC = {"pydantic", "pydantic_core", "annotated_types", "typing_extensions", "typing_inspection"}
DUCKDB = {"duckdb", "numpy", "pyarrow"}
PANDAS = {"pandas", "dateutil", "six"}  # Arrow imports it to ask whether a list is one of its series


@pytest.fixture(scope="module")
def results(tmp_path_factory):
    folder = tmp_path_factory.mktemp("results")
    simulate(folder, [Study(seeds=1, variants=2)])
    collect(folder)
    return folder


def packages_after(*words, code=CODE):
    """The packages that are not Python's own, after a command that has succeeded."""
    # What a tool of the tests (coverage, say) puts into every process is not the command's.
    environment = {name: value for name, value in os.environ.items() if not name.startswith("COV")}
    command = [sys.executable, "-c", code, *words]
    done = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True)
    status, *names = done.stderr.splitlines()[-1].split()
    assert status == "0", done.stderr
    # Names with an underscore: compiled parts of packages, and what pip leaves for every start of Python.
    return {name for name in names if not name.startswith("_")}


@pytest.mark.parametrize(
    ("words", "allowed"),
    [
        (["--help"], set()),
        (["status", "--help"], set()),
        (["variants", "debias"], YAML | PYDANTIC | {"trainers"}),
        (["diff", "v4", "v8", "--config", "results=nowhere"], YAML | PYDANTIC | {"trainers"}),
        (["status"], YAML | PYDANTIC),
        (["status", "--failed"], YAML | DUCKDB | PYDANTIC | PANDAS),
        (["sql", "select 1"], YAML | DUCKDB),
        (["collect"], YAML | DUCKDB | PYDANTIC | PANDAS),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_imports_what_it_needs(words, allowed, results):
    folder = [] if words[0] in ("--help", "diff", "variants") or "--help" in words else ["--results", str(results)]
    assert packages_after(*words, *folder) <= ALWAYS | allowed


def test_importing_the_package_imports_nothing():
    code = CODE.replace("from ablation.cli.main import main", "import ablation\nmain = int")
    assert packages_after(code=code) <= ALWAYS


def test_comparing_two_files_imports_no_more_of_scipy_than_its_special_functions():
    code = f"{CODE}print(0, *sorted(sys.modules), file=sys.stderr)"
    files = [f"examples/first/{name}.csv" for name in ("base", "average")]
    imported = packages_after("compare", files[0], "--with", files[1], code=code)
    assert "scipy.special" in imported
    assert imported.isdisjoint({"scipy.stats", "scipy.optimize", "statsmodels"})

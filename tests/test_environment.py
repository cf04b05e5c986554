"""What is installed: environment.yml (conda) and pyproject.toml (pip) agree, and scripts find what pip leaves out."""

import os
import re
import runpy
import shlex
import subprocess
import sys
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from ablation.contract.extras import EXTRAS
from tests.repository import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def asked_for(*extras):
    """What `pip install` asks for with these extras; an extra may name others of the project."""
    found = list(PROJECT["dependencies"])
    for extra in extras:
        for text in PROJECT["optional-dependencies"][extra]:
            wanted = Requirement(text)
            own = wanted.name == PROJECT["name"]
            found += [each for each in asked_for(*sorted(wanted.extras)) if each not in found] if own else [text]
    return found


def test_an_installed_package_has_lower_bounds_only():
    assert all(spec.operator == ">=" for text in asked_for("all") for spec in Requirement(text).specifier)


def test_environment_and_project_agree():
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    assert pip == asked_for("dev")
    assert f"python {PROJECT['requires-python']}" in environment["dependencies"]


def test_a_new_project_is_given_what_runs_its_grid():
    environment = yaml.safe_load((ROOT / "ablation/cli/new_project/environment.yml").read_text())
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    assert [(Requirement(text).name, Requirement(text).extras) for text in pip] == [(PROJECT["name"], {"all"})]
    wanted = {Requirement(text).name for text in asked_for("all")} - {Requirement(text).name for text in asked_for()}
    assert wanted == EXTRAS.keys()
    assert all(package in {Requirement(text).name for text in asked_for(extra)} for package, extra in EXTRAS.items())


def test_lock_file_holds_every_dependency():
    """`make lock` was run after the last change of pyproject.toml."""
    locked: dict[str, list[str]] = {}
    for line in (ROOT / "requirements.lock").read_text().splitlines():
        if line and not line.lstrip().startswith("#"):
            pinned = Requirement(line)
            (specifier,) = pinned.specifier
            assert specifier.operator == "==", line
            locked.setdefault(canonicalize_name(pinned.name), []).append(specifier.version)
    for text in asked_for("dev"):
        wanted = Requirement(text)
        versions = locked.get(canonicalize_name(wanted.name), [])
        assert versions, f"{wanted.name} is not in requirements.lock: run `make lock`"
        assert all(wanted.specifier.contains(version, prereleases=True) for version in versions), (text, versions)


def test_make_lets_python_keep_its_bytecode():
    """Images often forbid it, and then every start of Snakemake compiles pandas again."""
    say = ["make", "--silent", "--no-print-directory", "--eval", 'say:; @echo "[$$PYTHONDONTWRITEBYTECODE]"', "say"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
    assert subprocess.check_output(say, cwd=ROOT, env=environment, text=True) == "[]\n"


COMPARE = """
from ablation.cli.main import main
main(["compare", "a.csv", "--with", "b.csv"])
"""


@pytest.mark.slow
def test_make_venv_imports_what_the_commands_do(tmp_path):
    """So that their bytecode is there: uv leaves none, and `compare` would compile pandas and SciPy at every start."""
    shown = ["make", "--dry-run", "--always-make", "--no-print-directory", ".venv/.installed", "VENV=.venv"]
    recipe = subprocess.check_output(shown, cwd=ROOT, text=True).splitlines()
    (line,) = (line for line in recipe if "import_module" in line)
    for name, value in (("a", 0), ("b", 1)):
        (tmp_path / f"{name}.csv").write_text("item,value\n" + "".join(f"{k},{value}\n" for k in range(9)))
    loaded = []
    for code in (shlex.split(line)[2], COMPARE):
        words = [sys.executable, "-c", f"{code}\nimport sys\nprint(*sys.modules, file=sys.stderr)"]
        done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, check=True)
        loaded.append({*done.stderr.split()})
    assert {"pandas", "scipy.special", "snakemake.cli", "ablation.cli.compare"} <= loaded[0]
    assert {"pandas", "ablation.judge.statistics"} <= loaded[1]
    lacking = {name for name in loaded[1] - loaded[0] if name.partition(".")[0] not in sys.stdlib_module_names}
    assert lacking == set()


@pytest.mark.parametrize(
    ("pip", "told"),
    [
        ({}, {"UV_TORCH_BACKEND": "auto"}),
        ({"PIP_EXTRA_INDEX_URL": "http://a http://b"}, {"UV_INDEX": "http://a http://b"}),
        ({"PIP_FIND_LINKS": "/a /b", "UV_FIND_LINKS": "/c"}, {"UV_FIND_LINKS": "/c"}),
    ],
)
def test_uv_finds_packages_where_pip_does(pip, told, monkeypatch, tmp_path):
    configured = tmp_path / "pip.conf"
    configured.write_text("[global]\nindex-url = http://mirror\nextra-index-url = http://old\n" if pip else "")
    for name in [name for name in os.environ if name.startswith(("PIP_", "UV_"))]:
        monkeypatch.delenv(name)
    for name, value in {"PIP_CONFIG_FILE": str(configured), "XDG_CONFIG_DIRS": str(tmp_path), **pip}.items():
        monkeypatch.setenv(name, value)
    variables = runpy.run_path(str(ROOT / ".ci/install.py"))["uv_environment"]()
    found = {name: variables.get(name) for name in ("UV_DEFAULT_INDEX", *told)}
    assert found == {"UV_DEFAULT_INDEX": "http://mirror" if pip else None, **told}
    assert "UV_TORCH_BACKEND" in variables or pip


OUTSIDE = re.compile(r"^(from|import) (trainers|tests|benchmarks)\b", re.MULTILINE)
SCRIPTS = [
    path
    for path in sorted([*ROOT.glob("benchmarks/*.py"), *ROOT.glob("docs/*.py")])
    if OUTSIDE.search(path.read_text(encoding="utf-8"))
]


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_a_script_finds_what_pip_does_not_install(script, tmp_path):
    words = [sys.executable, "-c", "import runpy, sys; runpy.run_path(sys.argv[1])", script]
    env = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(words, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_a_machine_without_an_index_gets_what_it_lacks(tmp_path):
    """Two packages are missing and one is too old: their wheels are installed without a network, and imported."""
    freeze = [sys.executable, "-m", "pip", "list", "--format=freeze", "--disable-pip-version-check"]
    have = subprocess.run(freeze, capture_output=True, text=True, check=True).stdout.splitlines()
    have = [line for line in have if not line.startswith(("gguf==", "duckdb==", "Jinja2==", "ablation-tracker"))]
    (tmp_path / "have.txt").write_text("\n".join([*have, "jinja2==2.0"]))
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    script = [sys.executable, str(ROOT / "workflow/scripts/wheelhouse.py"), "--machine", os.uname().machine]
    told = [*script, "--python", version, "--have", str(tmp_path / "have.txt"), "--to", str(tmp_path / "wheels")]
    subprocess.run(told, check=True)
    wheels = sorted((tmp_path / "wheels").iterdir())
    assert [wheel.name.split("-")[0].lower() for wheel in wheels] == ["duckdb", "gguf", "jinja2"]
    install = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([*install, "--target", str(tmp_path / "site"), *map(str, wheels)], check=True)
    look = "import duckdb, gguf, jinja2; print(duckdb.__file__, gguf.__file__, jinja2.__file__)"
    environ = {**os.environ, "PYTHONPATH": str(tmp_path / "site")}
    found = subprocess.run([sys.executable, "-c", look], env=environ, capture_output=True, text=True, check=True).stdout
    assert found.count(str(tmp_path / "site")) == 3

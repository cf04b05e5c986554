"""Who may import whom. Code is read, not run, so an import inside a function counts too."""

import ast
import subprocess
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import yaml

from tests.repository import ROOT

NAMED = [
    yaml.safe_load(path.read_text())["config"].split(".")[1] for path in ROOT.glob("configs/studies/*/_study.yaml")
]
CONFIGURED = sorted(path.parent.name for path in ROOT.glob("trainers/*/config.py"))
# A folder whose config model serves several studies is an engine: shared code, which studies may build on.
ENGINES = {name for name in CONFIGURED if NAMED.count(name) > 1}
STUDIES = [name for name in CONFIGURED if name not in ENGINES]


def imported(source: str, name: str = "", *, is_package: bool = False) -> set[str]:
    """Return the absolute names of all modules that the source of module `name` may import."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            parts = name.split(".") if name else []
            above = parts[: len(parts) - node.level + is_package] if node.level else []
            base = ".".join([*above, *([node.module] if node.module else [])])
            found |= {base, *(f"{base}.{alias.name}" for alias in node.names)}
    return found - {""}


def modules(folder: str) -> dict[str, set[str]]:
    """Return module name -> names imported, of every Python file below a folder."""
    result = {}
    for path in sorted((ROOT / folder).rglob("*.py")):
        relative = path.relative_to(ROOT).with_suffix("")
        is_package = path.name == "__init__.py"
        name = ".".join(relative.parent.parts if is_package else relative.parts)
        result[name] = imported(path.read_text(), name, is_package=is_package)
    return result


def within(name: str, *packages: str) -> bool:
    return any(name == package or name.startswith(f"{package}.") for package in packages)


def test_the_reader_of_imports():
    source = "import a.b as c\nfrom d import e\ndef f():\n    from . import g\n    from ..h import i\n"
    assert imported(source, "p.q.r") == {"a.b", "d", "d.e", "p.q", "p.q.g", "p.h", "p.h.i"}
    assert imported("from .x import y", "p.q", is_package=True) == {"p.q.x", "p.q.x.y"}


def test_there_is_something_to_check():
    assert {"ablation.plan.build", "ablation.config.variants"} <= modules("ablation").keys()
    assert "ablation.contract.health" in modules("ablation/contract")
    assert "trainers.objectives.debias" in modules("trainers")
    assert {"debias", "gad"} <= set(STUDIES)
    assert sorted(ENGINES) == ["policy"]


HEAVY = ("torch", "transformers", "safetensors", "gguf", "sacrebleu")  # of the trainers' extra


def in_contract_and_runner(name: str) -> bool:
    return not within(name, "ablation") or within(name, "ablation.contract", "ablation.runner")


def in_standard_library(name: str) -> bool:
    return name.split(".", maxsplit=1)[0] in sys.stdlib_module_names


@pytest.mark.parametrize(
    ("folder", "allowed"),
    [
        ("ablation", lambda name: not within(name, "trainers", "snakemake", *HEAVY)),
        (
            "ablation/contract",
            lambda name: name == "ablation" or within(name, "ablation.contract") or in_standard_library(name),
        ),
        ("ablation/runner", in_contract_and_runner),  # it plans nothing
        ("trainers", lambda name: not within(name, "snakemake", "duckdb") and in_contract_and_runner(name)),
        ("trainers/objectives", lambda name: within(name, "torch", "trainers.objectives") or in_standard_library(name)),
    ],
)
def test_what_a_folder_may_import(folder, allowed):
    for name, names in modules(folder).items():
        for other in names:
            assert allowed(other), f"{name} imports {other}"


def test_a_study_is_imported_by_its_own_modules_only():
    for name, names in modules("trainers").items():
        others = [f"trainers.{study}" for study in STUDIES if not within(name, f"trainers.{study}")]
        for other in names:
            assert not within(other, *others), f"{name} imports {other}"


ROOMS = [
    f"ablation.{room}"
    for room in "contract config runner plan readers store judge audit show campaign serve api cli".split()  # noqa: SIM905
]


def test_arrows_between_rooms_run_one_way():
    # Imports under TYPE_CHECKING count as well: they are arrows all the same.
    for name, names in modules("ablation").items():
        own = next((place for place, room in enumerate(ROOMS) if within(name, room)), len(ROOMS))
        for other in names:
            above = [room for room in ROOMS[own + 1 :] if within(other, room)]
            assert not above, f"{name} imports {other}"


def test_no_modules_import_each_other():
    # Imports under TYPE_CHECKING and in functions count as well.
    imports = {name: names for folder in ("ablation", "trainers") for name, names in modules(folder).items()}
    arrows = {name: names & imports.keys() for name, names in imports.items()}
    assert list(TopologicalSorter(arrows).static_order())  # raises CycleError, also for one that imports itself


def test_every_module_of_the_package_is_in_a_room():
    outside = {name for name in modules("ablation") if not within(name, *ROOMS)}
    assert outside == {"ablation", "ablation.__main__"}


def workflow_files() -> list[Path]:
    return [path for path in [ROOT / "Snakefile", *sorted(ROOT.glob("workflow/**/*.smk"))] if path.exists()]


@pytest.mark.parametrize("path", workflow_files(), ids=lambda path: path.name)
def test_workflow_files_import_the_plan_only(path):
    # Snakemake's language is Python with other blocks, so lines are read instead of a tree.
    for line in path.read_text().splitlines():
        words = line.split()
        if words[:1] == ["import"] or (words[:1] == ["from"] and "import" in words):
            module = words[1].rstrip(",")
            if within(module, "ablation", "trainers"):
                names = [word.strip("(),") for word in words[3:]] if module == "ablation" else []
                full = [f"ablation.{name}" for name in names] or [module]
                assert all(within(name, "ablation.plan.start") for name in full), line


def loaded_after(code: str) -> set[str]:
    script = f"import sys\n{code}\nprint(*{{name.split('.')[0] for name in sys.modules}})"
    return set(
        subprocess.run(
            [sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout.split()
    )


def test_planning_loads_no_heavy_library():
    code = "from ablation.plan.start import build_plan, load_settings\nbuild_plan(load_settings({'scale': 'smoke'}))"
    assert not loaded_after(code) & {"torch", "transformers", "pandas", "numpy", "duckdb", "snakemake", "scipy"}


def test_a_trial_of_a_loop_loads_no_heavy_library():
    loaded = loaded_after("from ablation.campaign.trial import try_commit\nimport ablation.cli.campaign")
    assert not loaded & {"pandas", "numpy", "duckdb", "pyarrow", "scipy", "pydantic", "matplotlib", "yaml"}


@pytest.mark.parametrize("study", CONFIGURED)
def test_a_config_model_needs_pydantic_only(study):
    assert not loaded_after(f"import trainers.{study}.config") & {"torch", "transformers", "numpy", "pandas"}

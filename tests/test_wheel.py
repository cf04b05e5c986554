"""The wheel, in an environment without this repository: `ablation init`, and its grid to the end."""

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

from tests.repository import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.rest]


# What only the trainers' extra brings cannot be imported, as where `pip install` was told nothing of it.
ONLY_THE_CORE = """
import sys

class Without:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {"torch", "transformers", "tokenizers", "safetensors", "gguf", "sacrebleu"}:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Without())
"""


def run(*words, cwd, **environment):
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SNAKEMAKE", "SLURM_"))}
    return subprocess.run(
        [str(word) for word in words],
        cwd=cwd,
        env={**kept, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=900,
        check=False,
    )


def well(*words, cwd, **environment):
    done = run(*words, cwd=cwd, **environment)
    assert done.returncode == 0, done.stdout
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Build from the files that git knows, so that nothing else gets in."""
    folder = tmp_path_factory.mktemp("wheel")
    for name in well("git", "ls-files", "-z", cwd=ROOT).strip("\0").split("\0"):
        source, copy = ROOT / name, folder / "tree" / name
        if name.split("/")[0] in ("ablation", "workflow", "pyproject.toml", "README.md", "LICENSE"):
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, copy, follow_symlinks=False)
    words = ("wheel", ".", "--no-deps", "--no-build-isolation", "--no-index", "--wheel-dir", folder)
    well(sys.executable, "-m", "pip", *words, cwd=folder / "tree")
    (found,) = folder.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel, tmp_path_factory):
    """Return the interpreter of an environment with the wheel; its other packages are those of this one."""
    folder = tmp_path_factory.mktemp("fresh") / "environment"
    venv.create(folder, with_pip=False)
    interpreter = folder / "bin" / "python"
    well(sys.executable, "-m", "pip", "--python", interpreter, "install", "--no-deps", "--no-index", wheel, cwd=folder)
    own = Path(well(interpreter, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))", cwd=folder).strip())
    others = [path for path in sys.path if path.endswith("-packages")]
    (own / "others.pth").write_text("\n".join(others) + "\nimport only_the_core\n")
    (own / "only_the_core.py").write_text(ONLY_THE_CORE)
    return interpreter


def test_the_wheel_holds_what_runs_outside_the_repository(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    tracked = well("git", "ls-files", "ablation", "workflow", cwd=ROOT).split("\n")
    for name in tracked:
        if not (ROOT / name).is_file():  # links to folders: workflow/ in ablation/, the profile `local`
            continue
        inside = f"ablation/{name}" if name.startswith("workflow/") else name
        assert inside in names, "package-data in pyproject.toml"
    assert {name.partition("/")[0] for name in names if not name.startswith("ablation_tracker-")} == {"ablation"}


def test_init_and_the_grid_of_its_project(python, tmp_path):
    path = {"PATH": f"{python.parent}:{os.environ['PATH']}", "ABLATION_LEASES": str(tmp_path / "leases")}
    place = well(python, "-c", "import ablation; print(ablation.__file__)", cwd=tmp_path)
    assert place.startswith(str(python.parents[1])), "the wheel's own"
    assert "No module named 'torch'" in run(python, "-c", "import torch", cwd=tmp_path).stdout
    assert "snakemake --cores 2" in well(python.parent / "ablation", "init", "my project", cwd=tmp_path)
    project = tmp_path / "my project"
    assert "4 variants, 20 runs" in well(python.parent / "ablation", "validate", cwd=project)
    said = well(python, "-m", "snakemake", "--cores", "2", "--config", "seeds=1", cwd=project, **path)
    assert "Using workflow specific profile profiles/default" in said
    assert len(list(project.glob("results/stages/example/train/*/items.parquet"))) == 4
    assert (project / "reports" / "index.html").is_file()
    verdicts = well(python.parent / "ablation", "verdicts", "example", cwd=project)
    assert "slow-average" in verdicts
    again = well(python, "-m", "snakemake", "--cores", "2", "--config", "seeds=1", "-n", cwd=project, **path)
    assert "Nothing to be done" in again
    assert not (project / "ablation").exists()
    for group in (0, 1):
        rows = "".join(f"{item},{item * (group + 2) % 3 // 2}\n" for item in range(60))
        (project / f"{group}.csv").write_text(f"item,value\n{rows}")
    compared = well(python.parent / "ablation", "compare", "0.csv", "--with", "1.csv", cwd=project)
    assert re.search(r"items +60\n", compared)
    written = ROOT / "tests/ablation/readers/written/tensorboard"
    plan = "--metric", "loss", "--direction", "min", "--margin", "0.01"
    said = well(python.parent / "ablation", "import", "tensorboard", written, "--study", "logged", *plan, cwd=project)
    assert "logged" in said


def test_the_light_install_compares_and_says_what_it_lacks(wheel, tmp_path):
    """pip installs what the package asks for and no extra; README's first command then prints what README shows."""
    venv.create(tmp_path / "light", with_pip=False)
    program = tmp_path / "light" / "bin" / "ablation"
    pip = ("-m", "pip", "--disable-pip-version-check", "--python", program.with_name("python"))
    well(sys.executable, *pip, "install", "--quiet", wheel, cwd=tmp_path)
    packages = well(sys.executable, *pip, "list", "--format=freeze", cwd=tmp_path).lower()
    assert not re.search(r"^(snakemake|matplotlib|tensorboard|psutil|torch)\b", packages, re.MULTILINE), packages
    size = sum(
        path.stat().st_size for path in (tmp_path / "light").rglob("*") if path.is_file() and not path.is_symlink()
    )
    assert size < 650e6  # 588 MiB when it was written, of which pyarrow, scipy, pandas, duckdb and numpy are 539
    text = (ROOT / "README.md").read_text()
    command, shown = re.search(
        r"^    \$ ablation (compare .*)\n((?:    .*\n|\n)+?)    \.\.\.$", text, re.MULTILINE
    ).groups()
    said = well(program, *command.split(), cwd=ROOT)
    assert said.startswith("".join(line.removeprefix("    ") for line in shown.splitlines(keepends=True)))
    refused = run(program, "figures", cwd=tmp_path).stdout
    needed = "needs {}, which is not installed; run pip install 'ablation-tracker[{}]'"
    assert refused == f"error: `ablation figures` {needed.format('matplotlib', 'plots')}\n"
    events = ROOT / "tests/ablation/readers/written/tensorboard"
    plan = ("--study", "logged", "--metric", "loss", "--direction", "min", "--margin", "0.01")
    refused = run(program, "import", "tensorboard", events, *plan, cwd=tmp_path)
    assert refused.returncode == 2
    assert needed.format("tensorboard", "tensorboard") in refused.stdout
    said = well(program, "init", "project", cwd=tmp_path)
    assert "Snakemake is not installed; install it with: pip install 'ablation-tracker[grid]'" in said
    assert "4 variants, 20 runs" in well(program, "validate", cwd=tmp_path / "project")

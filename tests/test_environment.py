"""environment.yml (conda) and pyproject.toml (pip) ask for the same packages."""

import tomllib
from pathlib import Path

import yaml

ROOT = Path(__file__).resolve().parent.parent


def test_environment_and_project_agree():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    environment = yaml.safe_load((ROOT / "environment.yml").read_text())
    (pip,) = [item["pip"] for item in environment["dependencies"] if isinstance(item, dict)]
    assert pip == project["dependencies"] + project["optional-dependencies"]["dev"]
    assert f"python {project['requires-python']}" in environment["dependencies"]

"""What a scheduler's profile needs is missing: one line, before anything starts."""

import re
import sys
import tomllib

import pytest
import yaml

from ablation.plan.clusters import check
from tests.repository import ROOT
from tests.workflow.project import Project

SCHEDULERS = ("slurm", "kubernetes", "cluster-generic")


@pytest.mark.parametrize("name", SCHEDULERS)
def test_profile_extra_and_page_ask_for_the_same_plugin(name):
    profile = yaml.safe_load((ROOT / f"workflow/profiles/{name}/config.yaml").read_text())
    (requirement,) = re.findall(r'check\("([^"]+)"', profile["__definitions__"][-1])
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    [plugin] = project["optional-dependencies"][name]
    assert requirement == plugin
    page = (ROOT / "docs/how-to/clusters.md").read_text()
    assert f"| `pip install '{plugin}'` | `workflow/profiles/{name}` |" in page


def test_a_missing_program_is_one_line_and_a_dry_run_does_not_need_it(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["snakemake", "-n"])
    check("snakemake>=9", "no-such-scheduler")
    monkeypatch.setattr(sys, "argv", ["snakemake"])
    check("snakemake>=9", "sh")
    with pytest.raises(SystemExit, match=r"^error: no-such-scheduler is not installed here; start snakemake on"):
        check("snakemake>=9", "no-such-scheduler")


def test_a_missing_plugin_is_the_only_line_that_snakemake_adds(tmp_path):
    project = Project.create(tmp_path / "project")
    project.edit("workflow/profiles/slurm/config.yaml", "snakemake-executor-plugin-slurm", "no-such-plugin")
    done = project.snakemake("-n", "--workflow-profile", "slurm", check=False)
    assert done.returncode == 1
    wanted = (
        "error: this profile needs no-such-plugin, which is not installed; run pip install 'no-such-plugin>=2.8,<3'"
    )
    assert done.stdout.strip().splitlines()[1:] == [wanted]

"""Every profile is complete, loads with its plugin, and asks its scheduler for what the plan says."""

import json
import os
import re
import subprocess
import sys

import pytest
import yaml
from snakemake.cli import get_argument_parser

from tests.cluster.grid import Grid, report
from tests.workflow.project import ROOT, Project

pytestmark = pytest.mark.cluster

PROFILES = sorted(path.name for path in (ROOT / "workflow" / "profiles").iterdir())
PLUGINS = {"kubernetes": "cluster-generic"}  # where it is not the scheduler's name
SCHEDULERS = [name for name in PROFILES if name not in ("default", "local")]


def profile(name):
    return yaml.safe_load((ROOT / "workflow" / "profiles" / name / "config.yaml").read_text())


def test_all_are_there():
    assert set(SCHEDULERS) == {"slurm", "kubernetes", "cluster-generic"}
    assert profile("local") == profile("default")


@pytest.mark.parametrize("name", PROFILES)
def test_a_profile_says_everything(name):
    """Only one workflow profile is loaded, so each has all that `default` has, and for a scheduler more."""
    found, default = profile(name), profile("default")
    assert set(default) - {"cores"} <= set(found)  # to a scheduler, cores are a limit of all jobs together
    same = ("keep-going", "rerun-incomplete", "nolock", "scheduler", "rerun-triggers", "quiet")
    assert {key: found[key] for key in same} == {key: default[key] for key in same}
    assert found["retries"] >= default["retries"]
    if name in SCHEDULERS:
        assert found["executor"] == PLUGINS.get(name, name)
        assert {"mem_mb", "runtime", "gpu"} <= set(found["default-resources"])
        assert found["resources"]["gpu"] >= found["jobs"]  # else Snakemake holds back what the scheduler could queue


@pytest.mark.parametrize("name", PROFILES)
def test_every_key_is_an_option(name):
    """Snakemake ignores a key that it does not know, so a typing error would never be noticed."""
    options = {option for action in get_argument_parser()._actions for option in action.option_strings}
    assert {f"--{key}" for key in profile(name) if not key.startswith("__")} <= options


@pytest.fixture(scope="module")
def project(tmp_path_factory):
    """The toy project; its train stage needs two devices."""
    project = Project.create(tmp_path_factory.mktemp("profiles") / "project")
    project.edit("configs/studies/debias/_study.yaml", "gpu: 1", "gpu: 2")
    rules = project.read("workflow/rules/stages.smk")  # a rule with a message prints it instead of its resources
    without, removed = re.subn(r" +message:\n.*\n", "", rules)
    assert removed == 1
    project.write("workflow/rules/stages.smk", without)
    return project


def requests(project, name):
    """Return the resources of a prepare job (no device) and a train job (two), as a dry run prints them."""
    words = ["-n", "--quiet", "host", "--workflow-profile", f"workflow/profiles/{name}", "--config", "variant=a"]
    text = project.snakemake(*words).stdout
    assert f"Using workflow specific profile workflow/profiles/{name}" in text
    found = {}
    for stage in ("prepare", "train"):
        (line,) = re.findall(rf"rule debias_{stage}:\n(?:    .*\n)*?    resources: (.*)", text)
        found[stage] = dict(word.split("=", 1) for word in line.split(", "))
    return found["prepare"], found["train"]


@pytest.mark.parametrize("name", PROFILES)
def test_a_dry_run_asks_for_what_the_plan_says(project, name):
    """With the profile's plugin, which Snakemake imports."""
    for job, devices in zip(requests(project, name), ("0", "2"), strict=True):
        assert (job["mem_mb"], job["runtime"], job["gpu"]) == ("500", "5", devices)
        assert name != "slurm" or job["nodes"] == "1"


def test_pods_with_nothing_but_the_volume_lose_nothing_when_killed(tmp_path):
    """Each Job gets an empty home and the volume, here the project's folder; the first is killed.

    The train stage needs more devices than `gpus` of the configuration: the pool is the profile's, and a job's own
    Snakemake, which is not told of it, neither refuses nor clips.
    """
    local = Grid.create(tmp_path / "local")
    local.edit("configs/studies/debias/_study.yaml", "gpu: 1", "gpu: 2")
    local.snakemake("--until", "debias_evaluate", "--config", "variant=a")
    grid = Grid(local.copy(tmp_path / "grid").folder)
    local.snakemake("--config", "variant=b")
    stand_in = (ROOT / "tests" / "cluster" / "kubectl.py").read_text()
    grid.write("kubectl", f"#!{sys.executable}\n{stand_in}")
    (grid.folder / "kubectl").chmod(0o755)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PATH", os.pathsep.join([str(grid.folder), os.environ["PATH"]]))
        with grid.running("--config", "variant=b", "gpus=1", profile="kubernetes"):
            pass
    pods = sorted(grid.folder.glob("pods/*"))
    assert [(pod / "end").read_text() for pod in pods] == ["Failed", "Complete", "Complete"]
    assert report(grid.folder) == report(local.folder)
    specs = [json.loads((pod / "job.json").read_text())["spec"] for pod in pods]
    for spec in specs:
        [container] = spec["template"]["spec"]["containers"]
        assert (
            spec["template"]["spec"]["activeDeadlineSeconds"] == 60 * 30
        )  # the Job's own counts the wait for a machine
        assert "activeDeadlineSeconds" not in spec
        assert container["workingDir"] == str(grid.folder)
        assert container["resources"]["requests"] == {"cpu": "1", "memory": "500Mi"}
    asked = [spec["template"]["spec"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] for spec in specs]
    assert asked == ["2", "2", "0"]  # train, killed and again; evaluate
    assert " --gpus 2 " in (grid.trained()["b"] / "log.txt").read_text()


def test_the_status_command_of_kubernetes(tmp_path):
    def told(kubectl):
        (tmp_path / "kubectl").write_text(f"#!/bin/sh\n{kubectl}\n")
        (tmp_path / "kubectl").chmod(0o755)
        script = ROOT / "workflow" / "profiles" / "kubernetes" / "status.sh"
        path = os.pathsep.join([str(tmp_path), "/usr/bin", "/bin"])
        return subprocess.run([script, "x"], env={"PATH": path}, capture_output=True, text=True, check=True).stdout

    assert told("echo :SuccessCriteriaMet Complete; echo Warning: Failed >&2") == "success\n"
    assert told("echo :FailureTarget Failed") == told("") == "failed\n"
    assert told("echo :") == told("echo Unable to connect, Failed >&2; exit 1") == "running\n"


def test_the_status_command_of_cluster_generic(tmp_path):
    script = ROOT / "workflow" / "profiles" / "cluster-generic" / "status.sh"

    def told(squeue, sacct="exit 1"):
        for name, text in (("squeue", squeue), ("sacct", sacct)):
            (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
            (tmp_path / name).chmod(0o755)
        path = os.pathsep.join([str(tmp_path), "/usr/bin", "/bin"])
        return subprocess.run(
            [script, "7"], env={"PATH": path}, capture_output=True, text=True, check=True
        ).stdout.strip()

    unknown = "echo 'slurm_load_jobs error: Invalid job id specified' >&2; exit 1"
    for state in ("PENDING", "RUNNING", "COMPLETING", "CONFIGURING"):
        assert told(f"echo {state}") == "running"
    assert told("echo COMPLETED") == "success"
    for state in ("CANCELLED", "FAILED", "TIMEOUT", "OUT_OF_MEMORY", "NODE_FAIL"):
        assert told(f"echo {state}") == "failed"
    assert told(unknown, "echo COMPLETED") == "success"
    assert told(unknown, "echo 'CANCELLED by 0'") == "failed"
    assert told(unknown, "echo PREEMPTED") == "failed"
    assert told("echo PREEMPTED") == "running"  # it may be requeued
    assert told(unknown) == "failed"
    assert told("echo 'Unable to contact slurm controller' >&2; exit 1") == "running"


def test_commands_of_the_page_are_those_of_the_profiles():
    """Every path and option in docs/how-to/clusters.md that starts with workflow/ exists."""
    page = (ROOT / "docs/how-to/clusters.md").read_text()
    for path in set(re.findall(r"workflow/[\w./-]+\w", page)):
        assert (ROOT / path).exists(), path

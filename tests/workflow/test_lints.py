"""What Snakemake's own tools say of the workflow, and the profile that every call loads."""

import re
import shutil
import subprocess
import sys

import pytest
import yaml

from ablation.config.study_file import read_study_file
from tests.repository import ROOT

RULES = sorted((ROOT / "workflow" / "rules").glob("*.smk"))


def rules():
    """Every rule's text; the one that is made in a loop stands deeper and bears the name of its file."""
    for path in RULES:
        for block in re.split(r"^ *rule\b", path.read_text(), flags=re.MULTILINE)[1:]:
            yield pytest.param(block, id=block.partition(":")[0].strip() or path.stem)


@pytest.mark.parametrize("block", list(rules()))
def test_every_rule_says_what_it_logs_and_needs(block):
    for directive in ("input:", "output:", "log:", "threads:", "message:", "shell:", "conda:"):
        assert re.search(rf"\n +{directive}", block), directive
    for resource in ("mem_mb=", "runtime=", "gpu="):
        assert resource in block, resource
    assert not re.search(r"\n +run:", block)
    if "RUN_STAGE" in block:  # a stage: schedulers that do not know `gpu` are asked in their own words
        assert "**JOBS.scheduler_request(id)" in block
    assert "lambda" not in block  # in a loop it would see the last stage only


@pytest.mark.slow
def test_every_stage_of_every_study_has_a_rule():
    done = subprocess.run(
        [sys.executable, "-m", "snakemake", "--list-rules"], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "Using workflow specific profile profiles/default" in done.stderr
    named = done.stdout.split()
    for path in ROOT.glob("configs/studies/*/_study.yaml"):
        stages = read_study_file(path).stages
        assert {f"{path.parent.name}_{stage}" for stage in stages} <= set(named)


def test_the_snakefile_is_a_table_of_contents():
    text = (ROOT / "Snakefile").read_text()
    assert not re.search(r"^\s*(def|for|if|while|import) ", text, flags=re.MULTILINE)
    included = set(re.findall(r'include: "workflow/rules/(\w+\.smk)"', text))
    assert included == {path.name for path in RULES}


def test_every_caption_exists_and_is_used():
    used = {name for path in RULES for name in re.findall(r'kept_report\(study, [^,]+, "([\w-]+)"', path.read_text())}
    assert used == {path.stem for path in (ROOT / "workflow" / "report").glob("*.rst")}


def test_the_default_profile():
    profile = yaml.safe_load((ROOT / "profiles" / "default" / "config.yaml").read_text())
    assert profile["cores"] == "all"  # so that `snakemake --resources gpu=2` is a whole command
    assert profile["keep-going"] is True
    assert profile["rerun-incomplete"] is True
    assert profile["scheduler"] == "greedy"
    assert profile["retries"] >= 1


@pytest.mark.skipif(shutil.which("make") is None, reason="make is not installed")
def test_make_builds_the_command_that_is_documented():
    def commands(*words):
        return subprocess.run(
            ["make", "--dry-run", *words], cwd=ROOT, capture_output=True, text=True, check=True
        ).stdout

    pool = "snakemake --cores all --resources gpu=2"
    assert f"{pool} --config seeds=5 study=debias" in commands("grid", "SEEDS=5", "STUDY=debias")
    demo = commands("demo", "WATCH=1")
    assert f"{pool} --configfile configs/demo.yaml" in demo
    assert "serve &" in demo

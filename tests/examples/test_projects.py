"""The examples are projects as `ablation init` makes them, and every variant of them can be planned."""

import pytest

from ablation.config.settings import load_settings
from ablation.contract.command import placeholders
from ablation.plan.build import build_plan
from tests.peers.environment import ROOT

EXAMPLES = sorted(path.parent.name for path in ROOT.glob("examples/*/configs"))
TEMPLATE = ROOT / "ablation/cli/new_project"


def test_there_are_two():
    assert EXAMPLES == ["trl", "verl"]


@pytest.mark.parametrize("name", EXAMPLES)
def test_its_workflow_is_that_of_a_new_project(name):
    for file in ("Snakefile", "environment.yml"):
        assert (ROOT / "examples" / name / file).read_text() == (TEMPLATE / file).read_text()
    assert (ROOT / "examples" / name / "profiles/default").is_dir()


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_variant_can_be_planned(name, monkeypatch):
    monkeypatch.chdir(ROOT / "examples" / name)
    plan = build_plan(load_settings({}), 1)
    (study,) = plan.content.studies
    assert len(study.variants) >= 3
    keys = {run.stages["train"] for run in study.runs}
    assert len(keys) == len(study.runs) >= 3 * len(study.variants)
    for address, config in plan.configs.items():
        assert address[0] == f"{study.name}.train"
        assert {"seed", "output"} <= {placeholder.kind for placeholder in placeholders(config["command"]["words"])}

"""Stages that need a package that is not installed: refused when they are to run, with the key that asks for it."""

from pathlib import Path

import pytest
import yaml

from contract.errors import ConfigError
from tracker.config.settings import load_settings
from tracker.plan import packages
from tracker.plan.build import build_plan
from tracker.plan.retry import states_of

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def plan(tmp_path):
    """Of the study gspo with a variant that trains adapters."""
    configs = tmp_path / "configs"
    for name in ("published", "config.yaml"):
        (configs / name).parent.mkdir(exist_ok=True)
        (configs / name).symlink_to(ROOT / "configs" / name)
    (configs / "scales").mkdir()
    (configs / "scales" / "small.yaml").write_text("seeds: 1\nstudies: {}\n")
    study = configs / "studies" / "gspo"
    study.mkdir(parents=True)
    for name in ("_study.yaml", "gspo.yaml"):
        (study / name).symlink_to(ROOT / "configs" / "studies" / "gspo" / name)
    asked = {"extends": "gspo", "why": "less memory", "memory": {"lora": {"rank": 4}}}
    (study / "lora.yaml").write_text(yaml.safe_dump(asked))
    settings = load_settings({"scale": "small", "results": str(tmp_path / "results")}, configs=configs)
    return build_plan(settings, root=ROOT)


def test_the_key_that_asks_and_the_remedy_are_named(plan, monkeypatch):
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    with pytest.raises(ConfigError) as error:
        packages.check_packages(plan, states_of(plan))
    assert str(error.value).endswith(
        "lora.yaml: memory.lora = {'rank': 4, 'alpha': 32.0, 'targets': None}: gspo.reinforce needs peft: it is not "
        "installed; pip install 'ablation-tracker[lora]', or set it to null"
    )


def test_nothing_is_said_where_it_is_installed_or_the_stage_has_ended(plan, monkeypatch):
    asked = []
    monkeypatch.setattr(packages, "find_spec", lambda name: asked.append(name) or object())
    packages.check_packages(plan, states_of(plan))
    assert set(asked) == {"peft"}
    monkeypatch.setattr(packages, "find_spec", lambda name: None)
    monkeypatch.setattr(packages, "pending", lambda *_: [])
    packages.check_packages(plan, states_of(plan))

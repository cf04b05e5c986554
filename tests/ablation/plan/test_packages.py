"""Stages that need a package that is not installed: refused when they are to run, with the key that asks for it."""

import shutil
from importlib import util
from pathlib import Path

import pytest
import yaml

from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError
from ablation.contract.status import StageState
from ablation.plan import checks
from ablation.plan.build import build_plan
from ablation.plan.retry import states_of

ROOT = Path(__file__).resolve().parents[3]
VARIANTS = {
    "gspo": "extends: gspo\nwhy: another sampler\nrollout: {engine: vllm, vllm: {longest: 128}}\n",
    "gad": "extends: d-final\nwhy: another sampler\nrollout: {engine: vllm}\n",
}


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
    for name in ("policy.yaml", "gspo/_study.yaml", "gspo/gspo.yaml"):
        (study.parent / name).symlink_to(ROOT / "configs" / "studies" / name)
    asked = {"extends": "gspo", "why": "less memory", "memory": {"lora": {"rank": 4}}}
    (study / "lora.yaml").write_text(yaml.safe_dump(asked))
    settings = load_settings({"scale": "small", "results": str(tmp_path / "results")}, configs=configs)
    return build_plan(settings, root=ROOT)


def test_the_key_that_asks_and_the_remedy_are_named(plan, monkeypatch):
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == "peft" else object())
    with pytest.raises(ConfigError) as error:
        checks.check_packages(plan, states_of(plan))
    assert str(error.value).endswith(
        "lora.yaml: memory.lora = {'rank': 4, 'alpha': 32.0, 'targets': None}: gspo.reinforce needs peft: it is not "
        "installed; pip install 'ablation-tracker[lora]', or set it to null"
    )


def test_the_trainers_need_their_extra(plan, monkeypatch):
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"torch is not installed; pip install -e '.\[trainers\]'"):
        checks.check_packages(plan, states_of(plan))


def test_nothing_is_said_where_it_is_installed_or_the_stage_has_ended(plan, monkeypatch):
    asked = []
    monkeypatch.setattr(checks, "find_spec", lambda name: asked.append(name) or object())
    checks.check_packages(plan, states_of(plan))
    assert set(asked) == {"peft", "torch"}
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    monkeypatch.setattr(checks, "pending", lambda *_: [])
    checks.check_packages(plan, states_of(plan))


@pytest.fixture
def pretend(monkeypatch):
    original = util.find_spec
    return lambda present: monkeypatch.setattr(
        checks, "find_spec", lambda name: (object() if present else None) if name == "vllm" else original(name)
    )


def plan_of(study, tmp_path, variant):
    shutil.copytree(ROOT / "configs", tmp_path / "configs", dirs_exist_ok=True)
    (tmp_path / "configs" / "studies" / study / "sampled.yaml").write_text(VARIANTS[study])
    given = {"scale": "smoke", "studies": study, "variant": variant, "results": str(tmp_path / "results")}
    return build_plan(load_settings(given, configs=tmp_path / "configs"), root=ROOT)


@pytest.mark.parametrize("study", ["gspo", "gad"])
def test_only_without_vllm_a_stage_that_samples_with_it_is_refused_in_one_line(study, tmp_path, pretend):
    pretend(False)
    plan = plan_of(study, tmp_path, "sampled")
    with pytest.raises(
        ConfigError, match=r"sampled.yaml: rollout.engine = 'vllm': .* needs vllm: it is not installed"
    ) as caught:
        checks.check_packages(plan, states_of(plan))
    checks.check_packages(plan, {address: StageState("ok") for address in states_of(plan)})
    assert "make vllm" in str(caught.value)
    assert "\n" not in str(caught.value)
    pretend(True)
    checks.check_packages(plan, states_of(plan))

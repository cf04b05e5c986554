"""What is checked before the first job: devices, machines and packages."""

import pytest
import yaml

from ablation.config.settings import load_settings
from ablation.contract.errors import ConfigError
from ablation.contract.status import StageState
from ablation.plan import checks
from ablation.plan.build import build_plan
from ablation.plan.checks import check_pool
from ablation.plan.retry import states_of
from ablation.plan.start import prepare
from tests.ablation.plan.commands import build, finish
from tests.ablation.toy_study import STUDY
from tests.ablation.typed import output
from tests.repository import ROOT

# Stages that ask for more accelerators than there are: refused when they are to run, named by `validate`


def pool_refusal(plan):
    with pytest.raises(ConfigError) as error:
        check_pool(plan, states_of(plan))
    return str(error.value)


def test_the_pool_of_the_invocation_counts_and_the_file_that_asks_is_named(toy):
    path = toy.variant("big", {"extends": "base", "why": "x", "gpu": 4, "lr": 0.5})
    said = pool_refusal(build(toy))
    assert said.startswith(f"{path}: gpu = 4: toy.")
    assert "needs 4 devices, but the grid may use only 2; run with --resources gpu=4" in said
    assert "but the grid may use only 3" in pool_refusal(build(toy, 3))
    plan = build(toy, 4)
    check_pool(plan, states_of(plan))
    assert plan.studies["toy"].variants["big"].gpu == 4
    study = toy.folder / "_study.yaml"
    assert pool_refusal(build(toy, 0, variant="v2")).startswith(f"{study}: stages.train.resources.gpu = 1")
    scale = toy.yaml("scales/full.yaml", {"seeds": 2, "studies": {"toy": {"resources": {"train": {"gpu": 9}}}}})
    assert pool_refusal(build(toy, variant="v2")).startswith(f"{scale}: studies.toy.resources.train.gpu = 9")


def test_what_is_not_selected_or_has_ended_is_not_refused(toy):
    toy.variant("big", {"extends": "base", "why": "x", "gpu": 4, "lr": 0.5})
    others = build(toy, variant="v3")
    check_pool(others, states_of(others))
    plan = build(toy)
    for stage in plan.content.stages:
        if stage.resources.gpu > 2:
            finish(stage)
    check_pool(plan, states_of(plan))


def test_validate_says_what_will_be_refused(capsys, monkeypatch):
    monkeypatch.chdir(ROOT)
    words = ["--config", "studies=gad", "--config", "gpus=0", "--scale", "paper"]
    refused = "the grid would refuse this study: gad.evaluate needs 1 device, but the grid may use only 0"
    assert refused in output(capsys, "validate", *words, status=1)


# A stage that asks for devices which its code has no use for: said before the first job, and not refused

RUN = "def run(stage):\n    RANKS = 1\n"


def said(toy, train, gpu=4):
    resources = {**STUDY["stages"]["train"], "resources": {"gpu": gpu}}
    toy.study(stages={**STUDY["stages"], "train": resources}, dirty_tree="allow")
    (toy.root / "trainers" / "toy" / "train.py").write_text(train)
    plan = build(toy, gpus=4)
    return [line for line in prepare(plan, states_of(plan), toy.root) if "devices" in line]


def test_a_stage_that_uses_one_is_warned_of_once(toy):
    assert said(toy, RUN) == [
        "warning: toy.train gets 4 devices but uses only one; set gpu: 1 under "
        "studies.toy.resources.train in the scale's file, not in a variant (docs/how-to/several-devices.md)"
    ]
    assert not said(toy, RUN, gpu=1)


# Stages that need a package that is not installed: refused when they are to run, with the key that asks for it


@pytest.fixture
def plan(tmp_path):
    """Of the study gspo with a variant that trains adapters, and one that samples with vLLM."""
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
    for name, asked in {"lora": {"memory": {"lora": {"rank": 4}}}, "sampled": {"rollout": {"engine": "vllm"}}}.items():
        (study / f"{name}.yaml").write_text(yaml.safe_dump({"extends": "gspo", "why": "a test", **asked}))
    settings = load_settings({"scale": "small", "results": str(tmp_path / "results")}, configs=configs)
    return build_plan(settings, root=ROOT)


@pytest.mark.parametrize(
    ("package", "said"),
    [
        (
            "peft",
            "lora.yaml: memory.lora = {'rank': 4, 'alpha': 32.0, 'targets': None}: gspo.reinforce needs peft, "
            "which is not installed; run pip install 'ablation-tracker[lora]', or set memory.lora to null",
        ),
        ("vllm", "sampled.yaml: rollout.engine = 'vllm': gspo.reinforce needs vllm, which is not installed; "),
    ],
)
def test_the_key_that_asks_and_the_remedy_are_named(plan, monkeypatch, package, said):
    monkeypatch.setattr(checks, "find_spec", lambda name: None if name == package else object())
    with pytest.raises(ConfigError) as error:
        checks.check_packages(plan, states_of(plan))
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    checks.check_packages(plan, {address: StageState("ok") for address in states_of(plan)})


def test_the_trainers_need_their_extra(plan, monkeypatch):
    monkeypatch.setattr(checks, "find_spec", lambda name: None)
    with pytest.raises(ConfigError, match=r"torch is not installed; run pip install -e '.\[trainers\]'"):
        checks.check_packages(plan, states_of(plan))

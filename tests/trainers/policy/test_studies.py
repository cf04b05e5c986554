"""The studies innovations and gspo: exclusions before any job, shared stages, clean comparisons, all scales."""

import shutil
from collections import Counter

import pytest

from ablation.config.settings import load_settings
from ablation.config.variants import load_studies
from ablation.contract.errors import ConfigError
from ablation.plan.build import build_plan
from ablation.runner.stage import load_config
from tests.repository import ROOT
from trainers.policy.config import Ptrw

CONFIGS = ROOT / "configs"


def load(configs=CONFIGS, **overrides):
    settings = load_settings({"studies": "innovations,gspo", **overrides}, configs=configs)
    return settings, load_studies(settings)


@pytest.mark.parametrize("scale", ["smoke", "demo", "paper"])
def test_every_variant_is_valid_at_every_scale_and_its_stages_can_read_what_the_plan_wrote(scale):
    settings, studies = load(scale=scale)
    files = {name: {file.stem for file in (CONFIGS / "studies" / name).glob("[!_]*.yaml")} for name in studies}
    assert {name: study.variants.keys() for name, study in studies.items()} == files
    plan = build_plan(settings, 99)
    for written in (plan.configs[address] for address, stage in plan.stages.items() if stage.study != "assets"):
        load_config(written["model"], written["config"], written["reads"])


@pytest.mark.parametrize(
    ("study", "text", "named"),
    [
        ("innovations", "extends: grpo\namic: true\nratio: gspo\n", ("ratio = 'gspo'", "amic = True")),
        ("innovations", "extends: gspo\namic: true\n", ("ratio = 'gspo'", "amic = True")),  # inherited counts too
        ("innovations", "extends: 2.4-ptrw\nsurrogate: {low: 0.1}\n", ("surrogate.low = 0.1", "is not a key")),
        ("gspo", "extends: grpo\nadvantage: {critic: {lam: 0.9}}\n", ("advantage.critic", "is not a key")),
    ],
)
def test_what_excludes_each_other_is_refused_with_both_keys_and_the_file(tmp_path, study, text, named):
    shutil.copytree(CONFIGS, tmp_path / "configs")
    (tmp_path / "configs" / "studies" / study / "wrong.yaml").write_text(f"why: a test\n{text}")
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "configs")
    for part in (*named, "wrong.yaml"):
        assert part in str(caught.value)


def test_another_kind_takes_the_place_of_what_is_inherited_and_its_name_says_so(tmp_path):
    shutil.copytree(CONFIGS, tmp_path / "configs")
    (tmp_path / "configs" / "studies" / "gspo" / "right.yaml").write_text(
        "why: a test\nextends: dapo\nsurrogate: {kind: ptrw, sigma: 0.3}\n"
    )
    _, studies = load(tmp_path / "configs")
    variants = studies["gspo"].variants | studies["innovations"].variants
    assert variants["right"].resolved.surrogate == Ptrw(sigma=0.3)
    found = {name: {change.key: change.new for change in variants[name].changes} for name in variants}
    assert found["right"] == {"surrogate.kind": "ptrw", "surrogate.sigma": 0.3}
    assert found["2.4-ptrw"] == {"surrogate.kind": "ptrw"}
    assert found["ppo"] == {"advantage.kind": "gae", "rollout.group_size": 1}


def test_stages_are_shared_by_all_variants_of_a_seed_that_read_the_same():
    settings, studies = load(scale="demo", seeds="0,1,2")
    plan = build_plan(settings)
    for name, study in studies.items():

        def different(keys=None, of=study):
            return len({variant.resolved.model_dump_json(include=keys) for variant in of.variants.values()})

        judged, measured = {"task", "sampling", "reward_training"}, {"reward", "evaluate"}
        assert Counter(stage.stage for stage in plan.stages.values() if stage.study == name) == {
            "task_data": different({"task"}),
            "warm_start": 3 * different({"task"}),
            "reward_model": 3 * different(judged),
            "evaluate_warm": 3 * different(judged | measured),
            "reinforce": 3 * different(),  # 2.3-amic-vs-gspo has the runs of 2.3-amic
            "evaluate": 3 * different(),
        }
        assert different(judged | measured) < different()


def test_single_innovations_are_comparisons_of_one_factor():
    _, studies = load()
    variants = studies["innovations"].variants
    for name in ("2.1-ema", "2.2-gradient", "2.3-amic", "2.4-ptrw", "2.5-temporal", "2.6-asymmetric", "gspo"):
        assert variants[name].parent == "grpo"
        assert len(variants[name].factors) == 1, variants[name].factors
    assert len(studies["gspo"].variants["dapo"].factors) == 1
    combinations = studies["innovations"].written.analysis.combinations
    for combination, parts in combinations.items():
        together = {change.key for part in parts for change in variants[part].changes}
        assert {change.key for change in variants[combination].changes} == together


def test_a_part_that_is_switched_on_is_shown_by_its_keys_alone():
    _, studies = load()
    changes = studies["innovations"].variants["2.1-ema"].changes
    assert [(c.key, c.old, c.new, c.factor) for c in changes] == [
        ("ema_smoothing.beta", None, 0.9, "2.1 EMA smoothing")
    ]

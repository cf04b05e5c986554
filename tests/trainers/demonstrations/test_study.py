"""The study's declaration: every scale, shared stages, comparisons of one factor, and errors before any job."""

import itertools
import re
import shutil

import pytest

from ablation.config.settings import load_settings
from ablation.config.variants import load_studies
from ablation.contract.errors import ConfigError
from ablation.plan.build import build_plan
from ablation.runner.stage import load_config
from tests.repository import ROOT

CONFIGS = ROOT / "configs"


def load(configs=CONFIGS, **overrides):
    settings = load_settings({"studies": "demonstrations", **overrides}, configs=configs)
    return settings, load_studies(settings)["demonstrations"]


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(CONFIGS, tmp_path / "configs")
    return tmp_path / "configs"


@pytest.mark.parametrize("scale", ["smoke", "demo", "laptop", "paper"])
def test_every_variant_is_valid_at_every_scale_and_so_is_what_each_stage_reads_of_it(scale):
    """What a stage reads makes a configuration again without the defaults, which are another task's."""
    _, study = load(scale=scale)
    assert study.variants.keys() == {file.stem for file in (CONFIGS / "studies/demonstrations").glob("[!_]*.yaml")}
    for variant, stage in itertools.product(study.variants.values(), study.stages.values()):
        reads = list(stage.reads)
        values = variant.resolved.model_dump(mode="json", include=set(reads))
        config = load_config(study.written.config, values, reads)
        for key in reads:
            assert getattr(config, key) == getattr(variant.resolved, key)


def test_the_task_of_a_scale_replaces_that_of_the_defaults():
    assert load(scale="laptop")[1].variants["legacy"].resolved.task.name == "text"
    task = load(scale="paper")[1].variants["legacy"].resolved.task
    assert (task.name, task.candidates, task.max_new_tokens) == ("vision", 64, 10)


def test_what_does_not_differ_is_run_once(tmp_path):
    settings, _ = load(scale="demo", seeds="1", results=str(tmp_path))
    plan = build_plan(settings)
    keys = {run.variant: run.stages for run in plan.content.studies[0].runs}
    for stage in ("learner", "embed", "candidates"):
        assert len({stages[stage] for stages in keys.values()}) == 1
    same = ("legacy", "legacy-rank", "rce-only", "conditional-legacy")
    assert len({keys[name]["rce"] for name in same}) == 1
    assert keys["hard_plus_soft"]["rce"] == keys["hard_plus_soft-rank"]["rce"]
    v2 = "hard_plus_soft_v2"
    assert keys[v2]["rce"] == keys[f"{v2}-rank"]["rce"] == keys["conditional"]["rce"]
    assert len({stages["rce"] for stages in keys.values()}) >= 18
    assert len({stages["grpo"] for stages in keys.values()}) == len(keys)


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("extends: legacy\nreward: {mode: hard}\n", ("wrong.yaml", "reward.mode", "'hard'")),
        ("extends: legacy\nreward: {soft_weight: 0.5}\n", ("wrong.yaml", "no effect with mode legacy")),
        ("extends: legacy\nshots: 17\n", ("wrong.yaml", "shots = 17 exceeds task.candidates = 16")),
        ("extends: legacy\nper_shot: [legacy]\n", ("wrong.yaml", "list at least two")),
        ("extends: legacy\nper_shot: [legacy, legacy]\n", ("wrong.yaml", "per_shot lists a mode twice")),
        ("extends: per-shot\nreward: {mode: hybrid}\n", ("wrong.yaml", "reward has no effect: per_shot trains")),
        ("extends: legacy\nselector: {kind: random}\nrce: {lr: 0.1}\n", ("wrong.yaml", "rce.lr", "not trained")),
        ("extends: rce-only\ngrpo: {advantage: rank}\n", ("wrong.yaml", "grpo.advantage and", "no effect")),
        ("extends: rce-only\ngrpo: {clip: 0.3}\n", ("wrong.yaml", "grpo.clip = 0.3", "grpo.enabled is false")),
        ("extends: random\nselector: {layers: 2}\n", ("wrong.yaml", "selector.layers = 2", "is not trained")),
        ("extends: legacy\ngrpo: {positive_threshold: 0.0}\n", ("wrong.yaml", "no effect without grpo.min_positive")),
        ("extends: legacy\nreward: {info_weight: 0.0}\n", ("wrong.yaml", "nothing is rewarded")),
        ("extends: legacy\nselector: {hidden: 50}\n", ("wrong.yaml", "heads = 4 does not divide hidden = 50")),
        ("extends: legacy\nselector: {layers: 4}\n", ("wrong.yaml", "selector.layers", "4")),
        ("extends: legacy\nproposals: {beam: 0, temperatures: [], random: 1}\n", ("wrong.yaml", "2 are the least")),
        ("extends: legacy\ngrpo: {advantages: rank}\n", ("wrong.yaml", "grpo.advantages", "advantage")),
        ("extends: legacy\ntask: {name: text}\n", ("wrong.yaml", "task.name text needs a `model`")),
    ],
)
def test_bad_input_is_one_line_with_file_key_and_value(copied, text, named):
    (copied / "studies" / "demonstrations" / "wrong.yaml").write_text(f"why: a test\n{text}")
    with pytest.raises(ConfigError) as caught:
        load(copied, scale="demo")
    assert "\n" not in str(caught.value)
    for part in named:
        assert part in str(caught.value)


def edit(path, old, new):
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


@pytest.mark.parametrize(
    ("file", "old", "new", "named"),
    [
        ("published/demonstrations.yaml", 'against: legacy-ranks, column: "1"', 'against: lgacy, column: "1"', "lgacy"),
        ("published/demonstrations.yaml", "low: -0.026, high: -0.020", "low: -0.01, high: -0.02", "above high"),
        ("published/demonstrations.yaml", 'column: "4"', 'column: "5"', "not columns"),
        ("studies/demonstrations/_study.yaml", "[hard_plus_soft, weights", "[hard_plus_sft, weights", "no such"),
        ("studies/demonstrations/_study.yaml", "metric: data/*/reward", "metric: data/reward", "<protocol>/*/<name>"),
        ("studies/demonstrations/_study.yaml", "kind: subsets", "kind: bars", "`variants` has no effect"),
    ],
)
def test_wrong_published_numbers_and_figures_are_refused(copied, file, old, new, named):
    edit(copied / file, old, new)
    with pytest.raises(ConfigError, match=re.escape(named)):
        load(copied)

"""Studies as their files declare them: every scale, shared stages, comparisons of one factor, errors before any job."""

import re
import shutil
from collections import Counter

import pytest

from ablation.config.settings import load_settings
from ablation.config.variants import load_studies
from ablation.contract.code import code_of
from ablation.contract.errors import ConfigError
from ablation.plan.build import build_plan
from ablation.runner.stage import load_config
from tests.repository import ROOT
from trainers.policy.config import Ptrw

CONFIGS = ROOT / "configs"


def load(names, configs=CONFIGS, **overrides):
    settings = load_settings({"studies": names, **overrides}, configs=configs)
    return settings, load_studies(settings)


@pytest.fixture
def copied(tmp_path):
    shutil.copytree(CONFIGS, tmp_path / "configs")
    return tmp_path / "configs"


@pytest.mark.parametrize("scale", ["smoke", "demo", "laptop", "paper"])
def test_every_variant_is_valid_at_every_scale_and_so_is_what_each_stage_reads_of_it(scale):
    """What a stage reads makes a configuration again without the defaults, which may be another task's."""
    _, studies = load("demonstrations,gspo,innovations", scale=scale)
    for name, study in studies.items():
        assert study.variants.keys() == {file.stem for file in (CONFIGS / "studies" / name).glob("[!_]*.yaml")}
        for variant in study.variants.values():
            for stage in study.stages.values():
                reads = list(stage.reads)
                values = variant.resolved.model_dump(mode="json", include=set(reads))
                config = load_config(study.written.config, values, reads)
                for key in reads:
                    assert getattr(config, key) == getattr(variant.resolved, key)


@pytest.mark.parametrize("scale", ["demo", "overnight"])
def test_every_variant_of_debias_descends_from_the_unedited_model(scale):
    settings, studies = load("debias", scale=scale)
    variants = studies["debias"].variants
    assert [name for name, variant in variants.items() if variant.parent is None] == ["unedited"]
    assert not variants["unedited"].resolved.editing
    assert [change.key for change in variants["baseline"].changes] == ["editing"]
    assert [name for name, variant in variants.items() if variant.parent == "unedited"] == ["baseline"]
    # A scale multiplies rates, so v1 keeps ten times the baseline's.
    assert variants["v1"].resolved.lr == pytest.approx(10 * variants["baseline"].resolved.lr)
    assert len(variants) == 20
    assert len(settings.seeds_of("debias")) == {"demo": 5, "overnight": 3}[scale]


def test_the_task_of_a_scale_replaces_that_of_the_defaults():
    at = {scale: load("demonstrations", scale=scale)[1]["demonstrations"] for scale in ("laptop", "paper")}
    assert at["laptop"].variants["legacy"].resolved.task.name == "text"
    task = at["paper"].variants["legacy"].resolved.task
    assert (task.name, task.candidates, task.max_new_tokens) == ("vision", 64, 10)


REFUSED = [
    ("demonstrations", "extends: legacy\nreward: {mode: hard}", ["reward.mode", "'hard'"]),
    (
        "demonstrations",
        "extends: legacy\nreward: {soft_weight: 0.5}",
        ["soft_weight = 0.5: has no effect because reward.mode is legacy"],
    ),
    ("demonstrations", "extends: legacy\nreward: {info_weight: 0.0}", ["nothing is rewarded"]),
    (
        "demonstrations",
        "extends: legacy\nreward: {info_weight: 0.0, correct_weight: 1.0, gain: nats}",
        ["gain = 'nats': has no effect because reward.info_weight is 0"],
    ),
    ("demonstrations", "extends: legacy\nshots: 17", ["shots 17 exceeds task.candidates 16"]),
    (
        "demonstrations",
        "extends: legacy\nrce: {weights: best, best_epochs: 4}",
        ["rce.best_epochs has no effect", "raise rce.epochs"],
    ),
    ("demonstrations", "extends: legacy\nper_shot: [legacy]", ["list at least two"]),
    ("demonstrations", "extends: legacy\nper_shot: [legacy, legacy]", ["a mode occurs twice in per_shot"]),
    ("demonstrations", "extends: per-shot\nreward: {mode: hybrid}", ["reward cannot be combined with per_shot"]),
    ("demonstrations", "extends: legacy\nselector: {kind: random}\nrce: {lr: 0.1}", ["rce.lr", "not trained"]),
    (
        "demonstrations",
        "extends: rce-only\ngrpo: {advantage: rank}",
        ["grpo.advantage = 'rank'", "grpo.enabled is false"],
    ),
    ("demonstrations", "extends: random\nselector: {layers: 2}", ["selector.layers = 2", "is not trained"]),
    (
        "demonstrations",
        "extends: legacy\ngrpo: {positive_threshold: 0.0}",
        ["has no effect because grpo.min_positive_ratio is null"],
    ),
    ("demonstrations", "extends: legacy\nselector: {hidden: 50}", ["`hidden` 50 is not a multiple of `heads` 4"]),
    (
        "demonstrations",
        "extends: legacy\nproposals: {beam: 0, temperatures: [], random: 1}",
        ["fewer than 2 sequences"],
    ),
    ("demonstrations", "extends: legacy\ngrpo: {advantages: rank}", ["grpo.advantages", "advantage"]),
    ("demonstrations", "extends: legacy\ntask: {name: text}", ["the task text needs a model"]),
    ("innovations", "extends: grpo\namic: true\nratio: gspo", ["ratio = 'gspo'", "amic = True"]),
    ("innovations", "extends: gspo\namic: true", ["ratio = 'gspo'", "amic = True"]),  # inherited counts too
    ("innovations", "extends: 2.4-ptrw\nsurrogate: {clip_low: 0.1}", ["surrogate.clip_low = 0.1", "is not a key"]),
    (
        "gspo",
        "extends: gspo-fixed-kl\nkl: {target: 0.05}",
        ["kl.target = 0.05: has no effect because kl.adaptive is false"],
    ),
    ("gspo", "extends: gspo\nkl: {kl_coef: 0.0}", ["`adaptive` has no effect at kl_coef 0"]),
    (
        "gspo",
        "extends: dapo\nkl: {target: 2.0}",
        ["kl.target = 2.0: has no effect because kl.kl_coef is 0"],
    ),
    (
        "gspo",
        "extends: gspo\ntemporal_decay: {gamma: 0.9}",
        ["temporal_decay.gamma = 0.9: has no effect because with ratio gspo"],
    ),
    (
        "gspo",
        "extends: gspo\nreward_training: {enabled: true}",
        ["reward_training.enabled = True: has no effect because reward.model is 0"],
    ),
    ("gspo", "extends: gspo\nreward: {level: token}", ["reward.level token needs a reward model"]),
]


@pytest.mark.parametrize(("study", "text", "said"), REFUSED)
def test_a_wrong_variant_is_refused_in_one_line_with_file_key_and_value(copied, study, text, said):
    (copied / "studies" / study / "wrong.yaml").write_text(f"why: a test\n{text}\n")
    with pytest.raises(ConfigError) as caught:
        load(study, copied, scale="smoke" if study == "gspo" else "demo")
    for part in ("wrong.yaml", *said):
        assert part in str(caught.value)
    assert "\n" not in str(caught.value)


PUBLISHED, STUDY = "published/demonstrations.yaml", "studies/demonstrations/_study.yaml"


@pytest.mark.parametrize(
    ("file", "old", "new", "said"),
    [
        (PUBLISHED, 'against: legacy-ranks, column: "1"', 'against: lgacy, column: "1"', "lgacy"),
        (PUBLISHED, "low: -0.026, high: -0.020", "low: -0.01, high: -0.02", "above `high`"),
        (PUBLISHED, 'column: "4"', 'column: "5"', "`columns` does not contain"),
        (STUDY, "[hard_plus_soft, weights", "[hard_plus_sft, weights", "'hard_plus_sft': the variant does not exist"),
        (STUDY, "metric: data/*/reward", "metric: data/reward", "<protocol>/*/<name>"),
        (STUDY, "kind: subsets", "kind: bars", "`variants` has no effect"),
    ],
)
def test_wrong_published_numbers_and_figures_are_refused(copied, file, old, new, said):
    text = (copied / file).read_text()
    assert old in text
    (copied / file).write_text(text.replace(old, new))
    with pytest.raises(ConfigError, match=re.escape(said)):
        load("demonstrations", copied)


def test_another_kind_takes_the_place_of_what_is_inherited_and_its_name_says_so(copied):
    right = "why: a test\nextends: dapo\nsurrogate: {kind: ptrw, sigma: 0.3}\n"
    (copied / "studies" / "gspo" / "right.yaml").write_text(right)
    _, studies = load("innovations,gspo", copied)
    variants = studies["gspo"].variants | studies["innovations"].variants
    assert variants["right"].resolved.surrogate == Ptrw(sigma=0.3)
    found = {name: {change.key: change.new for change in variants[name].changes} for name in variants}
    assert found["right"] == {"surrogate.kind": "ptrw", "surrogate.sigma": 0.3}
    assert found["2.4-ptrw"] == {"surrogate.kind": "ptrw"}
    assert found["ppo"] == {"advantage.kind": "gae", "rollout.group_size": 1}


def test_a_stage_runs_once_for_all_variants_that_read_the_same_and_again_for_another_seed():
    settings, studies = load("debias,demonstrations,gad,gspo,innovations", scale="demo", seeds="0,1,2")
    counted = Counter((stage.study, stage.stage) for stage in build_plan(settings).stages.values())
    of_all_seeds = set()
    for name, study in studies.items():

        def chain(stage, of=study):
            """The stage and all before it."""
            inputs = [each for each in of.stages[stage].inputs.values() if each in of.stages]
            return {stage}.union(*map(chain, inputs))

        for stage in study.stages:
            before = [study.stages[each] for each in chain(stage)]
            read = {key for each in before for key in each.reads}
            read |= {each.removeprefix("asset:") for stage in before for each in stage.inputs.values()}
            different = {variant.resolved.model_dump_json(include=read) for variant in study.variants.values()}
            seeds = 3 if any(each.seeded for each in before) else 1
            assert counted[name, stage] == seeds * len(different), (name, stage)
            of_all_seeds |= {f"{name}.{stage}"} if seeds == 1 else set()
    # 2.3-amic-vs-gspo has the runs of 2.3-amic.
    assert counted["innovations", "reinforce"] == 3 * (len(studies["innovations"].variants) - 1)
    assert counted["gad", "seqkd"] < counted["gad", "warmup"]
    assert [counted["demonstrations", name] for name in ("learner", "embed", "candidates")] == [3, 3, 3]
    assert counted["demonstrations", "rce"] < counted["demonstrations", "grpo"]  # legacy-rank trains on legacy's ranker
    assert of_all_seeds == {"debias.prepare", "gad.data", "gspo.task_data", "innovations.task_data"}


def test_a_formula_of_grpo_runs_no_imitation_again():
    code = code_of("trainers.demonstrations.rce", ROOT, exclude=["trainers.demonstrations.parts"])
    formulas = {name for name in code.files if name.startswith("trainers/objectives/")}
    assert formulas == {f"trainers/objectives/{name}.py" for name in ("__init__", "selection")}


def test_single_innovations_are_comparisons_of_one_factor():
    _, studies = load("innovations,gspo")
    variants = studies["innovations"].variants
    for name in ("2.1-ema", "2.2-gradient", "2.3-amic", "2.4-ptrw", "2.5-temporal", "2.6-asymmetric", "gspo"):
        assert variants[name].parent == "grpo"
        assert len(variants[name].factors) == 1, variants[name].factors
    changes = variants["2.1-ema"].changes  # a part that is switched on is shown by its keys alone
    assert [(c.key, c.old, c.new, c.factor) for c in changes] == [
        ("ema_smoothing.beta", None, 0.9, "2.1 EMA smoothing")
    ]
    assert len(studies["gspo"].variants["dapo"].factors) == 1
    for combination, parts in studies["innovations"].written.analysis.combinations.items():
        together = {change.key for part in parts for change in variants[part].changes}
        assert {change.key for change in variants[combination].changes} == together

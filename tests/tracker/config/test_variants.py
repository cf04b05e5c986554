import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from contract.errors import ConfigError
from tests.tracker.toy_study import PUBLISHED, STUDY, VARIANTS, Toy, ToyConfig
from tracker.cli.configs import describe
from tracker.config import dotted
from tracker.config.changes import diff
from tracker.config.names import is_safe_name
from tracker.config.printed import Printed
from tracker.config.scale import multiply
from tracker.config.settings import load_settings
from tracker.config.variants import load_studies
from tracker.plan.build import build_plan


@pytest.fixture
def toy(tmp_path):
    return Toy(tmp_path)


def load(toy, gpu_pool=None, **overrides):
    return load_studies(load_settings(overrides, configs=toy.configs), gpu_pool)["toy"]


def refused(toy, *parts, gpu_pool=None, **overrides):
    with pytest.raises(ConfigError) as caught:
        load(toy, gpu_pool, **overrides)
    text = str(caught.value)
    for part in parts:
        assert part in text, text
    assert "\n" not in text
    return caught.value


def test_inheritance_merges_maps_and_replaces_lists(toy):
    study = load(toy)
    v10, v3 = study.variants["v10"], study.variants["v3"]
    assert v10.resolved.reward.model_dump() == {"kind": "b", "weight": 0.5, "levels": [0.1, 0.2]}
    assert v10.resolved.lr == 0.01
    assert v3.resolved.reward.levels == [0.3]
    assert study.variants["base"].resolved == study.config_model()


def test_base_lies_between_defaults_and_roots(toy):
    toy.study(base={"lr": 0.5, "reward": {"weight": 0.25}})
    study = load(toy)
    assert study.variants["base"].resolved.lr == 0.5
    assert study.variants["base"].resolved.reward.weight == 0.25
    assert study.variants["v2"].resolved.reward.weight == 0.5


def test_changes_are_leaves_against_the_parent_with_factors(toy):
    study = load(toy)
    changes = {(c.key, repr(c.old), repr(c.new), c.factor) for c in study.variants["v10"].changes}
    assert changes == {("reward.kind", "'a'", "'b'", "reward"), ("lr", "0.001", "0.01", "lr")}
    assert set(study.variants["v10"].factors) == {"reward", "lr"}
    assert study.variants["base"].changes == ()
    assert [(c.key, c.old, c.new) for c in study.variants["v3"].changes] == [("reward.levels", [0.1, 0.2], [0.3])]


def test_a_config_model_may_know_that_a_change_cannot_matter(toy, monkeypatch):
    def unseen_changes(self, parent):
        same = self.reward.levels != parent.reward.levels and max(self.reward.levels) < self.size
        return {"reward.levels": f"all below {self.size}"} if same else {}

    monkeypatch.setattr(ToyConfig, "unseen_changes", unseen_changes, raising=False)
    study = load(toy)
    [change] = study.variants["v3"].changes
    assert (change.key, change.no_effect) == ("reward.levels", "all below 100")
    assert [change.no_effect for change in study.variants["v10"].changes] == ["", ""]
    assert describe(change).endswith("[no effect: all below 100]")
    assert [change.no_effect for change in diff(study, "v2", "v3")] == ["all below 100"]
    [planned] = build_plan(load_settings(configs=toy.configs), root=toy.root).content.studies
    [variant] = [variant for variant in planned.variants if variant.name == "v3"]
    assert [change.no_effect for change in variant.changes] == ["all below 100"]


def test_parents_come_first_and_siblings_in_natural_order(toy):
    assert list(load(toy).variants) == ["base", "v2", "v3", "v10"]


def test_diff_of_any_two_is_antisymmetric(toy):
    study = load(toy)
    there = diff(study, "v3", "v10")
    assert {c.key for c in there} == {"reward.kind", "reward.levels", "lr"}
    back = {c.key: (c.new, c.old) for c in diff(study, "v10", "v3")}
    assert {c.key: (c.old, c.new) for c in there} == back
    assert diff(study, "v3", "v3") == []
    with pytest.raises(ConfigError, match="did you mean 'v10'"):
        diff(study, "v3", "v100")


REFUSALS = {
    "unknown key": ({"extends": "base", "why": "x", "rewrd": {"kind": "b"}}, "rewrd", "did you mean 'reward'"),
    "unknown nested key": (
        {"extends": "base", "why": "x", "reward": {"wight": 1}},
        "reward.wight = 1",
        "'reward.weight'",
    ),
    "key at the wrong level": (
        {"extends": "base", "why": "x", "weight": 0.5},
        "weight = 0.5",
        "did you mean 'reward.weight'",
    ),
    "unknown parent": ({"extends": "bas", "why": "x"}, "extends = 'bas'", "did you mean 'base'"),
    "two parents": ({"extends": ["base", "v2"], "why": "x"}, "extends", "one variant"),
    "missing why": ({"extends": "base", "lr": 0.5}, "why", "say in a sentence"),
    "empty why": ({"extends": "base", "why": " ", "lr": 0.5}, "why"),
    "why is a list": ({"extends": "base", "why": ["x"], "lr": 0.5}, "why"),
    "same as the parent": (
        {"extends": "v2", "why": "x", "reward": {"weight": 0.5}},
        "reward.weight = 0.5",
        "v2 has this",
    ),
    "same as the default": ({"extends": "base", "why": "x", "size": 100}, "size = 100", "has this value already"),
    "same in other type": ({"extends": "v2", "why": "x", "lr": 0.001, "bold": True}, "lr = 0.001"),
    "same in a root": ({"why": "x", "size": 100}, "the base has this"),
    "same list": ({"extends": "v2", "why": "x", "reward": {"levels": [0.1, 0.2]}}, "reward.levels"),
    "empty map": ({"extends": "v2", "why": "x", "reward": {}}, "reward", "has this value already"),
    "wrong type": ({"extends": "base", "why": "x", "size": "many"}, "size = 'many'", "integer"),
    "quoted number": ({"extends": "base", "why": "x", "size": "7"}, "size = '7'", "integer"),
    "float for int": ({"extends": "base", "why": "x", "size": 1.5}, "size = 1.5"),
    "number for bool": ({"extends": "base", "why": "x", "bold": 1}, "bold = 1", "boolean"),
    "scalar for map": ({"extends": "base", "why": "x", "reward": 3}, "reward = 3"),
    "out of range": (
        {"extends": "base", "why": "x", "reward": {"weight": 2}},
        "reward.weight = 2",
        "Share of the reward",
    ),
    "not an option": ({"extends": "base", "why": "x", "reward": {"kind": "c"}}, "reward.kind = 'c'"),
    "inside a list": ({"extends": "base", "why": "x", "reward": {"levels": [0.1, "x"]}}, "reward.levels.1 = 'x'"),
    "two errors": ({"extends": "base", "why": "x", "size": 0, "lr": -1.0}, "size = 0", "1 more like it: lr"),
    "exclusion": ({"extends": "v10", "why": "x", "bold": True}, "reward.kind = 'b'", "b is never bold"),
    "gpu above the pool": ({"extends": "base", "why": "x", "gpu": 3, "lr": 0.5}, "gpu = 3", "pool of 2"),
    "gpu zero": ({"extends": "base", "why": "x", "gpu": 0, "lr": 0.5}, "gpu = 0"),
    "gpu text": ({"extends": "base", "why": "x", "gpu": "all", "lr": 0.5}, "gpu = 'all'"),
    "inside an asset": (
        {"extends": "base", "why": "x", "data": {"sources": [{"source": "hub", "repo": "a", "branch": "b"}]}},
        "data.sources.0.branch = 'b'",
    ),
    "unknown source": (
        {"extends": "base", "why": "x", "data": {"sources": [{"source": "ftp"}]}},
        "data.sources.0",
        "ftp",
    ),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_in_one_line_with_file_key_and_value(toy, name):
    content, *parts = REFUSALS[name]
    path = toy.variant("bad", content)
    refused(toy, str(path), *parts)


def test_duplicate_key(toy):
    path = toy.folder / "bad.yaml"
    path.write_text("extends: base\nwhy: x\nlr: 0.5\nlr: 0.6\n")
    refused(toy, f"{path}:4", "lr", "twice")


def test_cycle_names_its_members(toy):
    toy.variant("a", {"extends": "c", "why": "x", "lr": 0.5})
    toy.variant("b", {"extends": "a", "why": "x", "lr": 0.6})
    toy.variant("c", {"extends": "b", "why": "x", "lr": 0.7})
    toy.variant("d", {"extends": "c", "why": "x", "lr": 0.8})
    error = refused(toy, "cycle", "a -> c -> b -> a")
    assert error.key == "extends"


def test_itself_as_parent(toy):
    toy.variant("a", {"extends": "a", "why": "x", "lr": 0.5})
    refused(toy, "cycle", "a -> a")


@pytest.mark.parametrize("name", [".hidden", "-dash", "a..b", "a b", "a;b", "<script>", "ü", "a\nb", "$(x)"])
def test_names_that_make_bad_folders_are_refused(toy, name):
    toy.variant(name, {"extends": "base", "why": "x", "lr": 0.5})
    refused(toy, "variant name")


def test_safe_names():
    assert all(map(is_safe_name, ["v8", "v8.1", "v8-earlystop", "a_b", "_x", "8"]))
    assert not any(map(is_safe_name, ["", ".", "..", "a/b", "a\\b", "a..b", "x" * 101]))


def test_other_files(toy):
    (toy.folder / "notes.md").write_text("nothing")
    load(toy)
    (toy.folder / "v9.yml").write_text("why: x\n")
    refused(toy, "v9.yml", "rename it to .yaml")


def test_the_pool_of_the_invocation_counts(toy):
    toy.variant("big", {"extends": "base", "why": "x", "gpu": 4, "lr": 0.5})
    refused(toy, "pool of 3", gpu_pool=3)
    assert load(toy, 4).variants["big"].gpu == 4
    refused(toy, "stages.train.resources.gpu", "pool of 0", gpu_pool=0)


STUDY_REFUSALS = {
    "unknown key": ({"colums": 1}, "colums", "config"),
    "config missing": ({"config": "tests.tracker.toy_study:Nothing"}, "cannot be imported"),
    "config not strict": ({"config": "pydantic:BaseModel"}, "strict"),
    "reads": ({"stages": {"train": {**STUDY["stages"]["train"], "inputs": {}, "reads": ["lrr"]}}}, "lrr", "'lr'"),
    "input": (
        {"stages": {"train": {**STUDY["stages"]["train"], "inputs": {"x": "prepar"}}}},
        "prepar",
        "earlier stage",
    ),
    "factor": ({"factors": {"x": ["reward.king"]}}, "reward.king", "'reward.kind'"),
    "exclusion": ({"exclusions": [{"if": {"bol": 1}, "forbid": {"lr": 1}, "because": "x"}]}, "bol", "'bold'"),
    "base": ({"base": {"size": 0}}, "base.size = 0"),
    "base unknown": ({"base": {"sise": 1}}, "base.sise", "'size'"),
    "margin": ({"analysis": {**STUDY["analysis"], "margin": 0}}, "analysis.margin = 0"),
    "direction": ({"analysis": {**STUDY["analysis"], "direction": "up"}}, "analysis.direction"),
    "edges": (
        {"analysis": {**STUDY["analysis"], "edges": [["v2", "base"], ["v10", "v20"]]}},
        "analysis.edges = 'v20': there is no such variant",
    ),
    "health stage": ({"health": [{**STUDY["health"][0], "stage": "trein"}]}, "trein"),
    "health key": ({"health": [{**STUDY["health"][0], "level": 1}]}, "health.0.level = 1"),
    "published column": ({"table": {"columns": [{"metric": "a", "label": "a", "published": "x"}]}}, "known: accuracy"),
    "published path": ({"published": "../../secret"}, "not a file name"),
    "missing": ({"title": None}, "title"),
}


@pytest.mark.parametrize("name", STUDY_REFUSALS)
def test_study_file_is_checked(toy, name):
    changes, *parts = STUDY_REFUSALS[name]
    path = toy.study(**changes)
    refused(toy, str(path), *parts)


def test_published_numbers_are_checked_for_form(toy):
    toy.yaml("published/toy.yaml", PUBLISHED | {"rows": {"v22": [0.5], "base": [0.1], "v2": [0.1]}})
    refused(toy, "rows.v22", "did you mean 'v2'")
    toy.yaml("published/toy.yaml", PUBLISHED | {"rows": {"v2": [0.5, 0.6], "base": [0.1]}})
    refused(toy, "2 numbers for 1 columns")
    toy.yaml("published/toy.yaml", PUBLISHED | {"metric": "ss_distance"})
    refused(toy, "ss_distance", "needs the `target` from which it is the distance")
    toy.yaml("published/toy.yaml", {"source": "x"})
    refused(toy, "give `rows`, `deltas` or `training`")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"variant": "v22"}, ("training = 'v22'", "did you mean 'v2'")),
        ({"stage": "trein"}, ("training = 'trein'", "did you mean 'train'")),
        ({"kind": "wished"}, ("training.0.kind",)),
        ({"values": {"a": [2, 1]}}, ("a: low 2 is above high 1",)),
        ({"values": {"a": [None, None]}}, ("a: a range needs a bound",)),
        ({"values": {}}, ("training.0.values",)),
    ],
)
def test_published_training_figures_are_checked_for_form(toy, changes, parts):
    reading = {"variant": "v2", "stage": "train", "kind": "seen", "values": {"a": 1, "b": [0, None]}, "text": "x"}
    toy.yaml("published/toy.yaml", {"source": "x", "training": [reading]})
    toy.study(table={"columns": [{"metric": "a", "label": "a"}]})
    [study] = load_studies(load_settings({"studies": "toy"}, configs=toy.configs)).values()
    assert study.published.training[0].values == {"a": Printed.of(1), "b": (Printed.of(0), None)}
    toy.yaml("published/toy.yaml", {"source": "x", "training": [reading | changes]})
    refused(toy, *parts)


def test_reserved_study_name(toy):
    (toy.configs / "studies" / "assets").mkdir()
    for file in toy.folder.iterdir():
        (toy.configs / "studies" / "assets" / file.name).write_bytes(file.read_bytes())
    with pytest.raises(ConfigError, match="assets"):
        load_studies(load_settings({"studies": "assets"}, configs=toy.configs))


# Scales


def scale(toy, **study):
    toy.yaml("scales/small.yaml", {"seeds": 1, "studies": {"toy": study}})


def test_scale_sets_and_multiplies_but_declared_stays(toy):
    scale(toy, set={"bold": True, "size": 50}, multiply={"lr": 10, "reward.weight": 0.5, "patience": 3})
    toy.variant("v10", {**VARIANTS["v10"], "reward": {"weight": 0.25}})
    study = load(toy, scale="small")
    v2, v10 = study.variants["v2"], study.variants["v10"]
    assert (v2.resolved.size, v2.resolved.bold, v2.resolved.lr, v2.resolved.reward.weight) == (50, True, 0.01, 0.25)
    assert v10.resolved.lr / v2.resolved.lr == pytest.approx(10)
    assert v2.resolved.patience is None
    assert v2.declared["size"] == 100
    assert [c.new for c in v10.changes if c.key == "lr"] == [0.01]
    assert [c.new for c in diff(study, "v2", "v10", scaled=True) if c.key == "lr"] == [0.1]


@pytest.mark.parametrize("key", [{"reward": {"weight": 0.9}}, {"lr": 0.5}, {"reward": {"levels": []}}])
def test_scale_must_not_set_what_a_variant_changes(toy, key):
    scale(toy, set=key)
    leaf = next(dotted.leaves(key))[0]
    error = refused(toy, "small.yaml", f"studies.toy.set.{leaf}", "changes", scale="small")
    assert error.file == toy.configs / "scales/small.yaml"


def test_scale_keys_are_checked(toy):
    for study, parts in [
        ({"set": {"siz": 1}}, ["studies.toy.set.siz", "'size'"]),
        ({"multiply": {"siz": 1}}, ["siz", "'size'"]),
        ({"multiply": {"bold": 2}}, ["multiply numbers only"]),
        ({"multiply": {"lr": 0}}, ["lr"]),
        ({"multiply": {"lr": 1e9}, "set": {"size": 5}}, []),
        ({"multiply": {"size": 2}, "set": {"size": 5}}, ["also sets it"]),
        ({"resources": {"trian": {"gpu": 1}}}, ["resources.trian", "'train'"]),
        ({"resources": {"train": {"gpu": 9}}}, ["small.yaml", "pool of 2"]),
        ({"resources": {"train": {"gpu_share": 0.3}}}, ["resources.train.gpu_share", "multiple of 0.25"]),
        ({"resources": {"train": {"gpu_share": 0}}}, ["resources.train.gpu_share", "greater than 0"]),
        ({"resources": {"train": {"gpu_share": 2}}}, ["resources.train.gpu_share", "less than or equal to 1"]),
        ({"resources": {"train": {"gpu_share": 0.5, "gpu": 2}}}, ["resources.train.gpu_share", "gpu is 2", "gpu: 1"]),
        ({"resources": {"prepare": {"gpu_share": 0.5}}}, ["resources.prepare.gpu_share", "gpu is 0", "gpu: 1"]),
        ({"set": {"size": 0}}, ["small.yaml", "size = 0"]),
        ({"add": {"size": 0}}, ["add"]),
    ]:
        scale(toy, **study)
        if parts:
            refused(toy, *parts, scale="small")
        else:
            load(toy, scale="small")
    toy.yaml("scales/small.yaml", {"seeds": 1, "studies": {"toi": {}}})
    refused(toy, "studies.toi", "'toy'", scale="small")


def test_a_part_of_a_device(toy):
    scale(toy, resources={"train": {"gpu_share": 0.25}})
    resources = load(toy, scale="small").stages["train"].resources
    assert (resources.gpu, resources.gpu_share, resources.gpu_quarters) == (1, 0.25, 1)
    assert resources.with_gpu(2).gpu_quarters == 8  # a variant that asks for more devices gets whole ones


def test_a_part_of_several_devices_is_refused(toy):
    stages = {**STUDY["stages"], "train": {**STUDY["stages"]["train"], "resources": {"gpu": 2, "gpu_share": 0.5}}}
    toy.study(stages=stages)
    refused(toy, "_study.yaml", "stages.train.resources", "gpu must be 1, not 2")


def test_scale_resources(toy):
    scale(toy, resources={"train": {"threads": 3}})
    resources = load(toy, scale="small").stages["train"].resources
    assert (resources.threads, resources.gpu) == (3, 1)


def test_exclusion_applies_at_scale_too(toy):
    scale(toy, set={"bold": True})
    refused(toy, "v10.yaml", "b is never bold", scale="small")


# Settings without effect


@pytest.fixture
def idle_levels(monkeypatch):
    """Levels belong to kind b."""

    def without_effect(self):
        return {} if self.reward.kind == "b" else {"reward.levels": "kind a has no levels"}

    monkeypatch.setattr(ToyConfig, "without_effect", without_effect, raising=False)


def test_a_change_without_effect_is_refused_with_its_reason(toy, idle_levels):
    toy.variant("v3", {"extends": "v2", "why": "idle", "reward": {"levels": [0.5]}})
    refused(toy, "v3.yaml", "reward.levels = [0.5]", "has no effect: kind a has no levels", "remove the line")


def test_a_value_without_effect_may_be_inherited_or_come_from_the_base(toy, idle_levels):
    toy.study(base={"reward": {"levels": [0.5]}})
    toy.variant("v3", {"extends": "v2", "why": "levels", "reward": {"kind": "b", "levels": [0.3]}})
    toy.variant("child", {"extends": "v3", "why": "back", "reward": {"kind": "a"}})
    assert load(toy).variants["child"].resolved.reward.levels == [0.3]


@pytest.mark.parametrize(
    ("value", "factor", "product"),
    [(100, 0.04, 4), (100, 0.07, 7), (5, 0.2, 1), (5, 0.01, 1), (3, 0.5, 2), (1e-7, 10.0, 1e-6), (0.1, 3.0, 0.3)],
)
def test_multiply_is_decimal_and_rounds_integers_up(value, factor, product):
    result = multiply(value, factor)
    assert result == product
    assert type(result) is type(value)


@given(st.integers(1, 10**6), st.floats(1e-6, 1e3))
def test_multiplied_integers_stay_positive_and_near(value, factor):
    result = multiply(value, factor)
    assert result >= 1
    assert result == 1 or math.isclose(result, value * factor, abs_tol=1.001)


# Merge: properties

TREES = st.recursive(
    st.integers() | st.lists(st.integers(), max_size=2),
    lambda inner: st.dictionaries(st.sampled_from("abc"), inner, max_size=3),
    max_leaves=8,
)
MAPS = st.dictionaries(st.sampled_from("abc"), TREES, max_size=3)


@given(MAPS, MAPS)
def test_merge_laws(base, over):
    kept = json.dumps([base, over])
    merged = dotted.merge(base, over)
    assert json.dumps([base, over]) == kept
    assert dotted.merge(base, {}) == base
    assert dotted.merge(merged, over) == merged
    for key, value in dotted.leaves(over):
        if value != {}:
            assert dotted.get(merged, key) == value
    for key, value in dotted.leaves(base):
        if not any(dotted.covers(key, other) or dotted.covers(other, key) for other, _ in dotted.leaves(over)):
            assert dotted.get(merged, key) == value


# Settings


def settings(toy, **overrides):
    return load_settings(overrides, configs=toy.configs)


@pytest.mark.parametrize(
    ("value", "seeds"),
    [("3", (0, 1, 2)), (3, (0, 1, 2)), ("4,7", (4, 7)), ("5,", (5,)), ([1, 9], (1, 9)), (None, (0, 1)), ("", (0, 1))],
)
def test_seeds(toy, value, seeds):
    assert settings(toy, seeds=value).seeds == seeds


def test_without_a_list_every_folder_is_a_study(toy):
    toy.yaml("config.yaml", {"scale": "full", "studies": None})
    assert settings(toy).studies == ("toy",)
    toy.yaml("studies/another/_study.yaml", {})
    assert settings(toy).studies == ("another", "toy")
    assert settings(toy, studies="toy").studies == ("toy",)


def test_scale_may_list_its_seeds(toy):
    toy.yaml("scales/small.yaml", {"seeds": [3, 5]})
    assert settings(toy, scale="small").seeds == (3, 5)


def test_a_study_may_have_seeds_of_its_own_unless_the_settings_name_some(toy):
    toy.yaml("studies/another/_study.yaml", {})
    toy.yaml("scales/small.yaml", {"seeds": 2, "studies": {"toy": {"seeds": 4}, "another": {"seeds": [7]}}})
    found = settings(toy, scale="small", studies="toy,another")
    assert (found.seeds_of("toy"), found.seeds_of("another"), found.seeds) == ((0, 1, 2, 3), (7,), (0, 1))
    named = settings(toy, scale="small", studies="toy,another", seeds=3)
    assert named.seeds_of("toy") == named.seeds_of("another") == (0, 1, 2)
    assert settings(toy, scale="small", study="toy", seed=3).seed == 3
    with pytest.raises(ConfigError, match=r"choose from 0, 1, 2, 3$"):
        settings(toy, scale="small", study="toy", seed=7)


@pytest.mark.parametrize(("seeds", "text"), [(0, "sensible"), ([], "empty"), ([1, 1], "twice"), ("x", "whole number")])
def test_a_bad_number_of_seeds_of_a_study_is_told_with_its_key(toy, seeds, text):
    toy.yaml("scales/small.yaml", {"seeds": 2, "studies": {"toy": {"seeds": seeds}}})
    with pytest.raises(ConfigError, match=text) as caught:
        settings(toy, scale="small")
    assert "small.yaml" in str(caught.value)
    assert "studies.toy.seeds" in str(caught.value)


@pytest.mark.parametrize(
    ("overrides", "text"),
    [
        ({"sclae": "full"}, "did you mean 'scale'"),
        ({"scale": "ful"}, "did you mean 'full'"),
        ({"studies": "toi"}, "did you mean 'toy'"),
        ({"studies": "toy,toy"}, "twice"),
        ({"studies": 3}, "list of names"),
        ({"study": "toi"}, "did you mean 'toy'"),
        ({"seeds": "0"}, "sensible"),
        ({"seeds": "x"}, "whole number"),
        ({"seeds": "1,1"}, "twice"),
        ({"seeds": -1}, "whole number"),
        ({"seeds": True}, "whole number"),
        ({"seed": 9}, "not among the seeds"),
        ({"retry": "all"}, "`failed`"),
        ({"gpus": "many"}, "whole number"),
    ],
)
def test_settings_refuse(toy, overrides, text):
    with pytest.raises(ConfigError, match=text) as caught:
        settings(toy, **overrides)
    assert "--config" in str(caught.value)


def test_settings_types(toy):
    found = settings(toy, seed="1", variant=8, gpus="4", retry="failed", study="toy")
    assert (found.seed, found.variants, found.gpus, found.retry, found.study) == (1, ("8",), 4, "failed", "toy")


def test_another_kind_of_a_tagged_union_leaves_nothing_of_the_old_one():
    from tracker.config.dotted import merge_into
    from trainers.demonstrations.config import DemonstrationsConfig

    base = {"task": {"name": "concepts", "words": 8, "seed": 1}, "grpo": {"lr": 0.1, "clip": 0.2}, "shots": 4}
    other = merge_into(DemonstrationsConfig, base, {"task": {"name": "text", "candidates": 16}, "grpo": {"lr": 0.2}})
    assert other["task"] == {"name": "text", "candidates": 16}
    assert other["grpo"] == {"lr": 0.2, "clip": 0.2}
    same = merge_into(DemonstrationsConfig, base, {"task": {"name": "concepts", "words": 4}})
    assert same["task"] == {"name": "concepts", "words": 4, "seed": 1}
    assert base["task"] == {"name": "concepts", "words": 8, "seed": 1}

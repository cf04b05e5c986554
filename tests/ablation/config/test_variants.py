from pathlib import Path

import pytest

from ablation.cli.configs import describe
from ablation.config.printed import Printed
from ablation.config.settings import load_settings
from ablation.config.study import diff
from ablation.config.variants import load_studies
from ablation.contract.errors import ConfigError, explained
from ablation.plan.build import build_plan
from tests.ablation.config.loading import load, refused
from tests.ablation.toy_study import PUBLISHED, STUDY, ToyConfig


def test_inheritance_merges_maps_and_replaces_lists(toy):
    study = load(toy)
    assert list(study.variants) == ["base", "v2", "v3", "v10"]  # parents first, siblings in natural order
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


def test_studies_may_share_a_file_of_stages(toy):
    own = load(toy).stages
    toy.study(stages="shared")
    refused(toy, "shared.yaml: the file does not exist")
    toy.yaml("studies/shared.yaml", STUDY["stages"])
    assert load(toy).stages == own
    toy.study(stages="../shared")
    refused(toy, "stages = '../shared': is not a valid file name")


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


def child(**values):
    return {"extends": "base", "why": "x", **values}


REFUSALS = {
    "unknown key": (child(rewrd={"kind": "b"}), "rewrd", "did you mean 'reward'"),
    "key at the wrong level": (child(weight=0.5), "weight = 0.5", "did you mean 'reward.weight'"),
    "unknown parent": (child(extends="bas"), "extends = 'bas'", "did you mean 'base'"),
    "two parents": (child(extends=["base", "v2"]), "extends", "one variant"),
    "missing why": ({"extends": "base", "lr": 0.5}, "why", "add a sentence"),
    "same as the default": (child(size=100), "size = 100", "already has this value"),
    "same in other type": (child(extends="v2", lr=0.001, bold=True), "lr = 0.001"),
    "same in a root": ({"why": "x", "size": 100}, "the base configuration already has this"),
    "number for bool": (child(bold=1), "bold = 1", "boolean"),
    "out of range": (child(reward={"weight": 2}), "reward.weight = 2", "Share of the reward"),
    "not an option": (child(reward={"kind": "c"}), "reward.kind = 'c'"),
    "exclusion": (child(extends="v10", bold=True), "reward.kind = 'b'", "b is never bold"),
    "gpu zero": (child(gpu=0, lr=0.5), "gpu = 0"),
    "inside an asset": (child(data={"sources": [{"source": "hub", "repo": "a", "branch": "b"}]}), "data.sources.0.br"),
    "unknown source": (child(data={"sources": [{"source": "ftp"}]}), "data.sources.0", "ftp"),
}


@pytest.mark.parametrize("name", REFUSALS)
def test_refused_in_one_line_with_file_key_and_value(toy, name):
    content, *parts = REFUSALS[name]
    path = toy.variant("bad", content)
    refused(toy, str(path), *parts)


def test_a_hostile_name_is_refused(toy):
    refused(toy, str(toy.variant("'; touch owned; '", child(lr=0.5))), "is not a valid variant name")


def test_cycle_names_its_members(toy):
    toy.variant("a", {"extends": "c", "why": "x", "lr": 0.5})
    toy.variant("b", {"extends": "a", "why": "x", "lr": 0.6})
    toy.variant("c", {"extends": "b", "why": "x", "lr": 0.7})
    toy.variant("d", {"extends": "c", "why": "x", "lr": 0.8})
    error = refused(toy, "cycle", "a -> c -> b -> a")
    assert error.key == "extends"


def test_all_mistakes_are_told_at_once(toy):
    toy.variant("v2", {"extends": "base", "why": "x", "size": 0, "lr": -1.0})
    toy.variant("child", {"extends": "v2", "why": "x", "bold": True})  # not a mistake of its own
    toy.variant("v3", {"extends": "base", "why": "x", "reward": {"weight": 2}})
    error = refused(toy, "v2.yaml: size = 0")
    others = [(Path(other.file).name, other.key) for other in error.others]
    assert others == [("v2.yaml", "lr"), ("v3.yaml", "reward.weight")]
    toy.study(titel="x", analysis={"value": "correct", "direction": "up", "alfa": 1}, factors={"x": ["y"]})
    error = refused(toy, "analysis.alfa = 1")
    assert [other.key for other in error.others] == ["titel", "analysis.direction", "analysis.margin"]
    lines = explained(error).split("\nerror: ")
    assert "analysis.margin: is missing; expected: The smallest difference that matters" in lines[3]


def test_what_a_study_file_may_leave_out(toy):
    analysis = {"value": "correct", "direction": "max", "margin": 0.02}
    toy.study(source=None, analysis=analysis, table={"columns": [{"metric": "test/all/correct"}]}, published=None)
    written = load(toy).written
    assert (written.source, written.analysis.protocol, written.analysis.subsets) == (None, "test", ["all"])
    assert written.table.columns[0].label == "test/all/correct"


def train(**changes):
    return {"train": {**STUDY["stages"]["train"], **changes}}


def analysis(**changes):
    return {"analysis": {**STUDY["analysis"], **changes}}


WITHOUT_INPUTS = {name: STUDY["stages"][name] | {"inputs": {}} for name in ("prepare", "train")}
ALONE = {"entry": "trainers.toy.evaluate", "inputs": {"data": "asset:data"}, "seeded": True}
STUDY_REFUSALS = {
    "unknown key": ({"colums": 1}, "colums", "config"),
    "config missing": ({"config": "tests.ablation.toy_study:Nothing"}, "cannot be imported"),
    "config not strict": ({"config": "pydantic:BaseModel"}, "strict"),
    "reads": ({"stages": train(inputs={}, reads=["lrr"])}, "lrr", "'lr'"),
    "input": ({"stages": train(inputs={"x": "prepar"})}, "prepar", "earlier stage"),
    "factor": ({"factors": {"x": ["reward.king"]}}, "reward.king", "'reward.kind'"),
    "exclusion": ({"exclusions": [{"if": {"bol": 1}, "forbid": {"lr": 1}, "because": "x"}]}, "bol", "'bold'"),
    "base": ({"base": {"size": 0}}, "base.size = 0"),
    "margin": (analysis(margin=0), "analysis.margin = 0"),
    "direction": (analysis(direction="up"), "analysis.direction"),
    "comparisons": (
        analysis(comparisons=[["v2", "base"], ["v10", "v20"]]),
        "analysis.comparisons = 'v20': the variant",
    ),
    "too many samples": (
        analysis(direction="max", pass_at=101, samples=["size"]),
        "'pass@101': needs 101 samples, but",
    ),
    "samples that are no number": (analysis(samples=["sise"]), "a configuration key does not hold a whole number in b"),
    "an interim analysis at two seeds": (analysis(interim_analyses=[2, 4]), "analysis.interim_analyses"),
    "interim analyses that fall": (analysis(interim_analyses=[5, 3]), "must be increasing numbers, not [5, 3]"),
    "health stage": ({"health": [{**STUDY["health"][0], "stage": "trein"}]}, "trein"),
    "health key": ({"health": [{**STUDY["health"][0], "level": 1}]}, "health.0.level = 1"),
    "published column": ({"table": {"columns": [{"metric": "a", "label": "a", "published": "x"}]}}, "from accuracy"),
    "a forgotten key": (
        {"stages": STUDY["stages"] | train(reads=["lr", "bold", "patience"])},
        "config = 'tests.ablation.toy_study:ToyConfig': no stage reads reward.kind",
        "add the key to the `reads` of a stage",
    ),
    "a way beside the results": (
        {"stages": WITHOUT_INPUTS | {"evaluate": ALONE}},
        "no stage that leads to the results reads this key",
        "or add train, which reads the key, to the `inputs` of such a stage",
    ),
    "published path": ({"published": "../../secret"}, "not a valid file name"),
    "missing": ({"title": None}, "title"),
}


@pytest.mark.parametrize("name", STUDY_REFUSALS)
def test_study_file_is_checked(toy, name):
    changes, *parts = STUDY_REFUSALS[name]
    path = toy.study(**changes)
    refused(toy, str(path.parent / "v2.yaml" if "beside" in name else path), *parts)


def test_published_numbers_are_checked_for_form(toy):
    toy.yaml("published/toy.yaml", PUBLISHED | {"rows": {"v22": [0.5], "base": [0.1], "v2": [0.1]}})
    refused(toy, "rows.v22", "did you mean 'v2'")
    toy.yaml("published/toy.yaml", PUBLISHED | {"rows": {"v2": [0.5, 0.6], "base": [0.1]}})
    refused(toy, "2 numbers for 1 column")
    toy.yaml("published/toy.yaml", PUBLISHED | {"metric": "ss_distance"})
    refused(toy, "ss_distance", "is a distance, so it needs a `target`")
    toy.yaml("published/toy.yaml", {"source": "x"})
    refused(toy, "give `rows`, `deltas` or `training`")


@pytest.mark.parametrize(
    ("changes", "parts"),
    [
        ({"variant": "v22"}, ("training = 'v22'", "did you mean 'v2'")),
        ({"stage": "trein"}, ("training = 'trein'", "did you mean 'train'")),
        ({"kind": "wished"}, ("training.0.kind",)),
        ({"values": {"a": [2, 1]}}, ("the low end 2 of a is above the high end 1",)),
        ({"values": {"a": [None, None]}}, ("the range of a has no bound",)),
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


def test_a_change_without_effect_is_refused_with_its_reason(toy, monkeypatch):
    def without_effect(self):
        return {} if self.reward.kind == "b" else {"reward.levels": "kind a has no levels"}

    monkeypatch.setattr(ToyConfig, "without_effect", without_effect, raising=False)
    toy.variant("v3", {"extends": "v2", "why": "idle", "reward": {"levels": [0.5]}})
    refused(toy, "v3.yaml", "reward.levels = [0.5]", "has no effect because kind a has no levels", "remove the line")

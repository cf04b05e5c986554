"""plan.json is written from classes and read into them, and a study's definition reaches every reader by itself."""

import pytest

from ablation.config.settings import load_settings
from ablation.config.study_schema import StudyDefinition
from ablation.contract.errors import ConfigError
from ablation.plan.build import build_plan
from ablation.plan.plan_file import read_plan
from ablation.store.collect import collect
from ablation.store.database import Store
from tests.ablation.toy_study import STUDY
from tests.simulate import editing, simulate


def planned(toy, **changes):
    toy.study(**changes)
    return build_plan(load_settings({"results": toy.root / "results"}, configs=toy.configs), root=toy.root)


def test_what_is_read_is_what_was_planned(toy):
    plan = planned(toy)
    plan.write()
    assert read_plan(plan.file) == plan.content
    assert read_plan(plan.file).text() == plan.file.read_text() == plan.text


# Another value of every key; a key that is added to the definition fails here until it has one.
OTHER = {
    "title": "Another",
    "question": "Why?",
    "source": "somebody",
    "table": STUDY["table"] | {"reference": {"label": "unchanged", "replace": {"test": "before"}}},
    "curves": [{"metric": "train/other", "label": "other"}],
    "figures": [{"name": "f", "kind": "bars", "title": "F", "panels": [{"metric": "train/loss", "label": "l"}]}],
    "analysis": STUDY["analysis"] | {"direction": {"target": 0.5}, "interim_analyses": [3, 4]},
    "health": [STUDY["health"][0] | {"severity": "warn", "window": 3}],
    "trained_model": "model",
}  # fmt: skip


@pytest.mark.parametrize("key", StudyDefinition.model_fields)
def test_a_key_of_the_definition_reaches_plan_and_database_without_being_named_there(toy, key):
    plan = planned(toy, **{key: OTHER[key]}, published=None)
    value = getattr(plan.studies["toy"].written, key)
    assert value != getattr(planned(toy, published=None).studies["toy"].written, key)
    plan.write()
    [study] = read_plan(plan.file).studies
    assert getattr(study, key) == value
    collect(plan.settings.results)
    with Store(plan.settings.results / "tracker.duckdb") as store:
        assert getattr(store.study("toy"), key) == value


def test_a_key_that_is_not_known_is_one_line(tmp_path):
    file = simulate(tmp_path / "results")
    with editing(file) as content:
        content["studies"][0]["analysis"]["margins"] = 1
    with pytest.raises(ConfigError, match=r"plan\.json: studies\.0\.analysis\.margins: is not a plan .*; delete it"):
        read_plan(file)

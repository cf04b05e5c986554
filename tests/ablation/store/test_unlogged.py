"""A misspelt name is told once the grid has run, and nothing is said before that."""

import pytest

from ablation.show.tables import build_table
from ablation.store.collect import collect
from ablation.store.database import Store
from ablation.store.unlogged import find_unlogged
from tests.simulate import Study, editing, simulate

FIGURE = {
    "name": "f",
    "title": "t",
    "kind": "lines",
    "x": {"metric": "unknown", "label": "x"},
    "panels": [{"metric": "unseen", "label": "y"}],
}
NEVER = "health rule level never applies, because the stage train has never logged "
RULE = {"stage": "train", "severity": "warn", "range": {"max": 1e9}, "diagnosis": "d", "remedy": "r"}


def found(results, states=(), **changes):
    path = simulate(results, [Study(items={"gender": 4, "race": 4}, states=dict(states), steps=3, metrics=1)])
    with editing(path) as plan:
        study = plan["studies"][0]
        study["analysis"] |= changes.pop("analysis", {})
        plan["studies"][0] = study | changes
    with Store(collect(results).database) as store:
        unlogged = find_unlogged(store, "toy")
        assert set(unlogged) <= set(build_table(store, "toy").notes)  # so they are on the page, too
        return unlogged


def rule(**changes):
    return RULE | {"id": "level"} | changes


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, []),
        ({"health": [rule(metric="train/m00"), rule(metric="train/*"), rule(metric="train/m0[0-3]")]}, []),
        ({"health": [rule(metric="train/m0")]}, [f"{NEVER}train/m0; did you mean train/m00?"]),
        ({"health": [rule(metric="train/m00", measure="ratio", reference="none/such")]}, [f"{NEVER}none/such"]),
        (  # a reference is a name, no pattern
            {"health": [rule(metric="train/m00", measure="ratio", reference="train/*")]},
            [f"{NEVER}train/*; did you mean train/m00?"],
        ),
        (
            {"curves": [{"metric": "train/M00", "label": "x"}]},
            ["curves: no stage has logged train/M00; did you mean train/m00?"],
        ),
        ({"figures": [FIGURE]}, ["figure f: no stage has logged unseen", "figure f: no stage has logged unknown"]),
        (
            {"analysis": {"subsets": ["gendr", "race"]}},
            ["analysis.subsets: no item belongs to the subset gendr; did you mean gender?"],
        ),
        (
            {"analysis": {"subsets": ["all"]}},
            ["analysis.subsets: no item belongs to the subset all; choose from gender, race"],
        ),
        (
            {"analysis": {"value": "hits"}},
            ["analysis.value: no item of the protocol edited has a value called hits; did you mean hit?"],
        ),
        (
            {"analysis": {"protocol": "editd"}},
            ["analysis.protocol: no item was saved under the protocol editd; did you mean edited?"],
        ),
    ],
)
def test_a_name_that_nothing_has_logged_is_told(tmp_path, changes, told):
    said = found(tmp_path / "results", **changes)
    assert said == told


@pytest.mark.parametrize("state", ["missing", "failed", "diverged"])
def test_while_a_stage_could_still_log_it_nothing_is_said(tmp_path, state):
    changes = {"health": [rule(metric="train/m0")], "analysis": {"subsets": ["gendr"]}}
    changes["curves"] = [{"metric": "train/M00", "label": "x"}]
    assert found(tmp_path / "results", {("v1", 0): state}, **changes) == []

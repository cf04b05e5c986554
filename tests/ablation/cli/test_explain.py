"""`ablation explain`: the variants between two others, their files, and what is refused."""

import json

import pytest
import yaml

from ablation.plan import build
from tests.ablation import typed
from tests.ablation.config.loading import load, refused
from tests.ablation.toy_study import Toy


@pytest.fixture
def toy(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    whole = build.build_plan

    def of_toy(*words, **more):
        return whole(*words, root=tmp_path, **more)

    monkeypatch.setattr("ablation.cli.explain.build_plan", of_toy)
    toy = Toy(tmp_path)
    toy.study(exclusions=[], factors={})
    toy.variant("far", {"extends": "v2", "why": "much", "lr": 0.01, "patience": 3, "reward": {"weight": 0.2}})
    return toy


def explained(capsys, *words):
    return json.loads(typed.output(capsys, "explain", *words, "--json"))


def test_all_combinations_are_written_and_lead_to_no_comparison(toy, capsys):
    out = typed.output(capsys, "explain", "v2", "far", "--dry-run")
    assert "8 variants (all combinations), of which 6 are new" in out
    assert "    reward.weight: 0.5 -> 0.2" in out
    assert "leave out --dry-run to write the new variants to" in out
    assert set(load(toy).variants) == {"base", "v2", "v3", "v10", "far"}
    found = explained(capsys, "v2", "far")
    assert found["written"] is True
    assert found["variants"]["v2.lr.patience"] == {"as_in_b": ["lr", "patience"], "new": True}
    study = load(toy)
    made = study.variants["v2.lr.patience"]
    assert made.parent is None
    assert [change.key for change in made.changes] == ["lr", "patience"]
    assert made.declared == study.variants["far"].declared | {"reward": study.variants["v2"].declared["reward"]}
    text = (toy.folder / "v2.lr.patience.yaml").read_text()
    assert yaml.safe_load(text) == {"between": ["v2", "far"], "why": "v2 with lr and patience of far", "lr": 0.01, "patience": 3}  # fmt: skip  # noqa: E501
    again = explained(capsys, "v2", "far")
    assert not any(variant["new"] for variant in again["variants"].values())
    assert again["jobs"] == found["jobs"]


def test_five_factors_need_sixteen_variants(toy, capsys):
    values = {"lr": 0.01, "patience": 3, "size": 50, "reward": {"weight": 0.2}, "bold": True}
    toy.variant("five", {"extends": "v2", "why": "much", **values})
    found = explained(capsys, "v2", "five")
    assert len(found["factors"]) == 5
    assert len(found["variants"]) == 16


def test_a_variant_that_exists_is_used(toy, capsys):
    toy.variant("faster", {"extends": "v2", "why": "a rate", "lr": 0.01})
    found = explained(capsys, "v2", "far")
    assert found["variants"]["faster"] == {"as_in_b": ["lr"], "new": False}
    assert "v2.lr" not in found["variants"]


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("v2", "v2"), "the variants are equal"),
        (("v2", "v3"), "differ only in the factor reward.levels; run `ablation diff toy/v2 v3`"),
        (("v2", "near"), "near: the variant does not exist"),
        (("toy/v2", "other/far"), "are different studies"),
    ],
)
def test_refusals_are_one_line_and_write_nothing(toy, capsys, words, problem):
    before = sorted(toy.folder.iterdir())
    assert problem in typed.refused(capsys, "explain", *words)
    assert sorted(toy.folder.iterdir()) == before


def test_a_combination_that_cannot_be_is_refused_by_name(toy, capsys):
    without_end = {"if": {"lr": 0.03}, "forbid": {"patience": None}, "because": "it would not end"}
    toy.study(exclusions=[without_end], factors={})
    toy.variant("far", {"extends": "v2", "why": "much", "lr": 0.03, "patience": 3, "reward": {"weight": 0.2}})
    error = typed.refused(capsys, "explain", "v2", "far")
    said = "v2 with lr of far is not a valid configuration: patience cannot be combined with lr = 0.03 (it would not"
    assert said in error
    assert "declare the keys that must change together as one group" in error
    assert not list(toy.folder.glob("v2.*.yaml"))


@pytest.mark.parametrize("between", ["v2", ["v2"], ["v2", 3], ["v2", "far", "base"]])
def test_between_names_two_variants(toy, between):
    toy.variant("mid", {"between": between, "why": "half", "lr": 0.01})
    refused(toy, "mid.yaml: between", "does not name two variants")

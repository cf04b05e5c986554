"""How a scale sizes a study: what it sets, multiplies and gives its stages."""

import pytest

from ablation.config import dotted
from ablation.config.scale import multiply
from ablation.config.study import diff
from tests.ablation.config.loading import load, refused
from tests.ablation.toy_study import VARIANTS


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
        ({"multiply": {"bold": 2}}, ["multiply only keys that hold numbers"]),
        ({"multiply": {"lr": 0}}, ["lr"]),
        ({"multiply": {"lr": 1e9}, "set": {"size": 5}}, []),
        ({"multiply": {"size": 2}, "set": {"size": 5}}, ["`set` also contains size"]),
        ({"resources": {"trian": {"gpu": 1}}}, ["resources.trian", "'train'"]),
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


def test_scale_resources(toy):
    scale(toy, resources={"train": {"threads": 3}})
    resources = load(toy, scale="small").stages["train"].resources
    assert (resources.threads, resources.gpu) == (3, 1)


@pytest.mark.parametrize(
    ("value", "factor", "product"),
    [(100, 0.04, 4), (100, 0.07, 7), (5, 0.2, 1), (5, 0.01, 1), (3, 0.5, 2), (1e-7, 10.0, 1e-6), (0.1, 3.0, 0.3)],
)
def test_multiply_is_decimal_and_rounds_integers_up(value, factor, product):
    result = multiply(value, factor)
    assert result == product
    assert type(result) is type(value)

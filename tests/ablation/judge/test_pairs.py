"""Any two variants: the numbers of an edge, without the family, whatever is reused between them."""

import itertools
import math
from dataclasses import replace

import pytest

from ablation.judge import measurements as pairing
from ablation.judge import statistics
from ablation.judge.edges import judge_all_pairs, judge_edges, judge_pair, measure
from tests.ablation.judge.studies import normal_study

NUMBERS = ("effect", "low", "high", "p", "seeds", "items")


def numbers(edge):
    return [getattr(edge, name) for name in NUMBERS]


def with_configs(study, configs, changes=()):
    """The same study, its variants with these configurations; changes: (key, factor) that the study knows."""
    known = [{"key": key, "from": 0, "to": 1, "factor": factor} for key, factor in changes]
    variants = []
    for variant in study.variants:
        content = variant.model_dump(by_alias=True) | {"resolved": configs[variant.name], "changes": known}
        variants.append(type(variant).model_validate(content))
    return replace(study, variants=variants)


@pytest.mark.parametrize("direction", ["max", "min", {"target": 0.6}])
def test_all_pairs_have_the_numbers_that_each_has_alone(direction):
    study = normal_study(variants=5, seeds=4, items=120, size=2, seed=3, direction=direction)
    pairs = judge_all_pairs(study)
    assert [(pair.edge.parent, pair.edge.child) for pair in pairs] == list(
        itertools.combinations([variant.name for variant in study.variants], 2)
    )
    for pair in pairs:
        assert numbers(pair.edge) == numbers(measure(study, pair.edge.child, pair.edge.parent))
        assert pair.edge.p_adjusted == pair.edge.p


def test_a_pair_is_the_edge_without_the_correction():
    study = normal_study(variants=6, seeds=5, seed=1)
    for edge in judge_edges(study):
        pair = judge_pair(study, edge.child, edge.parent).edge
        assert numbers(pair) == numbers(edge)
        assert pair.p_adjusted <= edge.p_adjusted
        assert "not corrected for other comparisons" in pair.why or pair.detail == "equivalent"


def test_turned_round_the_effect_has_the_other_sign():
    study = normal_study(variants=4, seeds=3, seed=2)
    one, other = judge_pair(study, "v3", "v1").edge, judge_pair(study, "v1", "v3").edge
    assert (other.effect, other.low, other.high) == pytest.approx((-one.effect, -one.high, -one.low))
    assert other.p == pytest.approx(one.p)


def test_what_differs_is_read_from_the_configurations_and_not_along_the_lineage():
    """v1 and v2 make the same change of v0 under two names; v2 makes one more, of a key below a factor."""
    study = normal_study(variants=3, seeds=3)
    configs = {"v0": {"lr": 1, "rcs": None}, "v1": {"lr": 2, "rcs": None}, "v2": {"lr": 2, "rcs": {"a": 1, "b": 2}}}
    study = with_configs(study, configs, [("rcs", "RCS"), ("lr", "rate")])
    found = {(pair.edge.parent, pair.edge.child): pair for pair in judge_all_pairs(study)}
    assert found["v1", "v2"].differing == {"RCS": [("rcs.a", None, 1), ("rcs.b", None, 2)]}
    assert not found["v1", "v2"].edge.confounded
    assert found["v0", "v2"].edge.factors == ("rate", "RCS")
    assert found["v0", "v2"].edge.confounded


def test_a_failed_run_makes_its_pairs_invalid_and_no_other():
    study = normal_study(variants=3, seeds=3)
    study = replace(study, states={**study.states, ("v2", 1): ("failed", "killed")})
    words = {(pair.edge.parent, pair.edge.child): pair.edge for pair in judge_all_pairs(study)}
    assert words["v0", "v2"].verdict == words["v1", "v2"].verdict == "invalid"
    assert "v2 seed 1 is failed (killed)" in words["v0", "v2"].why
    assert words["v0", "v1"].verdict != "invalid"
    assert math.isnan(words["v0", "v2"].p)


def test_what_costs_most_is_done_once_a_variant_and_not_once_a_pair(monkeypatch):
    """Draws about a target, checks of runs and the clusters of items: 6 variants make 15 pairs."""
    calls = dict.fromkeys(("draw_sums", "_fault", "item_clusters"), 0)

    def counted(module, name):
        inner = getattr(module, name)

        def call(*arguments):
            calls[name] += 1
            return inner(*arguments)

        monkeypatch.setattr(module, name, call)

    counted(statistics, "draw_sums")
    counted(pairing, "_fault")
    counted(pairing, "item_clusters")
    judge_all_pairs(normal_study(variants=6, seeds=4, direction={"target": 0.6}))
    assert calls == {"draw_sums": 6, "_fault": 24, "item_clusters": 1}

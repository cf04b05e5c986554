"""Merging of values under dotted keys."""

import json

from hypothesis import given
from hypothesis import strategies as st

from ablation.config import dotted
from ablation.config.dotted import merge_into
from trainers.demonstrations.config import DemonstrationsConfig

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


def test_another_kind_of_a_tagged_union_leaves_nothing_of_the_old_one():
    base = {"task": {"name": "concepts", "words": 8, "seed": 1}, "grpo": {"lr": 0.1, "clip": 0.2}, "shots": 4}
    other = merge_into(DemonstrationsConfig, base, {"task": {"name": "text", "candidates": 16}, "grpo": {"lr": 0.2}})
    assert other["task"] == {"name": "text", "candidates": 16}
    assert other["grpo"] == {"lr": 0.2, "clip": 0.2}
    same = merge_into(DemonstrationsConfig, base, {"task": {"name": "concepts", "words": 4}})
    assert same["task"] == {"name": "concepts", "words": 4, "seed": 1}
    assert base["task"] == {"name": "concepts", "words": 8, "seed": 1}


def test_a_key_covers_itself_and_what_lies_below():
    assert [dotted.covers("a.b", other) for other in ("a.b", "a.b.c", "a.bc", "a")] == [True, True, False, False]

"""The figures of every study: what is drawn with what, names as they stand, and equal bytes of equal data."""

import shutil
import xml.etree.ElementTree as ET

import pytest
from PIL import Image, ImageStat

from ablation.config.study import Change
from ablation.plan.plan_file import PlannedVariant
from ablation.show.figure_kinds import families
from ablation.show.figures import render_figures
from ablation.show.text import describe_change, describe_value, variant_tree
from ablation.store.collect import collect
from ablation.store.database import DATABASE
from tests.simulate import DEBIAS, Study, default_tree, simulate


def nodes_of(tree):
    same = {"why": "why", "file": "file", "resolved": {}, "changes": (), "factors": ()}
    return variant_tree([PlannedVariant(name=name, parent=parent, **same) for name, (parent, _) in tree.items()])


def rendered(tmp_path, *studies, into="reports"):
    simulate(tmp_path / "results", studies)
    collect(tmp_path / "results")
    return render_figures(tmp_path / "results" / DATABASE, tmp_path / into)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "none"),
        (True, "true"),
        (1.0, "1"),
        (1e-5, "1e-5"),
        (2.5e12, "2.5e12"),
        (0.1 + 0.2, "0.3"),
        ([0, 1.2, None], "[0, 1.2, none]"),
        ({"a": [True]}, "{a: [true]}"),
        ("word", "word"),
    ],
)
def test_values_read_as_in_yaml(value, text):
    assert describe_value(value) == text
    change = Change.model_validate({"key": "k", "from": value, "to": 2, "factor": "k"})
    assert describe_change(change) == f"k {text} -> 2"


@pytest.mark.parametrize("tree", [DEBIAS, *(default_tree(n) for n in (1, 2, 5, 20)), {"r": (None, {})}])
@pytest.mark.parametrize("most", [3, 7])
def test_every_variant_meets_its_parent_in_exactly_one_family(tree, most):
    groups = families(nodes_of(tree), most)
    assert all(len(group) <= most for group in groups)
    for name, (parent, _) in tree.items():
        meeting = [group for group in groups if name in group[1:]]
        if parent is None:
            assert meeting == []
            assert any(name == group[0] or len(tree) == 1 for group in groups)
        else:
            assert len(meeting) == 1
            assert parent in meeting[0][: meeting[0].index(name)]


def test_hostile_names_are_drawn_as_text(tmp_path):
    tree = {"<script>": (None, {}), "$\\frac{": ("<script>", {"a$b_": ("&lt;", "</svg>")}), "x\ny": ("$\\frac{", {})}
    for path in rendered(tmp_path, Study("a</title><script>", variant_tree=tree)):
        text = path.read_text()
        assert "<script" not in text
        assert text.count("</svg>") == 1
        assert ET.fromstring(text).tag.endswith("svg")


def test_figures_are_the_same_bytes_with_the_folders_gone(tmp_path):
    states, published = {("v5", seed): "failed" for seed in range(3)}, {"v1": {"mean": 0.1}}
    study = Study(variant_tree=DEBIAS, seeds=3, metrics=1, steps=10, states=states, published=published)
    paths = rendered(tmp_path, study, into="one")
    assert sorted(path.name for path in paths) == ["curves.svg", "forest.svg", "metric.svg", "variant-tree.svg"]
    assert all(len(list(ET.parse(path).iter())) > 100 for path in paths)  # none is blank
    first = [path.read_bytes() for path in paths]
    shutil.rmtree(tmp_path / "results" / "stages")
    (tmp_path / "results" / "plan.json").unlink()
    again = render_figures(tmp_path / "results" / DATABASE, tmp_path / "two")
    assert [path.read_bytes() for path in again] == first


def test_other_formats_are_drawn_when_they_are_asked_for(tmp_path):
    rendered(tmp_path, Study(variants=2, metrics=1))
    paths = render_figures(tmp_path / "results" / DATABASE, tmp_path / "reports", ["pdf", "png"])
    assert {path.suffix for path in paths} == {".pdf", ".png"}
    image = Image.open(next(path for path in paths if path.name == "metric.png")).convert("L")
    assert ImageStat.Stat(image).stddev[0] > 5

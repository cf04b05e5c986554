"""Figures: what is drawn with what, that names are drawn as they stand, and that equal data are equal bytes."""

import re
import shutil

import matplotlib as mpl
import pytest
from matplotlib.image import imread

from tests.simulate import DEBIAS, Study, default_lineage, simulate
from tracker.config.study import Change
from tracker.plan.plan_file import PlannedVariant
from tracker.show.figures.standard import families, primary_column, render_figures
from tracker.show.figures.style import STYLE
from tracker.show.lineage import Node, describe_change, describe_value, lineage
from tracker.show.tables import build_table
from tracker.store.collect import collect
from tracker.store.database import DATABASE, Store


def nodes_of(tree):
    variants = [
        PlannedVariant(
            name=name,
            parent=parent,
            why="why",
            file="file",
            resolved={},
            changes=(),
            factors=tuple({key.split(".")[0] for key in changes}),
        )
        for name, (parent, changes) in tree.items()
    ]
    return lineage(variants)


def rendered(tmp_path, *studies, into="reports"):
    simulate(tmp_path / "results", studies)
    collect(tmp_path / "results")
    return render_figures(tmp_path / "results" / DATABASE, tmp_path / into)


def test_lineage_puts_each_subtree_below_its_parent():
    tree = {"b": ("a", {}), "a": (None, {}), "c": ("a", {}), "d": ("b", {"x": 1, "y.z": 2}), "e": (None, {})}
    nodes = nodes_of(tree)
    assert [(node.name, node.depth) for node in nodes] == [("a", 0), ("b", 1), ("d", 2), ("c", 1), ("e", 0)]
    assert [node.name for node in nodes if node.confounded] == ["d"]


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
    assert (
        describe_change(Change.model_validate({"key": "k", "from": value, "to": 2, "factor": "k"})) == f"k {text} -> 2"
    )


@pytest.mark.parametrize("tree", [DEBIAS, *(default_lineage(n) for n in (1, 2, 5, 20)), {"r": (None, {})}])
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


def test_families_of_a_chain_a_fan_and_loners():
    assert families(nodes_of(DEBIAS)) == [
        ["baseline", "v1", "v2", "v3", "v4"],
        ["v4", "v5", "v6", "v7", "v8"],
        ["v8", "v8.1", "v9", "v10", "v8-earlystop"],
        ["v8-earlystop", "v8-earlystop-max"],
    ]
    assert families([Node("a", None, 0, (), ()), Node("b", None, 0, (), ())]) == [["a", "b"]]


def test_the_primary_metric_is_the_mean_under_the_analysed_protocol(tmp_path):
    simulate(tmp_path / "results")
    collect(tmp_path / "results")
    with Store(tmp_path / "results" / DATABASE) as store:
        table, analysis = build_table(store, "toy"), store.study("toy").analysis
    assert table.columns[primary_column(table, analysis)].metric == "edited/mean/distance"
    assert primary_column(table, analysis.model_copy(update={"protocol": "transfer"})) == 0


def test_all_figures_are_drawn_and_not_blank(tmp_path):
    study = Study(
        lineage=DEBIAS, steps=30, states={("v5", 0): "failed", ("v5", 1): "failed"}, published={"v1": {"mean": 0.1}}
    )
    paths = rendered(tmp_path, study)
    assert sorted(path.name for path in paths) == [
        f"{s}.{k}" for s in ("curves", "lineage", "metric") for k in ("png", "svg")
    ]
    for path in paths:
        if path.suffix == ".png":
            image = imread(path)
            assert min(image.shape[:2]) > 200
            assert image[..., :3].std() > 0.02
        else:
            assert "<dc:date>" not in path.read_text()


def test_hostile_names_are_drawn_as_text(tmp_path):
    tree = {"<script>": (None, {}), "$\\frac{": ("<script>", {"a$b_": ("&lt;", "</svg>")}), "x\ny": ("$\\frac{", {})}
    with mpl.rc_context({"svg.fonttype": "none"}):  # the caller's settings do not matter either
        for path in rendered(tmp_path, Study(lineage=tree)):
            if path.suffix == ".svg":
                text = path.read_text()
                assert "<script" not in text
                assert text.count("</svg>") == 1
    assert STYLE["text.parse_math"] is False


def test_figures_are_the_same_bytes_with_the_folders_gone(tmp_path):
    first = [
        path.read_bytes()
        for path in rendered(tmp_path, Study(lineage=DEBIAS, seeds=3, metrics=1, steps=10), into="one")
    ]
    shutil.rmtree(tmp_path / "results" / "stages")
    (tmp_path / "results" / "plan.json").unlink()
    again = render_figures(tmp_path / "results" / DATABASE, tmp_path / "two")
    assert [path.read_bytes() for path in again] == first


def test_nothing_run_yet_still_gives_the_declared_figures(tmp_path):
    states = {(f"v{i}", s): "missing" for i in range(4) for s in (0, 1)}
    paths = rendered(tmp_path, Study(states=states))
    assert {path.stem for path in paths} == {"curves", "lineage", "metric"}
    assert all(path.stat().st_size for path in paths)


def test_a_study_without_curves_has_no_such_figure(tmp_path):
    paths = rendered(tmp_path, Study(metrics=0))
    assert {path.stem for path in paths} == {"lineage", "metric"}


def test_one_line_per_variant_and_panel(tmp_path):
    [svg] = [p for p in rendered(tmp_path, Study(lineage=DEBIAS, metrics=1)) if p.name == "curves.svg"]
    bands = len(re.findall(r'id="FillBetweenPolyCollection_\d+"', svg.read_text()))
    assert bands == 5 + 5 + 5 + 2  # members of the four families

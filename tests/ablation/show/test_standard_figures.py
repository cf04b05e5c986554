"""The figures of every study: what is drawn with what, that names are drawn as they stand, that equal data are equal
bytes, and that what has changed is drawn again, nothing else.
"""

import json
import re
import shutil
import xml.etree.ElementTree as ET
from collections import Counter
from pathlib import Path

import pytest
from PIL import Image, ImageStat

from ablation.config.study import Change
from ablation.plan.plan_file import PlannedVariant
from ablation.show.figures import files, render, style
from ablation.show.figures.curves import families
from ablation.show.figures.metric import primary_column
from ablation.show.figures.panel import Panel
from ablation.show.figures.render import render_figures
from ablation.show.lineage import Node, describe_change, lineage
from ablation.show.tables import build_table
from ablation.show.text import describe_value
from ablation.store.collect import collect
from ablation.store.database import DATABASE, Store
from tests.simulate import DEBIAS, Study, default_lineage, simulate


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
    change = Change.model_validate({"key": "k", "from": value, "to": 2, "factor": "k"})
    assert describe_change(change) == f"k {text} -> 2"


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
            image = Image.open(path).convert("L")
            assert min(image.size) > 200
            assert ImageStat.Stat(image).stddev[0] > 5
        else:
            root = ET.parse(path).getroot()
            assert root.tag.endswith("svg")
            assert len(list(root.iter())) > 100


def test_hostile_names_are_drawn_as_text(tmp_path):
    tree = {"<script>": (None, {}), "$\\frac{": ("<script>", {"a$b_": ("&lt;", "</svg>")}), "x\ny": ("$\\frac{", {})}
    for path in rendered(tmp_path, Study("a</title><script>", lineage=tree)):
        if path.suffix == ".svg":
            text = path.read_text()
            assert "<script" not in text
            assert text.count("</svg>") == 1
            ET.fromstring(text)


def test_figures_are_the_same_bytes_with_the_folders_gone(tmp_path):
    study = Study(lineage=DEBIAS, seeds=3, metrics=1, steps=10)
    first = [path.read_bytes() for path in rendered(tmp_path, study, into="one")]
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


def test_one_line_and_one_band_per_variant_and_panel(tmp_path, monkeypatch):
    drawn = []
    for name in ("line", "band"):
        monkeypatch.setattr(Panel, name, lambda self, *_, _n=name, **__: drawn.append((self.box, _n)))
    rendered(tmp_path, Study(lineage=DEBIAS, metrics=1))
    in_curves = Counter(box for box, name in drawn if name == "band")
    assert sorted(in_curves.values()) == [2, 5, 5, 5]  # members of the four families
    assert Counter(box for box, name in drawn if name == "line" and box in in_curves) == in_curves


# What is drawn again: nothing that shows the same; everything of which data, declaration, style or file changed.


@pytest.fixture
def saved(monkeypatch):
    """Names of the figures that were drawn, in their order."""
    names = []
    save = files.save
    monkeypatch.setattr(files, "save", lambda sheet, stem: (names.append(stem.name), save(sheet, stem)))
    return names


def again(tmp_path, saved, edit=None):
    """Collect and draw once more, after an edit of plan.json; return what was drawn."""
    plan = tmp_path / "results" / "plan.json"
    if edit:
        content = json.loads(plan.read_text())
        edit(content["studies"][0])
        plan.write_text(json.dumps(content))
        collect(tmp_path / "results")
    saved.clear()
    render_figures(tmp_path / "results" / DATABASE, tmp_path / "reports")
    return set(saved)


def test_only_what_changed_is_drawn_again(tmp_path, saved):
    study = Study(variants=3, metrics=2)
    rendered(tmp_path, study)
    everything = {"curves", "lineage", "metric"}
    assert set(saved) == everything
    assert again(tmp_path, saved) == set()
    collect(tmp_path / "results")  # a new database of the same results
    assert again(tmp_path, saved) == set()
    assert again(tmp_path, saved, lambda s: s["curves"][0].update(label="another")) == {"curves"}
    assert again(tmp_path, saved, lambda s: s["variants"][1]["changes"][0].update(to=7.0)) == {"lineage"}
    assert again(tmp_path, saved, lambda s: s.update(title="another")) == everything


def test_new_data_are_drawn(tmp_path, saved):
    rendered(tmp_path, Study(variants=3, metrics=2))
    before = (tmp_path / "reports" / "toy" / "curves.svg").read_bytes()
    saved.clear()
    rendered(tmp_path, Study(variants=3, metrics=2, steps=21))
    assert set(saved) == {"curves"}
    assert (tmp_path / "reports" / "toy" / "curves.svg").read_bytes() != before
    saved.clear()
    rendered(tmp_path, Study(variants=3, metrics=2, steps=21, distance=0.2))
    assert set(saved) == {"metric"}


def test_another_style_or_renderer_is_drawn(tmp_path, saved, monkeypatch):
    rendered(tmp_path, Study(variants=3, metrics=2))
    monkeypatch.setattr(style, "PALETTE", tuple(reversed(style.PALETTE)))
    assert again(tmp_path, saved) == {"curves"}
    monkeypatch.setattr(files, "drawing_code", lambda: ("the code of another day",))
    assert again(tmp_path, saved) == {"curves", "lineage", "metric"}


@pytest.mark.parametrize("name", ["svg.py", "png.py", "letters.py", "style.py"])
def test_the_code_that_makes_the_files_counts(name):
    source = Path(files.__file__).with_name(name).read_text()
    assert source in files.drawing_code()


def test_a_file_that_is_gone_or_not_ours_is_drawn_again(tmp_path, saved):
    rendered(tmp_path, Study(variants=3, metrics=2))
    folder = tmp_path / "reports" / "toy"
    known = (folder / "metric.png").read_bytes()
    (folder / "metric.png").write_bytes((folder / "curves.png").read_bytes())
    (folder / "lineage.svg").unlink()
    assert again(tmp_path, saved) == {"metric", "lineage"}
    assert (folder / "metric.png").read_bytes() == known
    (folder / render.DRAWN).write_text("[")
    assert again(tmp_path, saved) == {"curves", "lineage", "metric"}


def test_what_is_kept_is_as_young_as_what_is_drawn(tmp_path):
    """Snakemake compares times: an older figure would be drawn again and again."""
    import os

    paths = rendered(tmp_path, Study(variants=3, metrics=2))
    for path in paths:
        os.utime(path, (1, 1))
    database = tmp_path / "results" / DATABASE
    assert all(
        path.stat().st_mtime >= database.stat().st_mtime for path in render_figures(database, tmp_path / "reports")
    )


def test_letters_are_stored_once_in_a_file(tmp_path):
    [svg] = [path for path in rendered(tmp_path, Study(variants=3, metrics=2)) if path.name == "curves.svg"]
    text = svg.read_text()
    ids = re.findall(r'<path id="(g\d+)"', text)
    assert len(ids) == len(set(ids)) > 10
    assert set(re.findall(r'href="#(g\d+)"', text)) == set(ids)

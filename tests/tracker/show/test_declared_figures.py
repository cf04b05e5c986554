"""Declared figures: every variant is drawn, the horizontal metric is used, missing data does not hide the rest."""

import json

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from tests import simulate as simulated
from tracker.show.figures import declared as panels
from tracker.show.figures import declared_subsets as panels_subsets
from tracker.show.figures.style import STYLE
from tracker.store.collect import collect
from tracker.store.database import Store

FIGURES = [
    {
        "name": "training",
        "kind": "lines",
        "title": "Training",
        "columns": 2,
        "x": None,
        "panels": [{"metric": f"train/m0{i}", "label": f"metric {i}"} for i in range(3)],
    },
    {
        "name": "against-another",
        "kind": "lines",
        "title": "One metric against another",
        "columns": 2,
        "x": {"metric": "train/m01", "label": "metric 1"},
        "panels": [{"metric": "train/m00", "label": "metric 0"}, {"metric": "train/none", "label": "nothing"}],
    },
    {
        "name": "bars",
        "kind": "bars",
        "title": "Means",
        "columns": 2,
        "x": None,
        "panels": [{"metric": "train/m00", "label": "metric 0"}],
    },
    {
        "name": "chosen",
        "kind": "lines",
        "title": "Some of the variants",
        "columns": 2,
        "x": None,
        "panels": [{"metric": "train/m00", "label": "metric 0"}],
        "variants": ["v4", "v1"],
    },
    {
        "name": "each",
        "kind": "each",
        "title": "Each variant against its parent",
        "columns": 4,
        "x": {"metric": "train/m01", "label": "metric 1"},
        "panels": [{"metric": "train/m00", "label": "metric 0", "log": True}],
    },
    {
        "name": "along",
        "kind": "subsets",
        "title": "Along the subsets",
        "columns": 2,
        "axis": "group",
        "panels": [
            {"metric": "edited/*/hit", "label": "hits", "variants": ["v3", "v0"]},
            {"metric": "edited/*/none", "label": "nothing", "variants": None},
        ],
    },
    {
        "name": "spread",
        "kind": "distributions",
        "title": "Spread of the items",
        "columns": 2,
        "panels": [{"metric": "edited/*/hit", "label": "hits", "variants": ["v1", "v0"]}],
    },
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    results = tmp_path_factory.mktemp("panels") / "results"
    plan = simulated.simulate(results, [simulated.Study("s", variants=9, seeds=2, metrics=3)])
    content = json.loads(plan.read_text())
    content["studies"][0]["figures"] = FIGURES
    plan.write_text(json.dumps(content))
    collect(results)
    with Store(results / "tracker.duckdb") as opened, mpl.rc_context(STYLE):
        yield opened


@pytest.fixture
def drawn(store, tmp_path, monkeypatch):
    figures: dict[str, Figure] = {}
    monkeypatch.setattr(panels, "save_figure", lambda figure, stem: figures.setdefault(stem.name, figure))
    assert panels.draw_figures(store, "s", tmp_path) == [f["name"] for f in FIGURES]
    return figures


def test_each_panel_has_a_line_per_variant_at_the_mean_of_its_seeds(store, drawn):
    figure = drawn["training"]
    shown = [axes for axes in figure.axes if axes.axison]
    assert [axes.get_title(loc="left") for axes in shown] == ["metric 0", "metric 1", "metric 2"]
    assert len(figure.axes) == 4  # two by two, one of them empty
    for axes in shown:
        assert len(axes.lines) == 9
    raw = store.sql(
        "SELECT step, avg(value) AS v FROM curves WHERE variant = 'v0' AND metric = 'train/m00' GROUP BY 1 ORDER BY 1"
    )
    line = shown[0].lines[0]
    assert line.get_xdata().tolist() == raw["step"].tolist()
    assert line.get_ydata().tolist() == pytest.approx(raw["v"].tolist())
    assert len({(panels.look(i)[0], str(panels.look(i)[1])) for i in range(37)}) == 37


def test_the_horizontal_axis_can_be_another_metric(store, drawn):
    axes, empty = drawn["against-another"].axes[:2]
    means = store.curves("s", ["train/m01"])
    expected = means[means["variant"] == "v0"]["mean"].tolist()
    assert axes.lines[0].get_xdata().tolist() == pytest.approx(expected)
    assert axes.get_xlabel() == "metric 1"
    assert [text.get_text() for text in empty.texts] == ["no data"]


def test_bars_are_means_over_steps_and_seeds(store, drawn):
    (axes,) = drawn["bars"].axes
    mean = store.sql(
        "SELECT avg(v) AS v FROM (SELECT seed, avg(value) AS v FROM curves "
        "WHERE variant = 'v0' AND metric = 'train/m00' GROUP BY seed)"
    )["v"][0]
    assert len(axes.patches) == 9
    assert axes.patches[0].get_width() == pytest.approx(mean)


def test_a_figure_may_show_some_variants_only_in_the_order_of_the_lineage(store, drawn):
    figure = drawn["chosen"]
    assert len(figure.axes[0].lines) == 2
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["v1", "v4"]
    means = store.curves("s", ["train/m00"])
    expected = means[means["variant"] == "v1"]["mean"].tolist()
    assert figure.axes[0].lines[0].get_ydata().tolist() == pytest.approx(expected)


def test_each_variant_has_a_panel_with_its_parent_and_the_others(store, drawn):
    parents = {variant.name: variant.parent for variant in store.variants("s")}
    shown = {axes.get_title(loc="left"): axes for axes in drawn["each"].axes if axes.axison}
    assert set(shown) == {name if parent is None else f"{name}, from {parent}" for name, parent in parents.items()}
    means = store.curves("s", ["train/m00"]).set_index("variant")["mean"]
    for title, axes in shown.items():
        name, parent = title.split(", ")[0], parents[title.split(", ")[0]]
        *others, of_parent, own = axes.lines
        assert len(others) == len(parents)
        assert own.get_ydata().tolist() == pytest.approx(means[name].tolist())
        assert of_parent.get_ydata().tolist() == pytest.approx([] if parent is None else means[parent].tolist())
        assert axes.get_yscale() == "log"


def test_files_are_written(store, tmp_path):
    for name in panels.draw_figures(store, "s", tmp_path):
        assert (tmp_path / f"{name}.svg").stat().st_size > 1000
        assert (tmp_path / f"{name}.png").stat().st_size > 1000


def test_subsets_lie_along_the_axis_with_a_line_for_each_chosen_variant(store, drawn):
    hits, nothing = drawn["along"].axes
    subsets = store.study("s").analysis.subsets
    assert [line.get_label() for line in hits.lines] == ["v3", "v0"]
    assert [text.get_text() for text in hits.get_xticklabels()] == subsets
    for line, variant in zip(hits.lines, ["v3", "v0"], strict=True):
        expected = [
            store.sql(
                "SELECT avg(value) AS v FROM results WHERE variant = ? AND metric = ?",
                [variant, f"edited/{subset}/hit"],
            )["v"][0]
            for subset in subsets
        ]
        assert line.get_ydata().tolist() == pytest.approx(expected)
    assert hits.get_xlabel() == "group"
    assert [text.get_text() for text in nothing.texts] == ["no data"]


def test_subsets_that_are_numbers_stand_at_them():
    assert panels_subsets._places(["10", "2", "1"], []) == {"1": 1.0, "2": 2.0, "10": 10.0}
    assert panels_subsets._places(["b", "c", "a"], ["c", "b"]) == {"c": 0.0, "b": 1.0, "a": 2.0}


def test_distributions_show_quantiles_and_shares_of_each_subset(store, drawn):
    (axes,) = drawn["spread"].axes
    subsets = sorted(store.study("s").analysis.subsets)
    boxes = axes.patches
    assert len(boxes) == 2 * len(subsets)
    items = store.items("s", protocol="edited", name="hit")
    chosen = items[(items["variant"] == "v1") & (items["subset"] == subsets[0])]["value"]
    low, high = chosen.quantile([0.25, 0.75])
    assert (boxes[0].get_x(), boxes[0].get_width()) == pytest.approx((low, high - low))
    share = len(chosen) / len(items[items["variant"] == "v1"])
    assert axes.texts[0].get_text() == f"{share:.0%}"
    assert [text.get_text() for text in axes.get_yticklabels()] == ["v1", "v0"]

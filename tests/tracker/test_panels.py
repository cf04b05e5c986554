"""Declared figures: every variant is drawn, the horizontal metric is used, missing data does not hide the rest."""

import json

import matplotlib as mpl
import pytest
from matplotlib.figure import Figure

from tests import simulate as simulated
from tracker import panels
from tracker.collect import collect
from tracker.figures import STYLE
from tracker.store import Store

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
    assert panels.draw_figures(store, "s", tmp_path) == ["training", "against-another", "bars", "chosen"]
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


def test_files_are_written(store, tmp_path):
    for name in panels.draw_figures(store, "s", tmp_path):
        assert (tmp_path / f"{name}.svg").stat().st_size > 1000
        assert (tmp_path / f"{name}.png").stat().st_size > 1000

"""Declared figures: every variant is drawn, the horizontal metric is used, missing data does not hide the rest."""

import inspect
import json
from dataclasses import dataclass

import pytest

from ablation.show.figures import panel as panel_module
from ablation.show.figures import subsets as subsets_module
from ablation.show.figures.declared import declared_figures
from ablation.show.figures.panel import Frame, Legend, Panel
from ablation.show.figures.sheet import Text
from ablation.show.figures.style import look
from ablation.store.collect import collect
from ablation.store.database import Store
from tests import simulate as simulated

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
    results = tmp_path_factory.mktemp("figures") / "results"
    plan = simulated.simulate(results, [simulated.Study("s", variants=9, seeds=2, metrics=3)])
    content = json.loads(plan.read_text())
    content["studies"][0]["figures"] = FIGURES
    plan.write_text(json.dumps(content))
    collect(results)
    with Store(results / "tracker.duckdb") as opened:
        yield opened


@dataclass
class Drawn:
    """What was put into one panel: calls of its methods, by name, as {argument: value}."""

    panel: Panel
    frame: Frame
    calls: list[tuple[str, dict]]

    def all(self, name):
        return [call for called, call in self.calls if called == name]


@pytest.fixture(scope="module")
def drawn(store):
    """{figure: its panels, row by row}, and {figure: texts of its legends}."""
    panels, legends = [], []
    with pytest.MonkeyPatch.context() as patch:
        place_frame = panel_module._draw_frame

        def framed(panel, frame, *others):
            panels.append(Drawn(panel, frame, []))
            place_frame(panel, frame, *others)

        def recorded(name, method):
            def record(self, *values, **named):
                [at] = [drawn for drawn in panels if drawn.panel is self]
                at.calls.append((name, inspect.signature(method).bind(self, *values, **named).arguments))
                method(self, *values, **named)

            return record

        patch.setattr(panel_module, "_draw_frame", framed)
        for name in ("line", "band", "dots", "bar", "note"):
            patch.setattr(Panel, name, recorded(name, getattr(Panel, name)))
        draw = Legend.draw
        patch.setattr(Legend, "draw", lambda self, *a, **k: (legends.append(self), draw(self, *a, **k)))
        sheets = declared_figures(store, "s")
    assert list(sheets) == [figure["name"] for figure in FIGURES]
    found = {name: [panel for panel in panels if panel.panel.sheet is sheet] for name, sheet in sheets.items()}
    found["legends"] = [[name for name, *_ in legend.entries] for legend in legends]
    return found


def test_each_panel_has_a_line_per_variant_at_the_mean_of_its_seeds(store, drawn):
    panels = drawn["training"]
    assert [panel.frame.title for panel in panels] == ["metric 0", "metric 1", "metric 2"]
    assert len({panel.panel.box[1] for panel in panels}) == 2  # two by two, one place empty
    for panel in panels:
        assert len(panel.all("line")) == len(panel.all("band")) == 9
    raw = store.sql(
        "SELECT step, avg(value) AS v, min(value) AS low, max(value) AS high FROM curves "
        "WHERE variant = 'v0' AND metric = 'train/m00' GROUP BY 1 ORDER BY 1"
    )
    line, band = panels[0].all("line")[0], panels[0].all("band")[0]
    assert line["x"].tolist() == band["x"].tolist() == raw["step"].tolist()
    assert line["y"].tolist() == pytest.approx(raw["v"].tolist())
    assert band["low"].tolist() == pytest.approx(raw["low"].tolist())
    assert band["high"].tolist() == pytest.approx(raw["high"].tolist())
    assert len({look(i) for i in range(37)}) == 37


def test_the_horizontal_axis_can_be_another_metric(store, drawn):
    panel, empty = drawn["against-another"]
    means = store.curves("s", ["train/m01"])
    expected = means[means["variant"] == "v0"]["mean"].tolist()
    assert panel.all("line")[0]["x"].tolist() == pytest.approx(expected)
    assert panel.frame.x_label == "metric 1"
    assert [note["text"] for note in empty.all("note")] == ["no data"]


def test_bars_are_means_over_steps_and_seeds(store, drawn):
    (panel,) = drawn["bars"]
    mean = store.sql(
        "SELECT avg(v) AS v FROM (SELECT seed, avg(value) AS v FROM curves "
        "WHERE variant = 'v0' AND metric = 'train/m00' GROUP BY seed)"
    )["v"][0]
    assert len(panel.all("bar")) == 9
    assert (panel.all("bar")[0]["start"], panel.all("bar")[0]["end"]) == (0, pytest.approx(mean))
    assert panel.frame.x.low < 0 < panel.frame.x.high


def test_a_figure_may_show_some_variants_only_in_the_order_of_the_lineage(store, drawn):
    (panel,) = drawn["chosen"]
    assert len(panel.all("line")) == 2
    assert ["v1", "v4"] in drawn["legends"]
    means = store.curves("s", ["train/m00"])
    chosen = means[means["variant"].isin(["v1", "v4"])]
    assert panel.all("line")[0]["y"].tolist() == pytest.approx(means[means["variant"] == "v1"]["mean"].tolist())
    span = chosen["high"].max() - chosen["low"].min()  # the axis is that of what is shown
    assert panel.frame.y.high - panel.frame.y.low == pytest.approx(1.1 * span)


def test_each_variant_has_a_panel_with_its_parent_and_the_others(store, drawn):
    parents = {variant.name: variant.parent for variant in store.variants("s")}
    shown = {panel.frame.title.replace("\u00a0", " "): panel for panel in drawn["each"]}
    assert set(shown) == {name if parent is None else f"{name}, from {parent}" for name, parent in parents.items()}
    means = store.curves("s", ["train/m00"]).set_index("variant")["mean"]
    for title, panel in shown.items():
        name = title.split(", ")[0]
        parent, lines = parents[name], [line["y"].tolist() for line in panel.all("line")]
        assert len(lines) == len(parents)
        assert lines[-1] == pytest.approx(means[name].tolist())
        assert parent is None or lines[-2] == pytest.approx(means[parent].tolist())
        assert panel.frame.y.log


def test_subsets_lie_along_the_axis_with_a_line_for_each_chosen_variant(store, drawn):
    hits, nothing = drawn["along"]
    subsets = store.study("s").analysis.subsets
    assert ["v3", "v0"] in drawn["legends"]
    assert [label for _, label in hits.frame.x.ticks] == subsets
    for line, variant in zip(hits.all("line"), ["v3", "v0"], strict=True):
        expected = [
            store.sql(
                "SELECT avg(value) AS v FROM results WHERE variant = ? AND metric = ?",
                [variant, f"edited/{subset}/hit"],
            )["v"][0]
            for subset in subsets
        ]
        assert list(line["y"]) == pytest.approx(expected)
    assert hits.frame.x_label == "group"
    assert [note["text"] for note in nothing.all("note")] == ["no data"]


def test_subsets_that_are_numbers_stand_at_them():
    assert subsets_module._places(["10", "2", "1"], []) == {"1": 1.0, "2": 2.0, "10": 10.0}
    assert subsets_module._places(["b", "c", "a"], ["c", "b"]) == {"c": 0.0, "b": 1.0, "a": 2.0}


def test_distributions_show_quantiles_and_shares_of_each_subset(store, drawn):
    (panel,) = drawn["spread"]
    subsets = sorted(store.study("s").analysis.subsets)
    boxes = panel.all("bar")
    assert len(boxes) == 2 * len(subsets)
    items = store.items("s", protocol="edited", name="hit")
    chosen = items[(items["variant"] == "v1") & (items["subset"] == subsets[0])]["value"]
    assert (boxes[0]["start"], boxes[0]["end"]) == pytest.approx(tuple(chosen.quantile([0.25, 0.75])))
    assert list(panel.all("line")[0]["x"]) == pytest.approx(list(chosen.quantile([0.05, 0.95])))
    share = len(chosen) / len(items[items["variant"] == "v1"])
    texts = [mark.text for mark in panel.panel.sheet.marks if isinstance(mark, Text)]
    assert f"{share:.0%}" in texts
    assert [label for _, label in panel.frame.y.ticks] == ["v1", "v0"]

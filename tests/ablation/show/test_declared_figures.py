"""Declared figures: every variant is drawn, the horizontal metric is used, missing data does not hide the rest."""

import matplotlib as mpl
import pytest

from ablation.show import figures as render
from ablation.show.figure_style import RC, line_style
from ablation.store.collect import collect
from ablation.store.database import Store
from tests import simulate as simulated
from tests.simulate import editing

M0, M1 = ({"metric": f"train/m0{i}", "label": f"metric {i}"} for i in (0, 1))


def figure(name, kind, *panels, **more):
    return {"name": name, "kind": kind, "title": name, "columns": 2, "panels": list(panels)} | more


HITS = {"metric": "edited/*/hit", "label": "hits"}
NONE = {"metric": "train/none", "label": "nothing"}
FIGURES = [
    figure("training", "lines", M0, M1, {"metric": "train/m02", "label": "metric 2"}),
    figure("against-another", "lines", M0, NONE, x=M1),
    figure("bars", "bars", M0),
    figure("chosen", "lines", M0, variants=["v4", "v1"]),
    figure("each", "each", M0 | {"log": True}, x=M1, columns=4),
    figure("along", "subsets", HITS | {"variants": ["v3", "v0"]}, NONE | {"metric": "edited/*/none"}, axis="group"),
    figure("spread", "distributions", HITS | {"variants": ["v1", "v0"]}),
]


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    results = tmp_path_factory.mktemp("figures") / "results"
    plan = simulated.simulate(results, [simulated.Study("s", variants=9, seeds=2, metrics=3)])
    with editing(plan) as content:
        content["studies"][0]["figures"] = FIGURES
    collect(results)
    with Store(results / "tracker.duckdb") as opened:
        yield opened


@pytest.fixture(scope="module")
def drawn(store):
    """{figure: its panels}."""
    with mpl.rc_context(RC):
        figures = {name: draw() for name, draw in render._figures(store, "s").items()}
    assert list(figures) == ["metric", "variant-tree", "curves", *(figure["name"] for figure in FIGURES)]
    return {name: [panel for panel in figure.axes if panel.axison] for name, figure in figures.items()}


def legend(panel):
    """Names in the legend of a panel, or of its figure."""
    return [text.get_text() for text in (panel.get_legend() or panel.figure.legends[0]).get_texts()]


def ys(panel):
    return [list(line.get_ydata()) for line in panel.lines]


def said(panel):
    return [text.get_text().strip() for text in panel.texts]


def title(panel):
    return panel.get_title(loc="left").replace("\n", " ")


def test_each_panel_has_a_line_per_variant_at_the_mean_of_its_seeds(store, drawn):
    panels = drawn["training"]
    assert [title(panel) for panel in panels] == ["metric 0", "metric 1", "metric 2"]
    assert len({panel.get_position().y0 for panel in panels}) == 2  # two by two, one place empty
    assert all(len(panel.lines) == len(panel.collections) == 9 for panel in panels)
    raw = store.sql(
        "SELECT step, avg(value) AS v, min(value) AS low, max(value) AS high FROM curves "
        "WHERE variant = 'v0' AND metric = 'train/m00' GROUP BY 1 ORDER BY 1"
    )
    assert list(panels[0].lines[0].get_xdata()) == raw["step"].tolist()
    assert ys(panels[0])[0] == pytest.approx(raw["v"].tolist())
    band = panels[0].collections[0].get_paths()[0].vertices
    assert band[:, 1].min() == pytest.approx(raw["low"].min())
    assert band[:, 1].max() == pytest.approx(raw["high"].max())
    assert len({line_style(i) for i in range(37)}) == 37


def test_the_horizontal_axis_can_be_another_metric(store, drawn):
    panel, empty = drawn["against-another"]
    means = store.curves("s", ["train/m01"])
    expected = means[means["variant"] == "v0"]["mean"].tolist()
    assert list(panel.lines[0].get_xdata()) == pytest.approx(expected)
    assert panel.get_xlabel() == "metric 1"
    assert said(empty) == ["no data"]


def test_bars_are_means_over_steps_and_seeds(store, drawn):
    (panel,) = drawn["bars"]
    mean = store.sql(
        "SELECT avg(v) AS v FROM (SELECT seed, avg(value) AS v FROM curves "
        "WHERE variant = 'v0' AND metric = 'train/m00' GROUP BY seed)"
    )["v"][0]
    assert len(panel.patches) == 9
    assert panel.patches[0].get_width() == pytest.approx(mean)
    assert panel.get_xlim()[0] <= 0 < panel.get_xlim()[1]


def test_a_figure_may_show_some_variants_only_in_the_order_of_the_tree(store, drawn):
    (panel,) = drawn["chosen"]
    assert legend(panel) == ["v1", "v4"]
    means = store.curves("s", ["train/m00"])
    assert ys(panel)[0] == pytest.approx(means[means["variant"] == "v1"]["mean"].tolist())
    assert len(panel.lines) == 2


def test_each_variant_has_a_panel_with_its_parent_and_the_others(store, drawn):
    parents = {variant.name: variant.parent for variant in store.variants("s")}
    shown = {title(panel): panel for panel in drawn["each"]}
    assert set(shown) == {name if parent is None else f"{name}, from {parent}" for name, parent in parents.items()}
    means = store.curves("s", ["train/m00"]).set_index("variant")["mean"]
    for words, panel in shown.items():
        name = words.split(", ")[0]
        parent, lines = parents[name], ys(panel)
        assert len(lines) == len(parents)
        assert lines[-1] == pytest.approx(means[name].tolist())
        assert parent is None or lines[-2] == pytest.approx(means[parent].tolist())
        assert panel.get_yscale() == "log"
        assert not any("$" in label.get_text() for label in panel.get_yticklabels())


def test_subsets_lie_along_the_axis_with_a_line_for_each_chosen_variant(store, drawn):
    hits, nothing = drawn["along"]
    subsets = store.study("s").analysis.subsets
    assert legend(hits) == ["v3", "v0"]
    assert [label.get_text() for label in hits.get_xticklabels()] == subsets
    for line, variant in zip(ys(hits), ["v3", "v0"], strict=True):
        expected = [
            store.sql(
                "SELECT avg(value) AS v FROM results WHERE variant = ? AND metric = ?",
                [variant, f"edited/{subset}/hit"],
            )["v"][0]
            for subset in subsets
        ]
        assert line == pytest.approx(expected)
    assert hits.get_xlabel() == "group"
    assert said(nothing) == ["no data"]


def test_distributions_show_quantiles_and_shares_of_each_subset(store, drawn):
    (panel,) = drawn["spread"]
    subsets = sorted(store.study("s").analysis.subsets)
    assert len(panel.patches) == 2 * len(subsets)
    items = store.sql("FROM finals JOIN items USING (key) WHERE protocol = 'edited' AND name = 'hit'")
    chosen = items[(items["variant"] == "v1") & (items["subset"] == subsets[0])]["value"]
    box = panel.patches[0]
    assert (box.get_x(), box.get_x() + box.get_width()) == pytest.approx(tuple(chosen.quantile([0.25, 0.75])))
    assert list(panel.lines[0].get_xdata()) == pytest.approx(list(chosen.quantile([0.05, 0.95])))
    assert f"{len(chosen) / len(items[items['variant'] == 'v1']):.0%}" in said(panel)
    assert [label.get_text() for label in panel.get_yticklabels()] == ["v1", "v0"]

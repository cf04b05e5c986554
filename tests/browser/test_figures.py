"""Figures that a reader takes along: the effects of the changes, and published numbers beside ours."""

import csv
from xml.etree import ElementTree

import numpy as np
import pytest

from ablation.judge.verdicts import comparison_table, judge_study
from ablation.show.tables import build_table
from ablation.store.database import Store
from tests.browser.reading import ATTACK, save

SVG = "{http://www.w3.org/2000/svg}"


def tools(page, figure, article=0):
    return page.locator("article").nth(article).locator(f".figure-tools[data-figure={figure}]")


def texts(path):
    return [node.text for node in ElementTree.parse(path).getroot().iter(f"{SVG}text")]


def test_effects_are_saved_as_data_and_as_pictures(open_page, file, tmp_path):
    page = open_page()
    figure = tools(page, "effects")
    with Store(file.parent / "results/tracker.duckdb") as store:
        comparisons = comparison_table([judge_study(store, "debias")])
    with save(figure, "CSV", tmp_path).open() as content:
        rows = {(row["variant"], row["against"]): row for row in csv.DictReader(content)}
    assert len(rows) == len(comparisons) == 14
    for comparison in comparisons.to_dict("records"):
        row = rows[comparison["child"], comparison["parent"]]
        assert row["verdict"] == comparison["verdict"]
        for name in ("effect", "low", "high", "p_adjusted"):  # no share is further than 0.5 from the target
            within = comparison[name] if name == "p_adjusted" else float(np.clip(comparison[name], -0.5, 0.5))
            assert float(row[name] or "nan") == pytest.approx(within, nan_ok=True)
    assert rows["v4", "v3"]["change"] == "reward directional -> balanced"
    drawing = save(figure, "SVG", tmp_path)
    assert drawing.name == "study-debias-effects.svg"
    assert {"v4, from v3", "Simulated study debias: effect of each change", "better \u2192", "not run"} <= set(
        texts(drawing)
    )
    assert texts(drawing).count("invalid") == list(comparisons["verdict"]).count("invalid")
    assert any(text.startswith("<script>alert(1)</script>") for text in texts(drawing))  # as text
    assert ATTACK not in drawing.read_text()


def test_published_numbers_are_saved_beside_ours(open_page, file, tmp_path):
    page = open_page()
    figure = tools(page, "published")
    with Store(file.parent / "results/tracker.duckdb") as store:
        table = build_table(store, "debias")
    with save(figure, "CSV", tmp_path).open() as content:
        rows = list(csv.DictReader(content))
    [row] = [row for row in rows if (row["column"], row["variant"]) == ("gender", "v2")]
    [ours] = [row for row in table.rows if row.name == "v2"]
    assert float(row["published"]) == pytest.approx(0.012)
    assert (float(row["measured"]), float(row["sd"])) == pytest.approx((ours.cells[0].mean, ours.cells[0].sd))
    assert {row["column"] for row in rows} == {"gender", "mean"}
    assert {"gender", "mean", "v5", "published"} <= set(texts(save(figure, "SVG", tmp_path)))

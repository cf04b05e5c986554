"""The report page's tables and pairs in a real browser, from file://: sorting, filters, any two variants."""

import csv
import re
from xml.etree import ElementTree

import numpy as np
import pytest

from ablation.judge.comparisons import judge_pair
from ablation.judge.stored import read_measurements
from ablation.judge.verdicts import comparison_table, judge_study
from ablation.show.page.render import SCRIPTS
from ablation.show.tables import build_table
from ablation.store.database import Store
from tests.browser.reading import ATTACK, drawn, numbers, readout, save


def column(page, index):
    """Shown values of one column of the first comparison table, without the reference row."""
    rows = page.locator("table.cmp").first.locator("tbody tr:not(.reference):visible")
    return [text.strip() for text in rows.locator(f":nth-child({index})").all_inner_texts()]


def names(page):
    return page.locator("table.cmp").first.locator("tbody tr:not(.reference):visible > th").all_inner_texts()


def test_a_variant_named_like_a_script_is_text(open_page):
    page = open_page()
    assert ATTACK in names(page)
    assert page.locator(f"label.check:has-text('{ATTACK}')").count() == 1
    curves = drawn(page)
    curves.locator(f"label:has-text('{ATTACK}') input").check()
    assert ATTACK in curves.locator(".readout").inner_text()
    assert page.locator("script").count() == 1 + len(SCRIPTS)


def test_sorting_goes_both_ways_and_leaves_the_reference_and_the_missing_in_place(open_page):
    page = open_page()
    table = page.locator("table.cmp").first
    tree_order = names(page)
    button = table.get_by_role("button", name="gender", exact=True)
    index = 1 + table.locator("thead th").all_inner_texts().index("gender")
    button.click()
    up = column(page, index)
    assert numbers(up) == sorted(numbers(up))
    assert table.locator("thead th[aria-sort=ascending]").inner_text().startswith("gender")
    button.click()
    down = column(page, index)
    assert numbers(down) == sorted(numbers(down), reverse=True)
    assert numbers(up) != numbers(down)
    for shown in (up, down):
        assert shown[-1] == "failed"  # v9, of which no run ended well
        assert "failed" not in shown[:-1]
    assert table.locator("tbody tr").first.inner_text().startswith("unedited")
    table.get_by_role("button", name="Variant").click()
    assert names(page) == tree_order


def test_filters_by_words_and_by_verdict(open_page):
    page = open_page()
    everything = names(page)
    box = page.get_by_label("Filter").first
    box.fill("rcs alphas")
    assert set(names(page)) == {"v8", "v8.1", ATTACK}
    assert "3 of 15 variants" in page.locator("output.count").first.inner_text()
    box.fill("")
    page.get_by_label("Verdict").first.select_option("invalid")
    assert {"v7", "v9", "v10"} <= set(names(page)) < set(everything)
    page.get_by_label("Verdict").first.select_option("not run")
    assert names(page) == ["v8-earlystop-max"]
    page.get_by_label("Verdict").first.select_option("")
    assert names(page) == everything


def compared(page):
    """Texts of the first study's comparison: outcome, notes, and the rows of what differs."""
    compare = page.locator(".compare").first
    rows = [row.locator("th, td").all_inner_texts() for row in compare.locator(".diff tbody tr").all()]
    return compare.locator(".outcome").inner_text(), compare.locator(".outcome-notes").inner_text(), rows


def test_any_two_variants_are_compared_with_what_differs_and_their_curves(open_page, file):
    page = open_page()
    curves = drawn(page)
    compare = page.locator(".compare").first
    compare.locator("select.one").select_option("v6")
    compare.locator("select.other").select_option("v5")
    outcome, notes, rows = compared(page)
    with Store(file.parent / "results/tracker.duckdb") as store:
        comparison = judge_pair(read_measurements(store, "debias"), "v6", "v5").comparison
    assert outcome.startswith("v6 against v5: ")
    assert numbers(re.findall(r"[−+][\d.]+", outcome.replace("+", ""))) == pytest.approx(
        [value for value in (comparison.effect, comparison.low, comparison.high) if value < 0], abs=6e-3
    )
    assert outcome.endswith(comparison.detail)
    assert "not corrected; 95% interval; 3 seeds" in notes
    assert "2 factors differ (grpo" not in notes  # weight, beta and gamma of grpo are one factor
    assert rows == [["grpo.beta", "0.1", "0.05"], ["grpo.gamma", "1.5", "1"]]
    assert set(readout(curves)) == {"v5", "v6"}
    assert curves.get_by_label("Show").input_value() == ""
    compare.get_by_role("button", name="Swap").click()
    turned, _, rows = compared(page)
    assert turned.startswith("v5 against v6: ")
    assert numbers([turned.split(": ")[1].replace("+", "")]) == [
        -x for x in numbers([outcome.split(": ")[1].replace("+", "")])
    ]
    assert rows[0] == ["grpo.beta", "0.05", "0.1"]
    compare.get_by_label("show keys").check()
    assert ["grpo.weight", "0.3", "0.3"] in compared(page)[2]
    compare.locator("select.other").select_option("v4")
    assert "The study’s adjusted verdict on this change is" in compared(page)[1]
    assert curves.get_by_label("Show").input_value() == "v4\tv5"


def test_the_table_by_the_value_of_a_key_is_chosen(open_page):
    page = open_page()
    groups = page.locator(".groups").first
    groups.locator("summary").click()
    groups.get_by_label("Key").select_option("grpo.gamma")
    shown = groups.locator(".group:visible")
    assert shown.count() == 1
    rows = {
        row.locator("th").inner_text(): row.locator("td").all_inner_texts() for row in shown.locator("tbody tr").all()
    }
    assert list(rows) == ["0.5", "1", "1.5"]
    assert rows["0.5"][:2] == ["baseline, v1", "2"]
    assert rows["1.5"][:2] == ["v5", "1"]
    table = page.locator("table.cmp").first
    index = table.locator("thead th").all_inner_texts().index("gender")
    cell = table.locator("tbody tr", has_text="v5").first.locator("th, td").nth(index).inner_text()
    assert rows["1.5"][2].split()[0] == cell.split()[0]  # one variant: its own mean over seeds
    assert page.locator(".groups .group:visible").count() == 1


def test_a_cell_of_all_pairs_chooses_them(open_page):
    page = open_page()
    page.locator(".all-pairs > summary").first.click()
    matrix = page.locator(".matrix").first
    names = [text.split(" ", 1)[1] for text in matrix.locator("tbody th").all_inner_texts()]
    cell = matrix.locator("tbody tr").nth(names.index("v2")).locator("td").nth(names.index("v1"))
    shown = cell.inner_text()
    cell.click()
    outcome = compared(page)[0]
    assert outcome.startswith("v2 against v1: ")
    assert shown.split()[1] in outcome
    drawn(page)
    assert page.locator(".curves").first.get_by_label("Show").input_value() == "v1\tv2"


def test_all_pairs_are_saved_as_data(open_page, file, tmp_path):
    page = open_page()
    with page.expect_download() as waiting:
        page.locator(".compare").nth(1).get_by_role("button", name="Save all pairs as CSV").click()
    waiting.value.save_as(tmp_path / "pairs.csv")
    with (tmp_path / "pairs.csv").open() as content:
        rows = list(csv.DictReader(content))
    assert len(rows) == 8 * 7 // 2
    with Store(file.parent / "results/tracker.duckdb") as store:
        comparison = judge_pair(read_measurements(store, "gspo"), "v7", "v3").comparison
    [row] = [row for row in rows if (row["variant"], row["against"]) == ("v7", "v3")]
    assert [float(row[name]) for name in ("effect", "low", "high")] == pytest.approx(
        [comparison.effect, comparison.low, comparison.high], rel=1e-4
    )


# Figures that a reader takes along.

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

"""The learning curves in a real browser: what is drawn, smoothed, searched, read and saved."""

import csv
from xml.etree import ElementTree

import pytest

from tests.browser.reading import drawn, ink, readout, save


def test_curves_switch_variants_and_metrics(open_page):
    curves = drawn(open_page())
    first = ink(curves)
    assert first[0] > 2000
    curves.get_by_label("Show").select_option(label="v4 and its parent v3")
    assert curves.locator(".variants input:checked").count() == 2
    assert set(readout(curves)) == {"v3", "v4"}
    pair = ink(curves)
    curves.locator("label:has(input[value=v5]) input").check()
    assert set(readout(curves)) == {"v3", "v4", "v5"}
    assert curves.get_by_label("Show").input_value() == ""
    three = ink(curves)
    before = curves.locator(".readout").inner_text()
    curves.locator("select.metric").select_option(index=1)
    assert curves.locator(".readout").inner_text() != before
    assert "metric 1" in curves.locator(".plot").get_attribute("aria-label")
    other = ink(curves)
    curves.get_by_label("each seed").check()
    assert len({first[1], pair[1], three[1], other[1], ink(curves)[1]}) == 5
    assert "Each point is the mean of 3 neighbouring logged steps" in curves.locator(".method").inner_text()


def test_a_failed_run_stays_out_of_the_mean_and_is_named(open_page):
    curves = drawn(open_page())
    curves.get_by_label("Show").select_option(label="v7 and its parent v4")
    rows = {name: cells[-1] for name, cells in readout(curves).items()}
    assert rows == {"v4": "3", "v7": "2, 1 did not succeed (dotted)"}


def test_smoothing_keeps_the_raw_line_and_the_numbers(open_page):
    curves = drawn(open_page())
    numbers_before, plain = readout(curves), ink(curves)
    curves.locator(".smooth").fill("0.9")
    assert readout(curves) == numbers_before
    assert ink(curves)[1] != plain[1]
    assert (
        "Thick lines are smoothed (exponential moving average, weight 0.90)" in curves.locator(".method").inner_text()
    )
    drawn_lines = curves.evaluate("root => root.curves.chart.series.length")
    curves.locator(".smooth").fill("0")
    assert curves.evaluate("root => root.curves.chart.series.length") == drawn_lines - len(numbers_before)
    line = curves.evaluate("""root => { const c = root.curves; c.find('.smooth').value = 0.5; c.draw();
        return [c.chart.data[3].slice(0, 3), c.chart.data[4].slice(0, 3)]; }""")  # after steps, lowest and highest
    (a, b, c), found = line
    assert found == pytest.approx([a, (a / 4 + b / 2) / 0.75, (a / 8 + b / 4 + c / 2) / 0.875])


def test_metrics_are_found_by_words_and_by_regular_expression(open_page):
    curves = drawn(open_page())
    search, metric = curves.get_by_label("Search metrics"), curves.locator("select.metric")
    every = metric.locator("option").all_inner_texts()
    search.fill("METRIC 1")
    assert metric.locator("option").all_inner_texts() == ["metric 1 (train/m01)"]
    assert "metric 1" in curves.locator(".chart-title").inner_text()
    assert curves.locator(".metric-count").inner_text() == f"1 of {len(every)}"
    search.fill("m0[02]")
    assert metric.locator("option").all_inner_texts() == [every[0], every[2]]
    search.fill("m0[")  # half typed: no regular expression yet
    assert curves.locator(".metric-count").inner_text() == f"0 of {len(every)}"
    search.fill("")
    assert metric.locator("option").all_inner_texts() == every


def test_a_curve_is_saved_as_data_and_as_a_picture(open_page, tmp_path):
    curves = drawn(open_page())
    curves.get_by_label("Show").select_option(label="v7 and its parent v4")
    curves.get_by_label("logarithmic steps").check()
    saved = save(curves, "CSV", tmp_path)
    assert saved.name == "study-debias-train-m00.csv"
    with saved.open() as file:
        rows = list(csv.DictReader(file))
    steps = curves.evaluate("root => root.curves.metric.steps")
    assert len(rows) == 2 * len(steps)
    last = [row for row in rows if row["variant"] == "v4"][-1]
    seeds = [float(last[f"seed {seed}"]) for seed in range(3)]
    assert float(last["mean"]) == pytest.approx(sum(seeds) / 3)
    assert (float(last["lowest"]), float(last["highest"])) == (min(seeds), max(seeds))
    _, _, least, most, end, _ = readout(curves)["v4"]
    means = [float(row["mean"]) for row in rows if row["variant"] == "v4"]
    assert [float(text.split(" at ")[0]) for text in (least, most, end)] == pytest.approx(
        [min(means), max(means), means[-1]], rel=1e-3
    )
    drawing = save(curves, "SVG", tmp_path)
    picture = ElementTree.parse(drawing).getroot()
    texts = [node.text for node in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"v4", "v7", "metric 0", "step", "10", "100"} <= set(texts)
    paths = [node for node in picture.iter("{http://www.w3.org/2000/svg}path") if node.get("stroke-width") == "2"]
    assert len(paths) == 4  # two lines, two keys
    assert "NaN" not in drawing.read_text()


def test_lines_stand_over_the_time_that_they_took(open_page, tmp_path):
    """Variant n takes 1 + n seconds a step in its first seed, and 2 + n in its second."""
    curves = drawn(open_page(), 1)
    curves.get_by_label("Show").select_option(label="v1 and its parent v0")
    steps, by_step = curves.evaluate("root => root.curves.metric.steps"), ink(curves)
    numbers = readout(curves)
    curves.get_by_label("Horizontal axis").select_option("wall time")
    assert ink(curves)[1] != by_step[1]
    places = dict(curves.evaluate("root => root.curves.parts.map((part) => [part.name, part.x])"))
    assert places["v0"] == pytest.approx([1.5 * step for step in steps])
    assert places["v1"] == pytest.approx([2.5 * step for step in steps])
    assert curves.evaluate("root => root.curves.chart.data[0]") == pytest.approx(
        sorted({1.5 * step for step in steps} | {2.5 * step for step in steps})
    )
    assert readout(curves) == numbers  # at the last step, whenever that was
    curves.get_by_label("logarithmic steps or time").check()
    assert curves.evaluate("root => root.curves.chart.data[0][0]") > 0
    assert "shows the run time in seconds, averaged over seeds" in curves.locator(".method").inner_text()
    with save(curves, "CSV", tmp_path).open() as file:
        last = [row for row in csv.DictReader(file) if row["variant"] == "v1"][-1]
    assert float(last["seconds"]) == pytest.approx(2.5 * float(last["step"]))
    assert ">seconds<" in save(curves, "SVG", tmp_path).read_text()

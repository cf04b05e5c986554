"""The report page as a reader uses it: in a real browser, from file://, by mouse and keyboard, on a phone, in print."""

import csv
import re
from xml.etree import ElementTree

import pytest

from tests.simulate import DEBIAS, Study, simulate
from tracker.judge.measurements import read_measurements
from tracker.judge.pairs import judge_pair
from tracker.show.page.render import write_report
from tracker.store.collect import collect
from tracker.store.database import Store

ATTACK = "<script>alert(1)</script>"
LINEAGE = {**DEBIAS, ATTACK: ("v8", {"rcs.alphas": ([0, 1, 2], ATTACK)})}
STATES = {("v7", 1): "failed", ("v10", 0): "diverged", **{("v9", seed): "failed" for seed in range(3)}}


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    published = {name: {"gender": 0.01 + 0.001 * i, "mean": 0.02} for i, name in enumerate(DEBIAS) if i < 6}
    studies = [
        Study(
            "debias",
            lineage=LINEAGE,
            seeds=3,
            steps=900,
            states=STATES,
            published=published,
        ),
        Study("gspo", variants=8, seeds=2, steps=30),
    ]
    simulate(folder / "results", studies, scale="demo")
    return write_report(collect(folder / "results").database, folder / "index.html")


@pytest.fixture
def open_page(browser, file):
    """Return a function that opens the page; at the end no error, warning or dialog may have been seen."""
    troubles, contexts = [], []

    def opened(width=1280, height=900, scheme="light", scripts=True):
        context = browser.new_context(
            viewport={"width": width, "height": height}, color_scheme=scheme, java_script_enabled=scripts, offline=True
        )
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}"))
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on(
            "request", lambda request: troubles.append(request.url) if not request.url.startswith("file:") else None
        )
        page.goto(file.as_uri())
        return page

    yield opened
    for context in contexts:
        context.close()
    assert troubles == []


def drawn(page):
    """Scroll to the first study's curves, which are drawn when they come into sight; return their element."""
    curves = page.locator(".curves").first
    curves.scroll_into_view_if_needed()
    curves.locator("canvas").wait_for()
    return curves


def column(page, index):
    """Shown values of one column of the first comparison table, without the reference row."""
    rows = page.locator("table.cmp").first.locator("tbody tr:not(.reference):visible")
    return [text.strip() for text in rows.locator(f":nth-child({index})").all_inner_texts()]


def names(page):
    return page.locator("table.cmp").first.locator("tbody tr:not(.reference):visible > th").all_inner_texts()


def numbers(texts):
    return [float(match[0].replace("−", "-")) for text in texts if (match := re.match(r"[−\d.]+", text))]


def test_a_variant_named_like_a_script_is_text(open_page):
    page = open_page()
    assert ATTACK in names(page)
    assert page.locator(f"label.check:has-text('{ATTACK}')").count() == 1
    curves = drawn(page)
    curves.locator(f"label:has-text('{ATTACK}') input").check()
    assert ATTACK in curves.locator(".readout").inner_text()
    assert page.locator("script").count() == 2 * 2 + 7


def test_sorting_goes_both_ways_and_leaves_the_reference_and_the_missing_in_place(open_page):
    page = open_page()
    table = page.locator("table.cmp").first
    lineage_order = names(page)
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
    assert names(page) == lineage_order


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
    page.get_by_label("Verdict").first.select_option("")
    assert names(page) == everything


PIXELS = """canvas => {
  const d = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let painted = 0, sum = 0;
  for (let i = 0; i < d.length; i += 4) {
    if (!d[i + 3]) continue;
    painted++;
    sum = (sum * 31 + d[i] + 7 * d[i + 1] + 13 * d[i + 2] + i) % 1e9;
  }
  return [painted, sum];
}"""


def ink(curves):
    """How many pixels of the chart are painted, and a sum that changes with the picture."""
    curves.page.wait_for_timeout(100)  # the chart is painted in the next frame
    return curves.locator("canvas").evaluate(PIXELS)


def readout(curves):
    """The table of values at a step: {variant: [mean, spread, seeds]}."""
    rows = [row.locator("th, td").all_inner_texts() for row in curves.locator(".readout tbody tr").all()]
    return {name.strip(): cells for name, *cells in rows}


def test_curves_switch_variants_and_metrics(open_page):
    page = open_page()
    curves = drawn(page)
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
    page = open_page()
    curves = drawn(page)
    curves.get_by_label("Show").select_option(label="v7 and its parent v4")
    rows = {name: cells[-1] for name, cells in readout(curves).items()}
    assert rows == {"v4": "3", "v7": "2, 1 not ended well (dotted)"}


BY_HAND = """root => {
  const { data, parts } = root.curves, index = data.variants.indexOf('v1'), step = 7;
  const part = parts.find((p) => p.name === 'v1');
  const value = (text) => new Float32Array(Uint8Array.from(atob(text), (c) => c.charCodeAt(0)).buffer)[step];
  const seeds = data.metrics[0].series.filter((s) => s[0] === index).map((s) => value(s[4]));
  return [part.mean[step], part.low[step], part.high[step], seeds];
}"""


def test_means_and_bands_are_those_of_the_seeds(open_page):
    page = open_page()
    curves = drawn(page)
    curves.get_by_label("Show").select_option(label="v1 and its parent baseline")
    mean, low, high, by_hand = curves.evaluate(BY_HAND)
    assert len(by_hand) == 3
    assert mean == pytest.approx(sum(by_hand) / 3, rel=1e-6)
    assert (low, high) == (min(by_hand), max(by_hand))


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
        edge = judge_pair(read_measurements(store, "debias"), "v6", "v5").edge
    assert outcome.startswith("v6 against v5: ")
    assert numbers(re.findall(r"[−+][\d.]+", outcome.replace("+", ""))) == pytest.approx(
        [value for value in (edge.effect, edge.low, edge.high) if value < 0], abs=6e-4
    )
    assert outcome.endswith(edge.detail)
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
    compare.get_by_label("also keys").check()
    assert ["grpo.weight", "0.3", "0.3"] in compared(page)[2]
    compare.locator("select.other").select_option("v4")
    assert "The study’s own verdict on this change, corrected, is" in compared(page)[1]
    assert curves.get_by_label("Show").input_value() == "v4\x1fv5"


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


def test_a_failed_variant_is_compared_by_configuration_alone(open_page):
    page = open_page()
    compare = page.locator(".compare").first
    compare.locator("select.one").select_option("v9")
    compare.locator("select.other").select_option(ATTACK)
    outcome, notes, rows = compared(page)
    assert " ".join(outcome.split()) == f"v9 against {ATTACK}: invalid"
    assert "v9 seed 0 is failed" in notes
    assert "own verdict" not in notes
    assert ["rcs.alphas", ATTACK, "[0, 1, 2]"] in rows
    compare.locator("select.other").select_option("v9")
    assert compared(page)[0] == "The same variant twice."


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
    assert page.locator(".curves").first.get_by_label("Show").input_value() == "v1\x1fv2"


def test_smoothing_keeps_the_raw_line_and_the_numbers(open_page):
    page = open_page()
    curves = drawn(page)
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
        const p = c.picture().lines[0]; return [p.raw.slice(0, 3), p.mean.slice(0, 3)]; }""")
    (a, b, c), found = line
    assert found == pytest.approx([a, (a / 4 + b / 2) / 0.75, (a / 8 + b / 4 + c / 2) / 0.875])


def test_metrics_are_found_by_words_and_by_regular_expression(open_page):
    page = open_page()
    curves = drawn(page)
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
    page = open_page()
    curves = drawn(page)
    curves.get_by_label("Show").select_option(label="v7 and its parent v4")
    curves.get_by_label("logarithmic steps").check()
    with page.expect_download() as waiting:
        curves.get_by_role("button", name="Save data as CSV").click()
    waiting.value.save_as(tmp_path / "data.csv")
    assert waiting.value.suggested_filename == "study-debias-train-m00.csv"
    with (tmp_path / "data.csv").open() as file:
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
    with page.expect_download() as waiting:
        curves.get_by_role("button", name="Save as SVG").click()
    waiting.value.save_as(tmp_path / "curve.svg")
    picture = ElementTree.parse(tmp_path / "curve.svg").getroot()
    texts = [node.text for node in picture.iter("{http://www.w3.org/2000/svg}text")]
    assert {"v4", "v7", "metric 0", "step", "10", "100"} <= set(texts)
    paths = [node for node in picture.iter("{http://www.w3.org/2000/svg}path") if node.get("stroke-width") == "2"]
    assert len(paths) == 4  # two lines, two keys
    assert "NaN" not in (tmp_path / "curve.svg").read_text()


def test_all_pairs_are_saved_as_data(open_page, file, tmp_path):
    page = open_page()
    with page.expect_download() as waiting:
        page.locator(".compare").nth(1).get_by_role("button", name="Save all pairs as CSV").click()
    waiting.value.save_as(tmp_path / "pairs.csv")
    with (tmp_path / "pairs.csv").open() as content:
        rows = list(csv.DictReader(content))
    assert len(rows) == 8 * 7 // 2
    with Store(file.parent / "results/tracker.duckdb") as store:
        edge = judge_pair(read_measurements(store, "gspo"), "v7", "v3").edge
    [row] = [row for row in rows if (row["variant"], row["against"]) == ("v7", "v3")]
    assert [float(row[name]) for name in ("effect", "low", "high")] == pytest.approx(
        [edge.effect, edge.low, edge.high], rel=1e-4
    )


def test_by_keyboard_alone(open_page):
    page = open_page()
    page.keyboard.press("Tab")
    skip = page.locator(":focus")
    assert skip.inner_text() == "Skip to the results"
    assert skip.bounding_box()["x"] >= 0
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    head = page.locator("table.cmp").first.get_by_role("button", name="race", exact=True)
    head.focus()
    assert head.evaluate("b => getComputedStyle(b).outlineStyle") == "solid"
    for key, direction in (("Enter", "ascending"), ("Space", "descending")):
        page.keyboard.press(key)
        assert page.locator("table.cmp").first.locator(f"th[aria-sort={direction}]").inner_text().startswith("race")
    curves = drawn(page)
    slider = curves.get_by_label("Read the values at step")
    slider.focus()
    at_end = curves.locator(".readout caption").inner_text()
    page.keyboard.press("ArrowLeft")
    assert curves.locator(".readout caption").inner_text() != at_end
    assert re.fullmatch(r"step [\d.]+", slider.get_attribute("aria-valuetext"))
    page.locator(".lineage summary", has_text="Evidence").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".lineage details[open]").count() == 1


NAMELESS = """() => [...document.querySelectorAll('input, select, button, a, summary, [tabindex="0"]')]
  .filter((n) => !(n.labels?.length || n.getAttribute('aria-label') || n.getAttribute('aria-labelledby')))
  .filter((n) => !n.textContent.trim()).map((n) => n.outerHTML)"""
DANGLING = """() => [...document.querySelectorAll('a[href^="#"], [aria-labelledby]')]
  .map((n) => n.getAttribute('aria-labelledby') ?? n.getAttribute('href').slice(1))
  .filter((id) => !document.getElementById(id))"""


def test_every_control_has_a_name(open_page):
    page = open_page()
    drawn(page)
    nameless = page.evaluate(NAMELESS)
    assert nameless == []
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(n => n.id)")
    assert len(ids) == len(set(ids))
    dangling = page.evaluate(DANGLING)
    assert dangling == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 800, 1280])
def test_the_page_is_never_wider_than_the_screen(open_page, width, scheme):
    page = open_page(width, 844, scheme)
    for curves in page.locator(".curves").all():
        curves.scroll_into_view_if_needed()
        curves.locator("canvas").wait_for()
    for details in page.locator("details").all():
        details.evaluate("node => { node.open = true; }")
    assert page.evaluate("document.documentElement.scrollWidth") <= width


# WCAG 2.1, relative luminance and contrast ratio.
CONTRAST = """() => {
  const linear = (x) => (x / 255 <= 0.04045 ? x / 255 / 12.92 : ((x / 255 + 0.055) / 1.055) ** 2.4);
  const rgb = (colour) => colour.match(/[\\d.]+/g).slice(0, 3).map(Number);
  const luminance = (colour) => rgb(colour).map(linear).reduce((sum, v, i) => sum + v * [0.2126, 0.7152, 0.0722][i], 0);
  const behind = (node) => {
    for (; node; node = node.parentElement) {
      const colour = getComputedStyle(node).backgroundColor;
      if (!/, 0\\)$/.test(colour)) return colour;
    }
    return 'rgb(255, 255, 255)';
  };
  const own = (node) => [...node.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim());
  const poor = new Set();
  for (const node of document.querySelectorAll('main *, header *, footer *')) {
    if (node.closest('svg, select') || !own(node)) continue;
    const [a, b] = [luminance(getComputedStyle(node).color), luminance(behind(node))];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < 4.5) poor.add(`${node.tagName}.${node.className} ${ratio.toFixed(2)}`);
  }
  return [...poor];
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_contrast(open_page, scheme):
    page = open_page(scheme=scheme)
    drawn(page)
    assert page.evaluate(CONTRAST) == []


LIGHTNESS = """() => {
  const [r, g, b] = getComputedStyle(document.body).backgroundColor.match(/\\d+/g).map(Number);
  return (r + g + b) / 3;
}"""


def test_dark_mode_is_dark_and_a_print_of_it_is_light(open_page):
    page = open_page(scheme="dark")
    assert page.evaluate(LIGHTNESS) < 60
    page.emulate_media(media="print")
    assert page.evaluate(LIGHTNESS) > 240
    assert page.pdf(format="A4").startswith(b"%PDF")


def test_without_scripts_all_but_the_curves_is_there(open_page):
    page = open_page(scripts=False)
    text = page.locator("main").inner_text()
    assert "The curves need JavaScript." in text
    assert "Choosing two variants needs JavaScript" in text
    page.locator(".all-pairs > summary").first.click()
    assert "1 baseline" in page.locator(".matrix").first.inner_text()
    assert "v8-earlystop-max" in text

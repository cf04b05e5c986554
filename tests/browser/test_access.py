"""The page for every reader: keyboard, screen reader, phone, dark mode, print, no scripts."""

import re
from pathlib import Path

import pytest

from tests.browser.reading import drawn, unfold, with_all_open

AXE = (Path(__file__).parent / "axe" / "axe-4.14.1.min.js").read_text(encoding="utf-8")  # unchanged from npm, MPL 2.0


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
    page.locator(".row summary").first.focus()
    page.keyboard.press("Enter")
    assert page.locator(".row > details[open]").count() == 1


def test_a_folded_page_opens_where_a_link_leads_and_a_print_opens_everything(open_page):
    page = open_page(folded=True)
    studies, parts = page.locator(".study > details"), page.locator(".study .part")
    assert page.locator("details[open]").count() == 0
    page.locator(".overview a").nth(1).click()
    assert [study.get_attribute("open") is not None for study in studies.all()] == [False, True]
    page.goto(page.url.partition("#")[0] + "#study-debias-runs")
    page.locator("#study-debias-runs").wait_for()
    assert studies.first.get_attribute("open") is not None
    for event, opened in (("beforeprint", parts.count()), ("afterprint", 1)):
        page.evaluate("name => window.dispatchEvent(new Event(name))", event)
        assert page.locator(".part[open]").count() == opened


def test_a_phone_shows_a_metric_beside_the_names_and_the_curves_below_two_choices(open_page):
    page = open_page(390, 844)
    page.evaluate("document.querySelectorAll('details.options').forEach((node) => { node.open = false; })")
    table = page.locator("table.cmp").first
    values = table.locator("tbody tr").first.locator("td").first.bounding_box()
    assert values["x"] + values["width"] < 390
    curves = page.locator(".curves").first
    curves.scroll_into_view_if_needed()
    assert curves.locator(".plot").bounding_box()["y"] - curves.bounding_box()["y"] < 200


DANGLING = """() => [...document.querySelectorAll('a[href^="#"], [aria-labelledby]')]
  .map((n) => n.getAttribute('aria-labelledby') ?? n.getAttribute('href').slice(1))
  .filter((id) => !document.getElementById(id))"""


def test_every_id_is_there_once_and_every_link_leads_to_one(open_page):
    page = open_page()
    drawn(page)
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map(n => n.id)")
    assert len(ids) == len(set(ids))
    assert page.evaluate(DANGLING) == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [320, 390, 800, 1280])
def test_the_page_is_never_wider_than_the_screen(open_page, width, scheme):
    page = open_page(width, 844, scheme)
    with_all_open(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= width


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


PAPER = 688  # CSS pixels between the margins of A4

TOO_WIDE = """width => [...document.querySelectorAll('table, svg, .row, p, pre')].filter(
  (node) => node.getBoundingClientRect().width && node.getBoundingClientRect().right > width + 1)
  .map((node) => `${node.tagName}.${node.className.baseVal ?? node.className} ${node.getBoundingClientRect().right}`)"""


def test_nothing_is_cut_off_on_paper(open_page):
    page = open_page(width=PAPER)
    drawn(page)
    unfold(page, "details")
    page.emulate_media(media="print")
    page.evaluate("window.dispatchEvent(new Event('beforeprint'))")
    assert page.evaluate(TOO_WIDE, PAPER) == []
    first = page.locator(".study").first
    assert first.evaluate("node => getComputedStyle(node).breakBefore") == "page"  # after the overview


def test_without_scripts_answers_tree_and_tables_are_there(open_page):
    page = open_page(scripts=False)
    assert "need JavaScript" in page.locator("body").inner_text()
    assert page.locator(".tree .row").count() > 15
    assert "v8-earlystop-max" in page.locator("table.cmp").first.inner_text()


VIOLATIONS = """async () => (await axe.run(document)).violations.flatMap((rule) => rule.nodes.map(
  (node) => `${rule.id} (${rule.impact}): ${node.html.slice(0, 200)} ${node.failureSummary}`))"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [390, 1280])
def test_axe_finds_nothing(open_page, width, scheme):
    """With everything opened and drawn, by all rules of axe-core, best practices included."""
    page = open_page(width, 900, scheme)
    with_all_open(page)
    page.evaluate(AXE)
    assert page.evaluate(VIOLATIONS) == []

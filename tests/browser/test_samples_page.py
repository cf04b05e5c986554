"""Items that changed, in words, as a reader sees them: text from anybody stays text and stays in its box."""

from itertools import product

import pandas as pd
import pytest

from ablation.contract.samples import FILE
from ablation.store.collect import collect
from tests.ablation.show.elements import write_report
from tests.ablation.show.test_samples import HOSTILE, words
from tests.browser.reading import unfold
from tests.simulate import Study, simulate, stage_dir


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("samples")
    plan = simulate(folder / "results", [Study(variants=2, seeds=2, items={"gender": 6, "race": 6}, rho=0.0)])
    for variant, seed in product(("v0", "v1"), range(2)):
        rows = [
            words(variant, seed, f"{subset}-{i:04d}", subset, prompt=said, response=f"{variant} says {said}")
            for subset in ("gender", "race")
            for i, said in enumerate(HOSTILE.values())
        ]
        pd.DataFrame(rows).to_parquet(stage_dir(plan, "toy", variant, seed, "evaluate") / FILE, index=False)
    return write_report(collect(folder / "results").database, folder / "index.html")


def opened(page):
    """Open the evidence and every item; return the section."""
    unfold(page, ".row details")
    return page.locator(".samples").first


def test_what_was_said_is_shown_as_text_and_runs_nothing(open_page):
    page = open_page()
    text = opened(page).inner_text()
    assert HOSTILE["html"] in text
    assert "characters left out" in text
    assert "\ufffd\ufffd\ufffd[31m\ufffd" in text
    assert page.locator("main img, main script").count() == 0
    boxes = page.locator(".said dd, .samples td[dir]")
    assert boxes.count() > 4
    styles = boxes.evaluate_all("nodes => nodes.map(n => [n.getAttribute('dir'), getComputedStyle(n).unicodeBidi])")
    assert {(direction, bidi) for direction, bidi in styles} == {("auto", "isolate")}
    assert page.locator(".said mark").count() > 0


def test_both_groups_stand_beside_each_other_where_there_is_room(open_page):
    for width, columns in ((1280, 2), (390, 1)):
        page = open_page(width)
        groups = opened(page).locator(".quoted-groups").first
        groups.wait_for()
        lefts = groups.locator("> div").evaluate_all("nodes => nodes.map(n => n.getBoundingClientRect().left)")
        assert len(set(lefts)) == columns
        assert groups.locator("h5").all_inner_texts() == ["v0", "v1"]


def test_a_filter_shows_the_items_of_one_subset(open_page):
    page = open_page()
    samples = opened(page)
    every = samples.locator("> ul > li")
    count = every.count()
    samples.get_by_label("Subset").select_option("race")
    shown = samples.locator("> ul > li:visible")
    assert 0 < shown.count() < count
    assert {item.get_attribute("data-subset") for item in shown.all()} == {"race"}
    assert samples.locator("output").inner_text() == f"{shown.count()} of {count} items"
    samples.get_by_label("Subset").select_option("")
    assert samples.locator("> ul > li:visible").count() == count

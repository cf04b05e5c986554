"""The served page as a reader uses it: while a grid runs, over reloads, without scripts, after the server has gone."""

import re
import threading
from pathlib import Path

import pytest
from playwright.sync_api import Error, expect

from ablation.serve import now as now_module
from ablation.serve import painter as painter_module
from ablation.serve.draw import draw
from tests.ablation.serve.asking import Asking, progress
from tests.browser.reading import drawn as curves_of
from tests.simulate import DEBIAS, Study, locked, simulate, stage_dir
from tests.workflow.project import Project, wait_for

QUESTION = 5_000  # ms between two questions of the page
PAUSE = 9_000  # ms, after which it may change under the reader


@pytest.fixture
def serve(monkeypatch):
    """Return a function that serves a results folder and draws in this process, at once when something changed."""
    monkeypatch.setattr(now_module, "RARELY", 0.2)
    monkeypatch.setattr(now_module, "SHARE", 1e9)
    monkeypatch.setattr(painter_module, "SHARE", 1e9)
    started = []

    def start(results):
        asking = Asking(results, every=1.0)
        painter = asking.painter

        def paint():
            draw(results, Path(painter._folder.name), 1.0)
            return ""

        monkeypatch.setattr(painter, "_paint", paint)
        painter.start()
        started.append(asking)
        return asking

    yield start
    for asking in started:
        asking.end()


@pytest.fixture
def open_page(watched):
    """Return a function that opens a server's page."""

    def opened(asking, scripts=True, clock=True, **options):
        page = watched(asking.server.url, lambda: asking.answers, java_script_enabled=scripts, **options)
        if scripts and clock:
            page.clock.install()
        page.goto(asking.server.url)
        return page

    return opened


def drawn(asking, than=""):
    """Wait until the server has another page than before; return its version."""
    wait_for(lambda: asking.painter.page.version not in ("", than))
    return asking.painter.page.version


def is_new(page):
    """Whether the page has been loaded again since `window.old` was set; its policy keeps Playwright from waiting."""
    try:
        return page.evaluate("window.old === undefined && document.readyState === 'complete'")
    except Error:  # it is being loaded
        return False


@pytest.fixture
def results(tmp_path):
    """A study of many variants, of which one stage is still to run and one runs."""
    folder = tmp_path / "results"
    studies = [
        Study("debias", lineage=DEBIAS, steps=60, states={("v10", 1): "running"}),
        Study("gspo", variants=8, steps=30),
    ]
    simulate(folder, studies, scale="demo")
    return folder


def finish(results):
    """End the stage that runs, as a failure: the page is another one then."""
    folder, other = (stage_dir(results / "plan.json", "debias", name, 1, "train") for name in ("v10", "v9"))
    status = (other / "status.json").read_text()
    (folder / "status.json").write_text(status.replace(other.name, folder.name).replace('"ok"', '"failed"'))


def test_the_page_follows_a_grid_from_before_its_plan_to_its_end(serve, open_page, tmp_path):
    project = Project.create(tmp_path / "project")
    project.write("configs/studies/debias/c.yaml", "extends: a\nwhy: longer\nsteps: 400\npause: 0.2\n")
    page = open_page(serve(project.folder / "results"), clock=False)
    now = page.locator("#now")
    assert "Nothing has been planned yet" in now.inner_text()
    ended = []
    grid = threading.Thread(target=lambda: ended.append(project.snakemake()))
    grid.start()
    try:
        row = now.locator("tr", has_text="debias.train").filter(has_text="c seed 0")
        row.get_by_text(re.compile(r"\d+ of 400 steps")).wait_for(timeout=240_000)
        row.get_by_text(re.compile(r"about \d+ s")).wait_for(timeout=120_000)
        page.locator("#study-debias").wait_for(timeout=120_000)  # the first page has come, without a touch
        assert now.get_by_role("heading").inner_text() == "Running now"
        assert re.match(r"\d+/\d+ Ablation report", page.title())
        before = float(row.locator("progress").get_attribute("value"))
        wait_for(lambda: float(row.locator("progress").get_attribute("value")) > before)
    finally:
        project.write("hurry", "")
        grid.join()
    now.get_by_text("All stages have ended").wait_for(timeout=120_000)
    page.locator("table.cmp").get_by_text("401.5").wait_for(timeout=120_000)  # the mean score of 400 steps
    assert ended[0].returncode == 0
    assert not list(project.folder.glob("results/**/*serve*"))


def test_a_reload_keeps_place_choices_sorting_and_focus(serve, open_page, results):
    asking = serve(results)
    version = drawn(asking)
    page = open_page(asking, viewport={"width": 1280, "height": 800})
    page.get_by_label("Filter").first.fill("v")
    page.get_by_label("Verdict").first.select_option("undecided")
    table = page.locator("table.cmp").first
    for _ in range(2):
        table.get_by_role("button", name="gender", exact=True).click()
    rows = table.locator("tbody tr:visible").all_inner_texts()
    details = page.locator(".lineage details").nth(3)
    details.locator("summary").click()
    curves = curves_of(page)
    curves.locator(".metric").select_option("1")
    curves.locator(".variants input").nth(5).check()
    curves.locator(".smooth").fill("0.5")
    chosen = curves.locator(".variants input:checked").evaluate_all("boxes => boxes.map((b) => b.value)")
    heading = page.locator("h3", has_text="Learning curves").first
    page.keyboard.press("Escape")
    page.evaluate("document.querySelector('.curves .each-seed').focus()")
    heading.evaluate("h => h.scrollIntoView()")
    top = heading.bounding_box()["y"]
    finish(results)
    drawn(asking, version)
    page.evaluate("window.old = true")
    page.clock.fast_forward(PAUSE)
    page.clock.fast_forward(QUESTION)
    wait_for(lambda: is_new(page))
    curves.locator("canvas").wait_for()
    page.clock.fast_forward(1_000)
    assert page.get_by_label("Filter").first.input_value() == "v"
    assert page.get_by_label("Verdict").first.input_value() == "undecided"
    assert table.locator("th[aria-sort=descending]").inner_text().startswith("gender")
    assert set(table.locator("tbody tr:visible").all_inner_texts()) & set(rows)
    assert page.locator(".lineage details").nth(3).get_attribute("open") is not None
    assert curves.locator(".metric").input_value() == "1"
    assert curves.locator(".smooth").input_value() == "0.5"
    assert curves.locator(".variants input:checked").evaluate_all("boxes => boxes.map((b) => b.value)") == chosen
    assert page.evaluate("document.activeElement.className") == "each-seed"
    assert heading.bounding_box()["y"] == pytest.approx(top, abs=40)


def test_it_does_not_change_under_who_writes_or_does_not_want_it(serve, open_page, results):
    asking = serve(results)
    version = drawn(asking)
    page = open_page(asking)
    page.get_by_label("Filter").first.fill("v1")
    finish(results)
    drawn(asking, version)
    page.evaluate("window.old = true")
    show = page.get_by_role("button", name="New results are there: show them")
    page.clock.fast_forward(PAUSE)
    page.clock.fast_forward(QUESTION)
    show.wait_for()
    assert page.evaluate("window.old")  # the cursor is in the filter
    page.get_by_label("show new results when I pause").uncheck()
    page.clock.fast_forward(2 * PAUSE)
    assert page.evaluate("window.old")
    show.click()
    wait_for(lambda: is_new(page))
    assert page.get_by_label("Filter").first.input_value() == "v1"
    assert not page.get_by_label("show new results when I pause").is_checked()
    assert show.is_hidden()
    assert "1\xa0failed" in page.locator(".overview").inner_text()


def test_a_server_that_has_gone_is_said_and_one_that_comes_back_too(serve, open_page, results, monkeypatch):
    asking = serve(results)
    drawn(asking)
    page = open_page(asking)
    status = page.locator(".now-follow [role=status]")
    asking.answers = False
    page.route("**/now", lambda route: route.abort())
    page.clock.fast_forward(QUESTION)
    status.get_by_text("The server has not answered since").wait_for()
    page.unroute("**/now")
    page.clock.fast_forward(QUESTION)
    expect(status).to_have_text("")


def test_without_scripts_it_is_loaded_again_by_itself(serve, open_page, results):
    asking = serve(results)
    version = drawn(asking)
    page = open_page(asking, scripts=False)
    assert page.locator("#now").get_attribute("data-page") == version
    assert page.locator(".now-follow").count() == 0
    finish(results)
    newer = drawn(asking, version)
    page.locator(f"#now[data-page='{newer}']").wait_for(timeout=10_000)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_runs_now_fits_a_phone_and_can_be_read(serve, open_page, results, scheme):
    folder = stage_dir(results / "plan.json", "debias", "v10", 1, "train")
    asking = serve(results)
    with locked(folder):
        progress(folder)
        drawn(asking)
        page = open_page(asking, viewport={"width": 320, "height": 640}, color_scheme=scheme)
        page.locator("#now").get_by_text("5 of 20 steps").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 320
        assert page.locator(".now-running progress").get_attribute("aria-label") == "debias.train v10 seed 1"

"""The served page as a reader uses it: over redrawings, without scripts, after the server has gone."""

import pytest

from ablation.serve.draw import draw
from tests.ablation.serve.asking import Asking, progress
from tests.browser.reading import unfold
from tests.simulate import Study, locked, simulate, stage_dir
from tests.workflow.project import wait_for

QUESTION = 5_000  # ms between two questions of the page


@pytest.fixture
def asking(tmp_path):
    """A server of two studies, of which one stage runs; its page is drawn."""
    results, folder = tmp_path / "results", tmp_path / "drawn"
    folder.mkdir()
    simulate(results, [Study("debias", states={("v2", 1): "running"}), Study("gspo")], scale="demo")
    draw(results, folder, 1.0)
    started = Asking(results, folder)
    yield started
    started.end()


@pytest.fixture
def open_page(watched):
    """Return a function that opens a server's page."""

    def opened(asking, scripts=True, **options):
        page = watched(asking.server.url, lambda: asking.answers, java_script_enabled=scripts, **options)
        if scripts:
            page.clock.install()
        page.goto(asking.server.url)
        return page

    return opened


def finish(asking):
    """End the stage that runs, as a failure, and draw the page again."""
    plan = asking.server.results / "plan.json"
    folder, other = (stage_dir(plan, "debias", name, 1, "train") for name in ("v2", "v3"))
    status = (other / "status.json").read_text()
    (folder / "status.json").write_text(status.replace(other.name, folder.name).replace('"ok"', '"failed"'))
    before = version(asking)
    draw(asking.server.results, asking.server.folder, 1.0)
    wait_for(lambda: version(asking) != before)


def version(asking):
    return asking.text("/now").partition("\n")[0]


def test_a_newer_page_appears_until_the_reader_has_used_one(asking, open_page):
    page = open_page(asking)
    before = version(asking)
    finish(asking)
    page.clock.fast_forward(QUESTION)
    page.locator(f"#now[data-page='{version(asking)}']").wait_for()
    assert version(asking) != before
    assert "1\xa0failed" in page.locator("main").text_content()
    unfold(page)
    page.get_by_label("Filter").first.fill("v1")
    draw(asking.server.results, asking.server.folder, 1.0)
    page.clock.fast_forward(QUESTION)
    page.locator("#now").get_by_text("Newer results are available; reload the page.").wait_for()
    assert page.get_by_label("Filter").first.input_value() == "v1"


def test_a_server_that_has_gone_is_said(asking, open_page):
    page = open_page(asking)
    asking.answers = False
    page.route("**/now", lambda route: route.abort())
    page.clock.fast_forward(QUESTION)
    page.locator("#now").get_by_text("The server has stopped").wait_for()


def test_without_scripts_it_is_loaded_again_by_itself(asking, open_page):
    page = open_page(asking, scripts=False)
    finish(asking)
    page.locator(f"#now[data-page='{version(asking)}']").wait_for()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_what_runs_now_fits_a_phone_and_can_be_read(asking, open_page, scheme):
    folder = stage_dir(asking.server.results / "plan.json", "debias", "v2", 1, "train")
    with locked(folder):
        progress(folder)
        page = open_page(asking, viewport={"width": 320, "height": 640}, color_scheme=scheme)
        page.locator("#now").get_by_text("5/20 steps").wait_for()
        assert page.evaluate("document.documentElement.scrollWidth") <= 320

"""A headless Chromium of the system, and a report to open in it.

In CI the tests fail without a browser; elsewhere they are skipped with the remedy.
"""

import os
import shutil
from itertools import product

import pandas as pd
import pytest
from playwright.sync_api import sync_playwright

from ablation.store.collect import collect
from tests.ablation.show.elements import write_report
from tests.browser.reading import ATTACK, unfold
from tests.simulate import DEBIAS, Study, simulate, stage_dir
from tests.time_limit import PATIENCE

TREE = {**DEBIAS, ATTACK: ("v8", {"rcs.alphas": ([0, 1, 2], ATTACK)})}
STATES = {
    ("v8-earlystop-max", 2): "missing",
    ("v7", 1): "failed",
    ("v10", 0): "diverged",
    **{("v9", seed): "failed" for seed in range(3)},
}
NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture(scope="session")
def browser():
    """One browser for all tests; each test opens its own context."""
    found = next((path for name in NAMES if (path := shutil.which(name))), None)
    if found is None:
        lacking = pytest.fail if os.environ.get("CI") else pytest.skip
        lacking("no Chromium on this machine: apt-get install chromium")
    with sync_playwright() as playwright:
        # Root, as in containers, has no sandbox; the pages opened here are our own.
        launched = playwright.chromium.launch(executable_path=found, args=["--no-sandbox"])
        yield launched
        launched.close()


def log_time(metrics, seconds):
    """Add the time since the start to a stage's metrics: so many seconds a step."""
    logged = pd.read_parquet(metrics)
    steps = logged["step"].unique()
    elapsed = pd.DataFrame({"step": steps, "name": "time/elapsed_s", "value": seconds * steps.astype(float)})
    pd.concat([logged, elapsed]).to_parquet(metrics, index=False)


@pytest.fixture(scope="session")
def file(tmp_path_factory):
    folder = tmp_path_factory.mktemp("report")
    published = {name: {"gender": 0.01 + 0.001 * i, "mean": 0.02} for i, name in enumerate(DEBIAS) if i < 6}
    studies = [
        Study("debias", variant_tree=TREE, seeds=3, steps=900, states=STATES, published=published),
        Study("gspo", variants=8, seeds=2, steps=30),
    ]
    plan = simulate(folder / "results", studies, scale="demo")
    for variant, seed in product(range(8), range(2)):
        log_time(stage_dir(plan, "gspo", f"v{variant}", seed, "train") / "metrics.parquet", 1.0 + variant + seed)
    return write_report(collect(folder / "results").database, folder / "index.html")


@pytest.fixture
def watched(browser):
    """Return a function that makes a page; no error, warning, dialog or request elsewhere may have been seen."""
    troubles, contexts = [], []

    def made(own, heard=lambda: True, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        context.set_default_timeout(PATIENCE / 5 * 1000)
        page = context.new_page()
        page.on("console", lambda message: troubles.append(f"{message.type}: {message.text}") if heard() else None)
        page.on("pageerror", lambda error: troubles.append(str(error)))
        page.on("dialog", lambda dialog: (troubles.append(f"dialog: {dialog.message}"), dialog.dismiss()))
        page.on("request", lambda request: None if request.url.startswith(own) else troubles.append(request.url))
        return page

    yield made
    for context in contexts:
        context.close()
    assert troubles == []


@pytest.fixture
def open_page(watched, file):
    """Return a function that opens the report, by default with its studies and their parts unfolded."""

    def opened(width=1280, height=900, scheme="light", scripts=True, folded=False):
        size = {"width": width, "height": height}
        page = watched("file:", viewport=size, color_scheme=scheme, java_script_enabled=scripts, offline=True)
        page.goto(file.as_uri())
        if scripts:
            page.locator("html[data-ready]").wait_for(state="attached")
        if not folded:
            unfold(page)
        return page

    return opened

"""A headless Chromium of the system. In CI the tests fail without one; elsewhere they are skipped with the remedy."""

import os
import shutil

import pytest
from playwright.sync_api import sync_playwright

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


@pytest.fixture
def open_page(browser, file):
    """Return a function that opens the page `file`, which each module makes; there may be no error and no dialog."""
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

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

"""Headless Chromium, where it is there."""

import os
import shutil

import pytest

CHROMIUM = os.environ.get("CAFEXAI_CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="module")
def browser():
    api = pytest.importorskip("playwright.sync_api", reason="no playwright: make browser installs it")
    if CHROMIUM is None:
        pytest.skip("no chromium: make browser installs it")
    with api.sync_playwright() as driver:
        made = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield made
        made.close()

"""The page of a monitor in headless Chromium: it asks for nothing, fits a phone, and axe finds nothing."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import nn

from cafexai import CAFE
from cafexai.monitor import Monitor, write_page

pytestmark = pytest.mark.browser
SIZES = {"wide": (1100, 900), "phone": (400, 800)}


@pytest.fixture(scope="module")
def content():
    torch.manual_seed(0)
    names = ["age", "income", "debts", "a name that is so long that it must be broken into several lines"]
    cafe = CAFE(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1)).float(), feature_names=names)

    def draw(rows, seed):
        x = np.random.default_rng(seed).normal(size=(rows, 4))
        x[:, 3] = np.floor(2 * x[:, 3])
        return torch.tensor(x, dtype=torch.float32)

    monitor, verdicts, odd = Monitor.fit(cafe, draw(1000, 0), false_alarms=0.1), {}, {}
    for day in range(12):
        x = draw(300, day + 1)
        if day > 8:
            x[:, 1] += 0.3 * (day - 8)
            x[:20, 3] = 77
        signals = monitor.read(x)
        name = f"2026-03-{day + 1:02d}"
        verdicts[name], odd[name] = monitor.check(signals), monitor.find_odd_rows(signals)
    return write_page(verdicts, odd, "Bank model, March")


@pytest.fixture
def visit(browser, tmp_path, content):
    contexts, trouble = [], []

    def opened(**options):
        path = tmp_path / "monitor.html"
        path.write_text(content, "utf-8")
        contexts.append(browser.new_context(**options))
        page = contexts[-1].new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: trouble.append(request.url))
        page.goto(path.as_uri())
        assert trouble.pop(0) == path.as_uri()
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [line for line in trouble if not line.startswith("data:")] == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("size", SIZES)
def test_fits_the_screen(visit, size, scheme):
    wide, tall = SIZES[size]
    page = visit(viewport={"width": wide, "height": tall}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= wide
    assert page.locator("svg").count() > 8
    assert page.locator(".badge.alert, .badge.warn").count() >= 3
    page.locator("a[href='#w11']").click()
    assert page.evaluate("location.hash") == "#w11"


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_violation(visit, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: make browser installs it")
    result = axe.Axe().run(visit(color_scheme=scheme, viewport={"width": 1100, "height": 900}))
    assert result.violations_count == 0, result.generate_report()

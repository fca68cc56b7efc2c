"""The built site in headless Chromium: it asks no other host, search works, its pictures have the numbers of the library."""

import math
import random
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
import torch.nn.functional as F

import naive
from cafexai import CAFE

pytestmark = pytest.mark.browser
ROOT = Path(__file__).parents[2]
SITE = ROOT / "build" / "site"
FUNCTIONS = {
    "ReLU": torch.relu,
    "GELU": F.gelu,
    "SiLU": F.silu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
    "ELU": F.elu,
    "leaky ReLU": F.leaky_relu,
}


@pytest.fixture(scope="module")
def site():
    """The address of the site, built now; the build checks its links, its hosts and its size."""
    pytest.importorskip("zensical", reason="no zensical: make docs installs it")
    done = subprocess.run([sys.executable, ROOT / "docs" / "scripts" / "build.py"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return SITE.as_uri()


@pytest.fixture
def visit(browser, site):
    """Open a page of the site; errors and requests of other hosts fail the test."""
    contexts, trouble = [], []

    def opened(name, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: message.type == "error" and trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: request.url.startswith(("file:", "data:", "blob:")) or trouble.append(request.url))
        page.goto(f"{site}/{name}")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert trouble == []


def set_values(page, values):
    """Move sliders and choose from lists, as a reader does."""
    page.evaluate(
        """values => { for (const [name, value] of Object.entries(values)) {
            const one = document.querySelector(`[name=${name}]`);
            one.value = value;
            one.dispatchEvent(new Event(one.tagName === "SELECT" ? "change" : "input"));
        } }""",
        values,
    )


def numbers(page):
    """All numbers of the picture by name, with all their digits."""
    return page.evaluate(
        "() => Object.fromEntries([...document.querySelectorAll('[data-name]')]"
        ".map(one => [one.dataset.name, +one.dataset.value]))"
    )


def test_the_neuron_has_the_numbers_of_the_library(visit):
    page, draw = visit("index.html"), random.Random(0)
    model = lambda x: torch.relu(0.9 * x[:, 0] - x[:, 1])  # noqa: E731
    for trial in range(100):
        x = [1.0, 1.0] if trial == 0 else [round(draw.random(), 2) for _ in range(2)]
        set_values(page, dict(zip(("x1", "x2"), x, strict=True)))
        row = torch.tensor([x], dtype=torch.float64)
        default, published = CAFE(model).explain(row), CAFE.published(model, c=1).explain(row)
        found = numbers(page)
        for i in range(2):
            assert found[f"default-{i}"] == pytest.approx(default.combined[0, i].item(), abs=1e-9), x
            assert found[f"published-{i}"] == pytest.approx(published.combined[0, i].item(), abs=1e-9), x
        assert found["conflict"] == pytest.approx(default.conflict.item(), abs=1e-9), x
        leaf = row.clone().requires_grad_()
        slopes = torch.autograd.grad(model(leaf).sum(), leaf)[0] * row
        assert [found["gradient-0"], found["gradient-1"]] == pytest.approx(slopes[0].tolist(), abs=1e-9), x
        share = float(page.get_attribute("[data-name=conflict]", "data-share"))
        assert share == pytest.approx(default.conflict_share.item(), abs=1e-9), x


def test_the_flows_have_the_numbers_of_the_library(visit):
    page, draw = visit("understand/flows.html"), random.Random(1)
    for trial in range(100):
        name = list(FUNCTIONS)[trial % len(FUNCTIONS)]
        phi = FUNCTIONS[name]
        p, n, r, c = (round(draw.uniform(*bounds), 2) for bounds in ((0, 4), (0, 4), (-2, 2), (0, 1)))
        if trial < 16 and trial % 2:
            n, r = (p, r) if trial < 8 else (0.0, 0.0)  # everything cancels; nothing does
        set_values(page, {"phi": name, "p": p, "n": n, "r": r, "c": c})
        found, case = numbers(page), (name, p, n, r, c)

        def value(x, phi=phi):
            return phi(torch.tensor(x, dtype=torch.float64)).item()

        at = {"ref": value(r), "comb": value(r + p - n), "pos": value(r + p), "neg": value(r - n)}
        for way, amount in naive.flows(r, p, n, at.__getitem__).items():
            assert found[way] == pytest.approx(amount, abs=1e-6), (case, way)
        row, start = (torch.tensor([values], dtype=torch.float64) for values in ([r, p, n], [r, 0.0, 0.0]))

        def model(x, phi=phi):  # twice, as a sigmoid that is the output itself is left out
            return 2 * phi(x[:, 0] + x[:, 1] - x[:, 2])

        for variant in ("published", "default"):
            e = CAFE(model, c, variant).explain(row, start, conflict="net")
            for i in range(2):
                for sign in ("positive", "negative"):
                    amount = getattr(e, sign)[0, i + 1].item() / 2
                    assert found[f"{variant}-{i}-{sign}"] == pytest.approx(amount, abs=1e-6), (case, variant, i, sign)
            assert found[f"{variant}-sum"] == pytest.approx((e.output - e.baseline_output).item() / 2, abs=1e-6), case
        assert math.isfinite(sum(found.values()))


def test_search_finds_a_word_without_a_server(visit):
    page = visit("index.html", viewport={"width": 1300, "height": 900})
    page.keyboard.press("/")
    page.get_by_placeholder("Search").last.wait_for()
    page.wait_for_timeout(300)
    page.keyboard.type("netting", delay=30)
    page.get_by_text(re.compile(r"^\d+ results?$")).first.wait_for(timeout=10_000)
    assert page.get_by_text("Understand").count() > 0


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("name", ["index.html", "understand/flows.html"])
def test_a_phone_shows_pages_without_scrolling_sideways(visit, scheme, name):
    page = visit(name, viewport={"width": 390, "height": 844}, color_scheme=scheme)
    assert page.evaluate("document.documentElement.scrollWidth") <= 391

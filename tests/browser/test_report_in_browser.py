"""The report in headless Chromium: closed, usable by keyboard, readable by everybody, printed without loss.

``make browser`` installs what this needs. Debian's chromium is driven by playwright; axe checks accessibility.
"""

import io
import re
import sys
import time
from pathlib import Path

import pytest
import torch
from torch import nn

from cafexai import CAFE

sys.path.insert(0, str(Path(__file__).parent.parent))
from reporting.test_report import hostile_page, images, texts

pytestmark = pytest.mark.browser
NAMES = ["age", "income", "debts", "a name that is so long that it must be broken into several lines", "city", "job"]
ROWS = 9


def table():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(6, 16), nn.GELU(), nn.Linear(16, 1), nn.Sigmoid())
    explanation = CAFE(model).explain(torch.randn(ROWS, 6), feature_names=NAMES)
    codes = torch.arange(ROWS) % 3
    return explanation.replace(
        display=torch.cat([explanation.inputs[:, :5], codes[:, None]], 1),
        categories={"job": ("nurse", "cook", "clerk")},
        probability=torch.sigmoid(explanation.output),
    )


def several():
    torch.manual_seed(0)
    return CAFE(nn.Sequential(nn.Linear(3, 6), nn.ReLU(), nn.Linear(6, 2))).explain(torch.randn(4, 3), target="all")


KINDS = {"table": table, "images": images, "texts": texts, "several": several}


@pytest.fixture
def visit(browser, tmp_path):
    """Open a page in a context of its own; whatever it logs or asks for is an error at the end."""
    contexts, trouble = [], []

    def opened(content, **options):
        path = tmp_path / "report.html"
        if isinstance(content, str):
            path.write_text(content, "utf-8")
        else:
            content.report(path)
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: trouble.append(message.text))
        page.on("pageerror", lambda error: trouble.append(str(error)))
        page.on("request", lambda request: trouble.append(request.url))
        page.goto(path.as_uri())
        assert trouble.pop(0) == path.as_uri()  # the page itself
        return page

    yield opened
    for context in contexts:
        context.close()
    assert [line for line in trouble if not line.startswith("data:")] == []


def order(page, wanted=None):
    """The rows that are seen, from top to bottom; keys take a moment to act, so that it waits for what is wanted."""
    until = time.monotonic() + 5
    while True:
        found = page.locator("#rows > details:visible > summary > b").all_inner_texts()
        if wanted is None or found == wanted or time.monotonic() > until:
            return found
        page.wait_for_timeout(50)


def tab_to(page, identity):
    """Reach an element by the tab key alone."""
    for _ in range(60):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == identity:
            return
    raise AssertionError(f"{identity} cannot be reached by the tab key")


@pytest.mark.parametrize("kind", KINDS)
def test_opens_without_errors_and_requests(visit, kind):
    page = visit(KINDS[kind]())
    page.locator("#all").click()
    assert page.locator("details[open]").count() == page.locator("details").count() > 0
    assert page.locator("details table").first.is_visible()


def test_sorts_by_keyboard(visit):
    explanation = table()
    page = visit(explanation)
    tab_to(page, "order")
    page.keyboard.press("ArrowDown")
    share = explanation.conflict_share
    assert order(page, wanted := [f"Row {i}" for i in share.argsort(descending=True).tolist()]) == wanted
    page.keyboard.press("End")
    errors = [float(f"{error:.2g}") for error in explanation.completeness_error.abs().tolist()]
    assert order(page, wanted := [f"Row {i}" for i in sorted(range(ROWS), key=lambda i: -errors[i])]) == wanted
    for key, descending in (("ArrowUp", False), ("ArrowUp", True)):
        page.keyboard.press(key)
        assert order(page, wanted := [f"Row {i}" for i in explanation.output.argsort(descending=descending).tolist()]) == wanted
    page.keyboard.press("Home")
    assert order(page, wanted := [f"Row {i}" for i in range(ROWS)]) == wanted


def test_searches_by_keyboard(visit):
    page = visit(table())
    tab_to(page, "search")
    page.keyboard.type("job=cook")
    assert order(page, wanted := ["Row 1", "Row 4", "Row 7"]) == wanted
    assert page.locator("#status").inner_text() == f"3 of {ROWS} rows"
    page.keyboard.type(", row 4")
    assert order(page, wanted := ["Row 4"]) == wanted
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    assert len(order(page, [f"Row {i}" for i in range(ROWS)])) == ROWS
    page.keyboard.type("ROW 4")
    assert order(page, wanted := ["Row 4"]) == wanted
    page.keyboard.type(" no such thing")
    assert order(page, wanted := []) == wanted


def test_rows_open_by_keyboard_and_by_link(visit):
    page = visit(table())
    tab_to(page, "all")
    page.keyboard.press("Tab")
    page.keyboard.press("Enter")
    assert page.locator("details[open]").evaluate_all("rows => rows.map(row => row.id)") == ["r0"]
    link = page.locator("section a").first
    link.focus()
    page.keyboard.press("Enter")
    row = link.get_attribute("href").removeprefix("#")
    page.locator(f"#{row} table").wait_for(state="visible")
    assert page.evaluate("document.activeElement.parentElement.id") == row


def test_one_of_several_can_be_chosen(visit):
    page = visit(several())
    tab_to(page, "which")
    assert len(order(page)) == 8
    page.keyboard.press("End")
    assert order(page, wanted := [f"Row {i}" for i in range(4)]) == wanted
    assert page.locator("#rows > details:visible .t").all_inner_texts() == ["output 1"] * 4


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("kind", KINDS)
def test_axe_finds_no_violation(visit, kind, scheme):
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="no axe: make browser installs it")
    page = visit(KINDS[kind](), color_scheme=scheme)
    page.locator("#all").click()
    result = axe.Axe().run(page)
    assert result.response["passes"]
    assert result.violations_count == 0, result.generate_report()


def test_nothing_from_the_data_runs(visit):
    page = visit(hostile_page())
    page.locator("#all").click()
    assert page.evaluate("window.hacked") is None
    assert page.locator("h1 script, h1 img, table img, p script").count() == 0
    assert page.locator("h1").inner_text().startswith("<script>window.hacked=1</script>")


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("width", [400, 1200])
def test_nothing_is_wider_than_the_screen(visit, kind, width):
    page = visit(KINDS[kind](), viewport={"width": width, "height": 800})
    page.locator("#all").click()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate("parseFloat(getComputedStyle(document.querySelector('td:last-child')).fontSize)") >= 12


def pages_of(page):
    pdf = pytest.importorskip("pypdf", reason="no pypdf: make browser installs it")
    return [sheet.extract_text() for sheet in pdf.PdfReader(io.BytesIO(page.pdf(format="A4"))).pages]


@pytest.mark.parametrize("script", [True, False], ids=["script", "no script"])
def test_all_rows_are_printed_and_no_table_is_cut(visit, script):
    """Also those that are closed, or that a search has hidden; each row stands on one page, from its name to its output."""
    page = visit(table(), java_script_enabled=script, color_scheme="dark")
    if script:
        page.locator("#search").fill("Row 4")
        assert order(page, ["Row 4"]) == ["Row 4"]
    sheets = pages_of(page)
    for row in range(ROWS):
        (sheet,) = [text for text in sheets if re.search(rf"^Row {row}\b", text, re.MULTILINE)]
        own = re.split(r"^Row \d+\b", re.split(rf"^Row {row}\b", sheet, flags=re.MULTILINE)[1], flags=re.MULTILINE)[0]
        assert "baseline output" in own
        assert re.search(r"^output", own, re.MULTILINE)
    if script:
        assert order(page, ["Row 4"]) == ["Row 4"]  # as before


def test_without_script_it_can_be_read(visit):
    page = visit(table(), java_script_enabled=False)
    assert page.locator("#tools").is_hidden()
    assert "needs the script" in page.locator("noscript").inner_text()
    page.locator("#r3 > summary").click()
    assert page.locator("#r3 table").is_visible()


def test_two_thousand_rows_are_sorted_at_once(visit):
    """Far below the limit; a style that asks for the last row had made it take a hundred times as long."""
    torch.manual_seed(0)
    page = visit(CAFE(nn.Sequential(nn.Linear(30, 8), nn.ReLU(), nn.Linear(8, 1))).explain(torch.randn(2000, 30)))
    seconds = page.evaluate(
        """() => {
            const start = performance.now(), order = document.getElementById("order");
            order.value = "-o";
            order.dispatchEvent(new Event("input"));
            document.body.offsetHeight;
            return (performance.now() - start) / 1000;
        }"""
    )
    outputs = page.locator("#rows > details").evaluate_all("rows => rows.map(row => +row.dataset.o)")
    assert outputs == sorted(outputs, reverse=True)
    assert len(outputs) == 2000
    assert seconds < 5

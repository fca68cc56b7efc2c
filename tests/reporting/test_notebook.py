"""What a notebook shows: every picture and every table once, static, escaped, and never too long."""

import dataclasses
import os
from pathlib import Path

import pytest
import torch
from torch import nn

import cafexai
from cafexai import CAFE
from cafexai.comparison.result import Comparison
from plotting.test_pictures import audited, compared, image, table, text
from plotting.test_rounding import Cells

SETUP = """
import torch
from functools import partial
from cafexai import CAFE, compare
from cafexai.conflicts import audit
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.ReLU(), torch.nn.Linear(8, 2))
x = torch.randn(6, 4)
e = CAFE(model).explain(x)
"""
CELLS = {  # what a cell ends with -> what it must show, once
    "e.plot(0)": "image/png",
    "e.plot.summary()": "image/png",
    "e.plot(0).show()": "image/png",
    "e.plot(0).show()\nNone": "image/png",
    "e.ledger(0)": "text/html",
    "e": "text/html",
    "e[0]": "text/html",
    "CAFE(model).explain_classes(x)": "text/html",
    "audit(partial(CAFE, c=1.0), model, x)": "text/html",
    "compare(model, x, methods=['cafe'], metrics=['complexity'], show_progress=False)": "text/html",
    "%matplotlib inline\nimport matplotlib.pyplot as plt\ne.plot(0)": "image/png",
    "e.plot(1)  # behind %matplotlib inline": "image/png",
}


@pytest.fixture(scope="module")
def notebook():
    import nbformat
    from nbclient import NotebookClient

    sources = [SETUP, *CELLS]
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(source) for source in sources])
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(Path(cafexai.__file__).parent.parent)
    try:
        NotebookClient(made, timeout=240, kernel_name="python3").execute()
    finally:
        os.environ.pop("PYTHONPATH")
        if before is not None:
            os.environ["PYTHONPATH"] = before
    return {cell.source: cell.outputs for cell in made.cells}


@pytest.mark.parametrize("source", CELLS)
def test_shown_once(notebook, source):
    shown = [output.data for output in notebook[source] if output.output_type in ("display_data", "execute_result")]
    assert len(notebook[source]) == len(shown) == 1
    rich = {kind for kind in shown[0] if kind != "text/plain"}
    assert rich == {CELLS[source]}
    if CELLS[source] == "image/png":
        assert len(shown[0]["image/png"]) > 10_000
    else:
        assert shown[0]["text/html"].count("<table") == 1


def test_nothing_is_printed_while_explaining(notebook):
    assert notebook[SETUP] == []


def nasty():
    names = ["<script>alert(1)</script>", "a & b", '"quoted"', "\u05d0\u05d1", "x" * 200]
    e = table(3).replace(feature_names=tuple(names), class_names=("<b>", "<b>", "<b>"), notes=("<i>note",))
    return e.replace(probability=torch.full((3,), 0.5))


def long():
    torch.manual_seed(0)
    return CAFE(nn.Linear(500, 40)).explain(torch.randn(200, 500), target="all")


PAGES = {
    "rows": lambda: nasty()._repr_html_(),
    "row": lambda: nasty()[0]._repr_html_(),
    "image": lambda: image(3)[0]._repr_html_(),
    "text": lambda: text(1).replace(tokens=(("<script>", *["</div>"] * 18),))._repr_html_(),
    "classes": lambda: table(target="all")._repr_html_(),
    "class": lambda: table(1, target="all")._repr_html_(),
    "audit": lambda: dataclasses.replace(audited(), skipped={"<script>": "<b>"})._repr_html_(),
    "comparison": lambda: dataclasses.replace(compared(), reasons={"<script>": "a < b"})._repr_html_(),
    "many": lambda: long()._repr_html_(),
    "many rows": lambda: long()[0]._repr_html_(),
    "no rows": lambda: table(target="all").rows(slice(0, 0))._repr_html_() + table()[:0]._repr_html_(),
}


@pytest.mark.parametrize("name", PAGES)
def test_pages_are_static_escaped_and_short(name):
    page = PAGES[name]()
    allowed = {"div", "strong", "table", "thead", "tbody", "tr", "th", "td", "svg", "rect", "path", "u", "span"}
    assert Cells(page).tags <= (allowed | {"figure", "figcaption", "img"} if name == "image" else allowed)
    assert "http" not in page
    assert len(page) < 40_000
    assert page.count("<div") == page.count("</div>")


def test_long_tables_say_how_much_is_left_out():
    assert "190 more rows" in PAGES["many rows"]()
    assert "20 more explanations" in PAGES["many"]()
    words = long()[0][0].replace(tokens=(tuple(f"w{i}" for i in range(500)),))
    assert "100 more words" in words._repr_html_()


def test_marimo_shows_what_the_methods_give():
    """marimo asks for these methods; it needs no more."""
    figure = table().plot(0)
    assert figure._repr_png_()[:4] == b"\x89PNG"
    assert not any(hasattr(figure, name) for name in ("_mime_", "_repr_mimebundle_"))
    assert isinstance(table()._repr_html_(), str)


def test_the_ledger_is_text_that_shows_a_table():
    found = table().ledger(0)
    assert isinstance(found, str)
    assert repr(found) == str(found)
    assert found._repr_html_().count("<svg") == len(table().names()) + 1


def test_a_comparison_of_methods_that_cannot_run():
    empty = Comparison({}, {}, {"a": "no <gradient>"}, None, 1, (0,), (), ("a",))
    assert "no &lt;gradient&gt;" in empty._repr_html_()

"""What is shown adds up to the last digit: in tables, pictures and notebooks, for any numbers."""

import re
from decimal import Decimal
from html.parser import HTMLParser

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from cafexai.explanation import Explanation, Explanations
from plotting.test_presentation import parts, texts

SIZES = st.one_of(st.just(0.0), st.sampled_from([0.5, 1.0, 1 / 3]), st.floats(1e-9, 1.0), st.floats(1.0, 1e5))
SCORES = st.lists(st.tuples(SIZES, SIZES), min_size=1, max_size=16)
SCALES = st.sampled_from([1.0, 1e-30, 1e-7, 1e4, 1e12])


@st.composite
def explanations(draw, kind="table"):
    """One row with any scores: tiny, huge, zeros, ties, one feature, a net far smaller than what cancels."""
    scale, scores, biases = draw(SCALES), draw(SCORES), draw(st.lists(st.tuples(SIZES, SIZES), max_size=2))
    up, down = (torch.tensor([[pair[side] * scale for pair in scores]], dtype=torch.float64) for side in (0, 1))
    if kind == "image":
        shape = (1, 1, len(scores), 2)
        up, down = (part[0, None, None, :, None].expand(shape).contiguous() for part in (up, down))
    start = torch.tensor([draw(st.one_of(st.just(0.0), SIZES, SIZES.map(lambda v: -v))) * scale], dtype=torch.float64)
    constants = {
        f"{place}": torch.tensor([[a * scale, b * scale, (a - b) * scale]], dtype=torch.float64)
        for place, (a, b) in enumerate(biases)
    }
    output = start + (up - down).sum() + sum(layer[:, 2] for layer in constants.values())
    words = (tuple(f"word{i}" for i in range(len(scores))),) if kind == "text" else None
    x = torch.zeros_like(up).long() if kind == "text" else torch.rand(up.shape)
    return Explanation.of(
        positive=up, negative=down, combined=up - down, bias_by_layer=constants, output=output, baseline_output=start,
        target=torch.zeros(1, 1).long(), inputs=x, baselines=x, completeness_error=torch.zeros(1), tokens=words,
        settings={"c": 0.5},
    )  # fmt: skip


def adds_up(start, nets, end):
    return Decimal(start) + sum(map(Decimal, nets)) == Decimal(end)


def close(shown, times, exact, scale):
    """A shown number is the exact one to its last digits."""
    return float(shown) * times == pytest.approx(exact, abs=2e-3 * scale)


def largest(e):
    nets = [*e.flat(e.combined)[0].tolist(), e.bias.item(), e.output.item(), e.baseline_output.item()]
    return max(map(abs, [*nets, e.flat(e.combined).sum().item()]))


def times_of(text):
    found = re.search(r"(?:numbers |\()x (1e[+-]\d+)", text)
    return float(found[1]) if found else 1.0


class Cells(HTMLParser):
    """Rows of cells of all tables of a page, and everything it contains."""

    def __init__(self, page):
        super().__init__()
        self.rows, self.tags, self.open = [], set(), False
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        if tag == "tr":
            self.rows.append([])
        if tag in ("td", "th"):
            self.rows[-1].append("")
            self.open = True

    def handle_endtag(self, tag):
        self.open = self.open and tag not in ("td", "th")

    def handle_data(self, data):
        if self.open:
            self.rows[-1][-1] += data


def page_adds_up(page, e):
    head, first, *lines, last = Cells(page).rows
    net = head.index("net")
    assert adds_up(first[net], [line[net] for line in lines], last[net])
    assert close(last[net], times_of(page), e.output.item(), largest(e))
    for line in lines:
        up, down, own = map(Decimal, line[net - 2 : net + 1])
        if "e" not in line[net - 2] + line[net - 1]:
            assert up - down == own


@given(explanations(), st.integers(1, 20))
def test_ledger_adds_up(e, most):
    text = e.ledger(0, most)
    (_, first), *lines, (_, last) = parts(text)
    assert adds_up(first[-1], [numbers[-1] for _, numbers in lines], last[-1])
    assert close(last[-1], times_of(text), e.output.item(), largest(e))
    page_adds_up(text._repr_html_(), e)


@given(explanations(), st.integers(1, 20))
def test_bars_add_up(e, most):
    figure = e.plot(0, most)
    right = [text.get_text() for text in figure.axes[1].texts]
    *nets, start, end = right
    assert start.startswith("baseline output ")
    assert adds_up(start.split()[-1], nets, end.split()[-1])
    title = figure.get_suptitle()
    assert f"{start.split()[-1]} at the baseline, {end.split()[-1]} here" in title
    assert close(end.split()[-1], times_of(title), e.output.item(), largest(e))


@pytest.mark.parametrize("kind", ["image", "text"])
@given(data=st.data())
def test_sentence_below_images_and_texts_adds_up(kind, data):
    e = data.draw(explanations(kind))
    figure = e.plot(0, view="detail" if kind == "image" else None)
    said = texts(figure).replace("\n", " ")
    found = re.search(r"baseline output (\S+)\s+([+-]) (\S+) from .*? ([+-]) (\S+) from bias .*?= output\s+(\S+)", said)
    start, sign, net, other, bias, end = found.groups()
    assert adds_up(start, [sign + net, other + bias], end)
    assert close(end, times_of(figure.get_suptitle()), e.output.item(), largest(e))
    page_adds_up(e._repr_html_(), e)


@given(explanations("image"), st.integers(0, 6))
def test_sentence_below_regions_adds_up(e, most):
    figure = e.plot(0, most)
    said = texts(figure).replace("\n", " ")
    found = re.search(r"baseline output (\S+);\s+(.*?);\s+output\s+(\S+)", said)
    start, nets, end = found.groups()
    assert adds_up(start, re.findall(r"(?<=\s)[+-]\d\S*?(?=[;,]|$)", nets), end)
    assert close(end, times_of(figure.get_suptitle()), e.output.item(), largest(e))


@given(explanations(), explanations())
def test_columns_of_several_explanations_add_up(one, other):
    if one.positive.shape != other.positive.shape:
        other = one
    several = Explanations(("target",), {0: one, 1: other})
    _, first, *lines, last = Cells(several._repr_html_()).rows
    cells = [text.get_text() for text in several.plot(0).axes[0].texts]
    count = len(lines) + 2
    for column in (1, 2):
        assert adds_up(first[column], [line[column] for line in lines], last[column])
        assert cells[(column - 1) * count : column * count] == [row[column] for row in (first, *lines, last)]


@given(explanations())
def test_biases_add_up(e):
    if not e.bias_by_layer:
        with pytest.raises(ValueError, match="no bias has a score"):
            e.plot_biases(0)
        return
    *nets, start, end = [text.get_text() for text in e.plot_biases(0).axes[1].texts]
    assert adds_up(start.split()[-1], nets, end.split()[-1])

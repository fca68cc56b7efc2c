"""The report: one file that adds up as printed, holds nothing from outside, and can be read without the code."""

import base64
import hashlib
import html
import io
import re
from decimal import Decimal
from html.parser import HTMLParser
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from cafexai import CAFE, Explanation
from cafexai.reporting import report_page, write_report
from cafexai.reporting.about import small
from cafexai.reporting.escape import tag
from cafexai.reporting.ledger_table import SIZE
from cafexai.reporting.pictures import heat, picture

EVIL = "<script>window.hacked=1</script>\"'><img src=x onerror=window.hacked=1></style></title>&amp;{{7*7}}\u202e\x00"


class Reader(HTMLParser):
    """Elements with their attributes, and every ledger as rows of cells."""

    def __init__(self, text):
        super().__init__()
        self.elements, self.tables, self.details, self.text = [], [], [], []
        self._cell = None
        self.feed(text)
        self.close()

    def handle_starttag(self, element, attributes):
        self.elements.append((element, dict(attributes)))
        self._cell = None
        if element == "details":
            self.details.append({"table": len(self.tables), **dict(attributes)})
        if element == "table":
            self.tables.append([])
        if element == "tr":
            self.tables[-1].append([])
        if element in ("td", "th"):
            self.tables[-1][-1].append("")
            self._cell = self.tables[-1][-1]
        if element == "span" and self.tables and self.tables[-1] and self.tables[-1][-1]:
            self._cell = None  # the value beside a name

    def handle_endtag(self, element):
        if element == "table":
            self._cell = None

    def handle_data(self, data):
        self.text.append(data)
        if self._cell is not None:
            self._cell[-1] += data.strip().replace("\u2212", "-")


def tabular(rows=3, features=4, hidden=8, scale=1.0, seed=0, outputs=1, **options):
    torch.manual_seed(seed)
    model = nn.Sequential(nn.Linear(features, hidden), nn.GELU(), nn.Linear(hidden, outputs))
    with torch.no_grad():
        model[2].weight.mul_(scale)
        model[2].bias.mul_(scale)
    names = [f"feature {i}" for i in range(features)]
    return CAFE(model, **options).explain(torch.randn(rows, features), baselines=0.2, feature_names=names), model


def images(rows=3, last=False):
    torch.manual_seed(0)
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 81, 2))
    model = (lambda v: net(v.permute(0, 3, 1, 2))) if last else net
    return CAFE(model).explain(torch.rand(rows, 11, 11, 3) if last else torch.rand(rows, 3, 11, 11), target=1)


def texts():
    torch.manual_seed(0)
    table, head = nn.Embedding(9, 4), nn.Sequential(nn.Linear(4, 6), nn.GELU(), nn.Linear(6, 1))
    explanation = CAFE(lambda ids: head(table(ids)).sum(1)).explain(torch.tensor([[1, 2, 3, 2], [4, 5, 1, 6]]))
    last = torch.tensor([[1.0, 1, 1, 1], [1, 1, 1, 0]])  # the second text has three words
    gone = explanation.combined * (1 - last)
    return explanation.replace(
        positive=explanation.positive * last,
        negative=explanation.negative * last,
        combined=explanation.combined * last,
        output=explanation.output - gone.sum(1),
        tokens=(("not", "good", "<b>", "good"), ("really", "bad", "not", "")),
        conflict_info=None,  # of four words each
    )


def check_table(table):
    """The digits of one ledger add up; its sums of ups and downs over the features are returned."""
    head, start, *lines, end = table
    net, sizes = head.index("net"), [SIZE] * (head[-1] == SIZE)  # the last of averages
    end_of_nets = len(head) - len(sizes)
    refined = ["refined"] * (end_of_nets > net + 1)
    assert head[1:] == [*["baseline"] * (net == 5), "down | up", "up", "down", "net", *refined, *sizes]
    for column in range(net, end_of_nets):  # net, and refined where it is there
        assert sum((Decimal(line[column]) for line in lines), Decimal(start[column])) == Decimal(end[column])
    up = down = Decimal(0)
    for line in lines:
        own_up, own_down, own = map(Decimal, line[net - 2 : net + 1])
        assert own_up - own_down == own
        if sizes and line[-1]:
            assert Decimal(line[-1]) >= abs(own) - Decimal(1).scaleb(own.as_tuple().exponent)  # a step of rounding
        up, down = (up, down) if line[0] == "bias" else (up + own_up, down + own_down)
    return up, down


def check_sums(text, rows):
    """Every ledger of the page adds up, and the line and the sentences of each row repeat its numbers."""
    reader = Reader(text)
    assert len(reader.details) == rows
    for table in reader.tables:
        check_table(table)
    for piece, row in zip(text.split("<details")[1:], reader.details, strict=True):
        table = reader.tables[row["table"]]
        up, down = check_table(table)
        seen = piece.replace("\u2212", "-")
        assert re.search(r"class=o>(-?[\d.]+)", seen)[1] == table[-1][table[0].index("net")]
        check_sides(seen, table)
        if not up or not down:
            assert "of the" in seen or "and not" in seen
    return reader


SIDES = re.compile(
    r"Start ([-+\d.e]+)\. With only what speaks for it ([-+\d.e]+), with only what speaks against it ([-+\d.e]+), "
    r"together ([-+\d.e]+): ([\d.e+]+) cancelled, ([\d.e+]+) left"
)


def check_sides(seen, table):
    """What is said of the conflict of a row follows from the four outputs that are shown, and these from its table."""
    head = re.search(r"class=c>([\d.e+]+) cancelled, ([\d.e+]+) left", seen)
    if (found := SIDES.search(seen)) is None:
        return
    r, p, q, y, cancelled, left = map(Decimal, found.groups())
    assert (head[1], head[2]) == (found[5], found[6])
    assert y == Decimal(table[-1][table[0].index("net")])
    if "e" not in found[0]:
        assert left == abs(y - r)
        assert cancelled == max(min(abs(y - u), abs(u - r)) if (y - u) * (u - r) < 0 else 0 for u in (p, q))


# ---- what is shown adds up ------------------------------------------------------------------------------------------------


@given(
    rows=st.integers(1, 4),
    features=st.integers(1, 9),
    hidden=st.integers(1, 6),
    power=st.integers(-12, 12),
    most=st.integers(1, 10),
    seed=st.integers(0, 50),
    netting=st.sampled_from(["path", "feature", "unit"]),
)
def test_shown_numbers_add_up(rows, features, hidden, power, most, seed, netting):
    explanation, _ = tabular(rows, features, hidden, 10.0**power, seed, variant="published", netting=netting)
    check_sums(report_page(explanation, most=most), rows)


@pytest.mark.parametrize("make", [images, lambda: images(last=True), texts], ids=["images", "channels last", "texts"])
def test_images_and_texts_add_up(make):
    explanation = make()
    check_sums(report_page(explanation), len(explanation))


def test_refined_scores_add_up_too():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Linear(8, 1))
    x = torch.randn(30, 4)
    page = report_page(CAFE(model, background=x).explain(x[:3], refine=8))
    assert check_sums(page, 3).tables[1][0][-1] == "refined"


# ---- nothing from the data is markup, nothing comes from outside ------------------------------------------------------------


def hostile():
    explanation, _ = tabular(outputs=2)
    names = (EVIL, f"{EVIL} 2", "javascript:alert(1)", "</script><script>")
    return explanation.replace(
        feature_names=names,
        display=torch.zeros_like(explanation.inputs),
        categories=dict.fromkeys(names, (f"{EVIL} category",)),
        class_names=(f"{EVIL} class",) * 2,
        notes=(f"{EVIL} note",),
        frozen=(f"{EVIL} frozen",),
        cut={f"{EVIL} cut": torch.ones(3)},
        settings={**explanation.meta.settings, "c": {EVIL: 0.5}},
    )


def hostile_page():
    words = {name: f"{EVIL} {name}" for name in ("title", "model", "data", "command")}
    return report_page(hostile(), row_names=[f"{EVIL} {i}" for i in range(3)], **words)


def check_closed(text, images=0):
    """The page has one style, one script, both allowed by their digests, and no address outside of it."""
    elements = Reader(text).elements
    kinds = [element for element, _ in elements]
    assert (kinds.count("script"), kinds.count("style"), kinds.count("img")) == (1, 1, images)
    assert set(kinds).isdisjoint(("iframe", "object", "embed", "base", "video", "audio", "meter", "template"))
    for element, attributes in elements:
        assert not [name for name in attributes if name.startswith("on") or name in ("style", "srcset", "action")], element
        for name in ("href", "src"):
            assert name not in attributes or re.match(r"#r\d|data:(,$|image/png;base64,)", attributes[name]), attributes
    (policy,) = [a["content"] for element, a in elements if a.get("http-equiv") == "Content-Security-Policy"]
    digests = []
    for kind in ("style", "script"):
        content = re.search(rf"<{kind}>(.*)</{kind}>", text, re.DOTALL)[1]
        digests.append("sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode())
    assert policy == (
        f"default-src 'none'; style-src '{digests[0]}'; script-src '{digests[1]}'; img-src data:; base-uri 'none'; "
        "form-action 'none'"
    )
    assert "http:" not in text
    assert "https:" not in text
    assert len(re.search(r"<script>(.*)</script>", text, re.DOTALL)[1]) < 6000


def test_the_page_is_closed():
    check_closed(report_page(tabular()[0]))
    check_closed(report_page(images(2)), images=10)
    check_closed(report_page(texts()))


def test_nothing_from_the_data_is_markup():
    page = hostile_page()
    check_closed(page)
    assert "\x00" not in page
    assert "\u202e" not in page
    text, clean = html.unescape(page), EVIL.replace("\u202e", "\ufffd").replace("\x00", "\ufffd")
    for what in ("category", "note", "frozen", "cut", "title", "model", "data", "command", "0"):
        assert f"{clean} {what}" in text, what
    check_sums(page, 3)


def test_half_characters_do_not_stop_it(tmp_path):
    explanation = tabular()[0].replace(feature_names=("\ud800", "名前", "שם", "a" * 300))
    text = explanation.report(tmp_path / "report.html").read_text("utf-8")
    assert all(name in text for name in ("\ufffd", "名前", "שם", "a" * 300))


def test_attributes_are_quoted_where_they_must_be():
    assert tag("a", "<", href="x y", kind=None) == '<a href="x y">&lt;</a>'
    assert tag("td", kind="u1") == "<td class=u1>"


# ---- sizes ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rows", "limit"), [(100, 300e3), (2000, 3e6)])
def test_size(rows, limit):
    torch.manual_seed(0)
    names = [f"measurement number {i}" for i in range(30)]
    model = nn.Sequential(nn.Linear(30, 16), nn.ReLU(), nn.Linear(16, 2), nn.Softmax(1))
    explanation = CAFE(model).explain(torch.randn(rows, 30), feature_names=names)
    explanation = explanation.replace(probability=torch.rand(rows))
    page = report_page(explanation, model=model)
    assert len(page.encode()) < limit
    assert page.count("<details") == rows


# ---- what it says -----------------------------------------------------------------------------------------------------------


def seen(page):
    return html.unescape(re.sub(r"<[^>]*>", "", re.sub(r"<(style|script)>.*?</\1>", "", page, flags=re.DOTALL)))


def test_it_describes_model_data_and_baseline():
    explanation, model = tabular(3)
    text = seen(report_page(explanation, model=model, data="Loans of 2025.", title="Loans"))
    for words in ("Loans", "Sequential", "3: 2 Linear, 1 GELU", "Parameters49", "Loans of 2025.", "3 rows of 4 features"):
        assert words in text, words
    assert "Baseline0.2 everywhere" in text
    fingerprint = re.search(r"Fingerprint([0-9a-f]{16})", text)[1]
    assert fingerprint in seen(report_page(explanation, model=CAFE(model)))
    with torch.no_grad():
        model[0].weight[0, 0] += 1
    assert fingerprint not in seen(report_page(explanation, model=model))
    assert "not described" in seen(report_page(explanation))


def test_categories_probability_and_missing_values_are_shown():
    explanation, _ = tabular(2)
    values = torch.tensor([[0.0, 31, float("nan"), 1], [1, 45, 3, 1]])
    changed = explanation.replace(
        display=values,
        feature_names=("job", "age", "debts", "d"),
        categories={"job": ("nurse", "cook")},
        probability=torch.tensor([0.731, 1.0]),
    )
    text = seen(report_page(changed))
    for words in ("job nurse", "job cook", "age 31", "age 31 to 45", "debts missing", "73\u00a0%", "100\u00a0%"):
        assert words in text, words


def test_conflicts_in_sentences():
    """A difference of two features: what b takes away is what a gave."""
    explanation = CAFE(lambda v: torch.relu(v[:, 0] - v[:, 1]), c=1.0, variant="published", netting="feature").explain(
        torch.tensor([[3.0, 1.0]]), feature_names=["income", "debt"], pairs=True
    )
    text = seen(report_page(explanation))
    assert explanation.pairs(0) == [("income", "debt", 1.0)]
    told = "Start 0.000. With only what speaks for it +3.000, with only what speaks against it 0.000, together +2.000"
    assert f"{told}: 1.000 cancelled, 2.000 left (33 %)." in text
    assert "income raised the score by 3.000; 1.000 of that was cancelled by debt." in text
    plain = seen(report_page(explanation.replace(conflict_pairs=None)))
    assert "income = 3 moved the score up most (net 3.000), debt = 1 down most (net \u22121.000)." in plain
    assert "cancelled by" not in plain


def test_what_is_cancelled_inside_is_not_called_a_part_of_the_score():
    """With c < 1 more may be cancelled inside than the positive score holds."""
    explanation = CAFE(
        lambda v: torch.tanh(v[:, 0] - v[:, 1]) + v[:, 0] / 10, c=0.0, variant="published", netting="feature"
    ).explain(torch.tensor([[3.0, 3.0]]), feature_names=["income", "debt"], pairs=True)
    ((up, down, amount),) = explanation.pairs(0)
    assert (up, down) == ("income", "debt")
    assert explanation.positive[0, 0] < amount
    text = seen(report_page(explanation))
    assert f"Inside the model, {amount:.4f} of what income pushed up was cancelled by debt." in text
    assert "of that was cancelled" not in text


def test_rows_without_conflict_or_influence():
    explanation = CAFE(lambda v: v.sum(1)).explain(torch.tensor([[1.0, 2.0], [-1.0, -2.0], [0.0, 0.0]]))
    text = seen(report_page(explanation))
    assert "together pushed the score up by 3.000, and not down." in text
    assert "together pushed the score down by 3.000, and not up." in text
    assert "None of the features moved the score." in text


def test_what_was_left_out_is_said():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Linear(3, 4), nn.LayerNorm(4), nn.Linear(4, 2), nn.Softmax(1))
    explanation = CAFE.published(net).explain(torch.randn(2, 3), target=0)
    text = seen(report_page(explanation))
    assert explanation.frozen
    assert all(f"Taken as a constant at each row: {one}." in text for one in explanation.frozen)
    assert all(note in text for note in explanation.notes)
    cut = CAFE(lambda v: v[:, 0] + v[:, 1].detach() * 2).explain(torch.tensor([[1.0, 3.0]]))
    assert list(cut.cut) == ["x1"]
    assert re.search(r"x1: the model cuts off influence.*at most 6\.", seen(report_page(cut)))
    assert "Nothing was frozen, nothing was cut off." in seen(report_page(tabular()[0].replace(notes=())))


def test_the_check_names_the_worst_row():
    explanation, _ = tabular(5)
    errors = torch.tensor([0.0, 0.0, 0.004, 0.0, 0.001])
    page = report_page(explanation.replace(completeness_error=errors))
    assert re.search(r"at most 0\.004 \(in <a href=#r2>Row 2</a>\)", page)
    assert small(6e-6) == "0.000006"
    assert (small(0.0), small(3e-12), small(0.25)) == ("0", "3e-12", "0.2")


def test_settings_make_it_again():
    explanation, model = tabular(3, outputs=2, c=0.25, variant="published", biases="reference")
    one = CAFE(model, c=0.25, variant="published", biases="reference").explain(explanation.inputs, target=1, layer="1")
    page = report_page(one, command="cafexai report model:net data.csv")
    python, *_ = (html.unescape(code) for code in re.findall(r"<code>(from cafexai.*?)</code>", page, re.DOTALL))
    place = {"model": model, "x": explanation.inputs, "baselines": 0.2}
    exec(python.replace('explanation.report("report.html", model=model)', "wanted = explanation"), place, made := {})
    assert torch.equal(made["wanted"].combined, one.combined)
    assert "cafexai report model:net data.csv" in seen(page)
    assert '"biases": "reference"' in seen(page)


# ---- images, texts, several --------------------------------------------------------------------------------------------------


def pixels(address):
    image = pytest.importorskip("PIL.Image")
    opened = image.open(io.BytesIO(base64.b64decode(address.partition(",")[2]))).convert("RGBA")
    return torch.tensor(np.array(opened).reshape(-1, 4).tolist())


def test_pictures_are_png_files():
    shades = pixels(picture(torch.tensor([[[0.0, 1.0], [0.5, 1.0]]]), 8))
    assert shades[:, 0].tolist() == [0, 255, 128, 255]
    colours = pixels(picture(torch.eye(3)[:, None], 8))
    assert colours[:, :3].tolist() == [[255, 0, 0], [0, 255, 0], [0, 0, 255]]
    shrunk = pixels(picture(torch.rand(3, 50, 25), 10))
    assert len(shrunk) == 10 * 5
    net = pixels(heat(torch.tensor([[1.0, -0.5], [0.0, -1.0]]), 1.0, (0, 114, 178)))
    assert net.tolist() == [[0, 114, 178, 255], [213, 94, 0, 127], [0, 114, 178, 0], [213, 94, 0, 255]]


@pytest.mark.parametrize("last", [False, True])
def test_images_have_maps_and_regions(last):
    explanation = images(2, last)
    page = report_page(explanation)
    assert page.count("<img") == 10
    lines = {line[0]: line for line in Reader(page).tables[1][2:-1]}
    assert len(lines) == 10  # nine parts and the bias
    scores = explanation.positive[0].sum(-1 if last else 0)
    assert float(lines["top left"][2]) == pytest.approx(scores[:4, :4].sum().item(), abs=2e-3)
    assert float(lines["bottom middle"][2]) == pytest.approx(scores[8:, 4:8].sum().item(), abs=2e-3)


def test_texts_have_words_with_both_signs():
    explanation = texts()
    page = report_page(explanation)
    words = [re.findall(r"<span[^>]*>(.*?)</span>", line) for line in re.findall(r"<p class=words>(.*?)</p>", page)]
    assert [[html.unescape(word) for word in row] for row in words] == [
        ["not", "good", "<b>", "good"],
        ["really", "bad", "not"],
    ]
    strongest = explanation.positive[0].argmax().item()
    kinds = re.findall(r"<span(?: class=\"?([^\">]*)\"?)? title", page)
    assert "a10" in kinds[strongest].split() or explanation.negative[0].max() > explanation.positive[0].max()
    assert "Baselinenothing in the place of a word" in seen(page)
    assert "baselines=" not in seen(page)
    average = {line[0]: line for line in Reader(page).tables[0]}
    assert float(average["good"][2]) == pytest.approx(explanation.positive[0, [1, 3]].sum().item() / 2, abs=2e-3)


def test_several_explanations_in_one_report(tmp_path):
    explanation, model = tabular(4, outputs=3)
    several = CAFE(model).explain(explanation.inputs, target="all", feature_names=explanation.features.names)
    page = several.report(tmp_path / "all.html").read_text("utf-8")
    check_sums(page, 12)
    assert [row["id"] for row in Reader(page).details[:4]] == ["r0-0", "r1-0", "r2-0", "r0-1"]
    assert "explain_classes" in seen(page)
    both = CAFE(model).explain(explanation.inputs[:2], target="all", c=[0, 1])
    assert "c 1, output 2" in seen(report_page(both))


def test_groups_are_a_table():
    torch.manual_seed(0)
    net = nn.Sequential(nn.Flatten(), nn.Linear(16, 1))
    explanation = CAFE(net).explain(torch.rand(2, 1, 4, 4), feature_groups=torch.arange(16).reshape(1, 4, 4) // 8)
    page = report_page(explanation)
    check_sums(page, 2)
    assert "<img" not in page
    assert "2 rows of 2 groups" in seen(page)


@pytest.mark.parametrize("rows", [0, 1])
def test_few_rows(rows):
    explanation, model = tabular(1)
    check_sums(report_page(explanation[:rows], model=model), rows)


# ---- files -------------------------------------------------------------------------------------------------------------------


def test_the_same_report_twice_and_after_loading(tmp_path):
    explanation, model = tabular(2)
    first = explanation.report(tmp_path / "a.html", model=model)
    assert first == tmp_path / "a.html"
    explanation.save(tmp_path / "e.safetensors")
    again = write_report(Explanation.load(tmp_path / "e.safetensors"), str(tmp_path / "b.html"), model=model)
    assert first.read_bytes() == again.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.html", "b.html", "e.safetensors"]


def test_errors_say_what_to_do(tmp_path):
    explanation, _ = tabular(2)
    with pytest.raises(ValueError, match=r"report\('x.pdf'\): .*end in \.html"):
        explanation.report("x.pdf")
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        explanation.report(tmp_path / "none" / "x.html")
    with pytest.raises(ValueError, match="3 names for 2 rows"):
        explanation.report(tmp_path / "x.html", row_names=["a", "b", "c"])
    assert list(tmp_path.iterdir()) == []


def test_models_of_all_kinds_are_described():
    explanation, _ = tabular(1)
    pipeline = SimpleNamespace(steps=[("scale", nn.Identity()), ("net", nn.Linear(1, 1))])
    text = seen(report_page(explanation, model=pipeline))
    assert "StepsIdentity, Linear" in text
    assert "Modelour scoring model" in seen(report_page(explanation, model="our scoring model"))


def test_hidden_conflicts_are_told_below_each_row(tmp_path):
    cafe = CAFE(lambda v: torch.relu(v[:, 0] - v[:, 1]) + v[:, 2], feature_names=["income", "debt", "age"])
    e = cafe.explain(torch.tensor([[1.0, 2.0, 1.0], [2.0, 1.0, 1.0]]))
    for hidden in (cafe, cafe.hidden_conflicts(e)):
        page = e.report(tmp_path / "hidden.html", hidden=hidden).read_text()
        assert page.count("Hidden conflicts: income alone seems not to matter, but only because debt holds it down;") == 1
        assert page.count("Measured by 7 evaluations of the model, against the baseline.") == 2
    with pytest.raises(ValueError, match="of 1 rows for 2"):
        e.report(tmp_path / "hidden.html", hidden=cafe.hidden_conflicts(e, [0]))

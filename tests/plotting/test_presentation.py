"""The table of text and the picture of one explanation."""

import re
import sys
from decimal import Decimal

import numpy as np
import pytest
import torch
from torch import nn

from cafexai import CAFE
from cafexai.plotting.rounding import round_explanation
from cafexai.plotting.row_lines import align_numbers, number
from cafexai.plotting.table_plot import bars
from cafexai.reporting.text_ledger import ledger

NAMES = ("age", "income", "a very long name that goes on and on until nobody reads it", "price in $ per $")


def tabular(rows=3, outputs=2, **options):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 16), nn.GELU(), nn.Linear(16, outputs))
    return CAFE(model, **options).explain(torch.randn(rows, 4), baselines=0.3, feature_names=NAMES)


def image():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(4 * 7 * 7, 3))
    return CAFE(model).explain(torch.rand(2, 1, 16, 16))


def wide():
    torch.manual_seed(0)
    return CAFE(nn.Sequential(nn.Linear(300, 8), nn.Sigmoid(), nn.Linear(8, 1))).explain(torch.randn(2, 300))


def scaled(factor):
    explanation = tabular()
    numbers = {
        name: getattr(explanation, name) * factor
        for name in ("positive", "negative", "combined", "output", "baseline_output", "completeness_error")
    }
    layers = {name: scores * factor for name, scores in explanation.bias_by_layer.items()}
    return explanation.replace(**numbers, bias_by_layer=layers)


def parts(text):
    """The lines of the table as (name, numbers), from the baseline output to the output."""
    lines = text.splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("baseline output"))
    end = next(i for i, line in enumerate(lines) if line.startswith("output"))
    found = []
    for line in lines[start : end + 1]:
        if not line.startswith("---"):
            name, *numbers = re.split(r"\s{2,}", line.strip())
            found.append((name, numbers))
    return found


def unit(text):
    """The size of the last printed digit."""
    digits = text.split("e")
    decimals = len(digits[0].split(".")[1]) if "." in digits[0] else 0
    return 10.0 ** (-decimals + (int(digits[1]) if len(digits) > 1 else 0))


EXAMPLES = {
    "tabular": tabular,
    "image": image,
    "wide": wide,
    "tiny": lambda: scaled(1e-7),
    "huge": lambda: scaled(1e9),
    "thousands": lambda: scaled(1e4),
}


@pytest.mark.parametrize("make", EXAMPLES.values(), ids=EXAMPLES)
@pytest.mark.parametrize("most", [1, 3, 12])
def test_ledger_adds_up_as_printed(make, most):
    explanation = make()
    text = explanation.ledger(1, most)
    times = float(found[1]) if (found := re.search(r"all numbers x (\S+)", text)) else 1.0
    table = parts(text)
    assert (table[0][0], table[-1][0]) == ("baseline output", "output")
    printed = [numbers[-1] for _, numbers in table]
    baseline, *nets, output = map(float, printed)
    step = max(map(unit, printed))
    assert step <= 1e-3 * max(map(abs, (baseline, *nets, output)))  # four digits
    assert sum(map(Decimal, printed[:-1])) == Decimal(printed[-1])
    assert times * output == pytest.approx(explanation.output[1].item(), abs=times * step)
    for _, (*_, positive, negative, net) in table[1:-1]:
        assert Decimal(positive) - Decimal(negative) == Decimal(net)


def test_ledger_nets_are_positive_minus_negative():
    for _, numbers in parts(tabular().ledger(0))[1:-1]:
        positive, negative, net = map(float, numbers[-3:])
        assert positive - negative == pytest.approx(net, abs=2e-3)


@pytest.mark.parametrize("order", ["net", "influence"])
def test_ledger_is_sorted_and_sums_the_rest(order):
    explanation = wide()
    lines = parts(explanation.ledger(0, 5, order))[1:-1]
    assert [name for name, _ in lines[-2:]] == ["295 others", "bias"]
    up, down, net = (getattr(explanation, side)[0] for side in ("positive", "negative", "combined"))
    sizes = (net.abs() if order == "net" else up + down).tolist()
    wanted = sorted(range(300), key=lambda place: -sizes[place])[:5]
    assert [name for name, _ in lines[:5]] == [f"x{place}" for place in wanted]
    assert explanation.top(0, 5, order)["feature"].tolist() == [f"x{place}" for place in wanted]
    drawn = [label.get_text() for label in explanation.plot(0, 5, order=order).axes[0].get_yticklabels()]
    assert [label.split(" = ")[0] for label in drawn[:5]] == [f"x{place}" for place in wanted]
    assert "1 other " in tabular().ledger(0, 3, order)


def test_equal_nets_are_ordered_by_influence():
    e = tabular()
    up, down = torch.tensor([[1.0, 3.0, 2.0, 5.0]]), torch.tensor([[1.0, 3.0, 1.0, 5.0]])
    one = e[0].replace(positive=up, negative=down, combined=up - down)
    assert one.top(0, 4)["combined"].tolist() == [1, 0, 0, 0]
    assert one.top(0, 4)["feature"].tolist() == [NAMES[2], NAMES[3], NAMES[1], NAMES[0]]


def test_an_unknown_order_says_what_is_allowed():
    with pytest.raises(ValueError, match=r"order='size': unknown. Allowed values: 'net', 'influence'"):
        tabular().ledger(0, order="size")


def test_ledger_is_aligned_and_says_what_it_is_about():
    explanation = tabular()
    text = explanation.ledger(0)
    title, head, *_ = text.splitlines()
    assert f"output {explanation.target[0].item()}" in title
    assert "c = 0.5" in title
    assert head.split() == ["value", "baseline", "positive", "negative", "net"]
    table = [line for line in text.splitlines()[1:] if not line.lower().startswith(("conflict", "completeness"))]
    assert {len(line) for line in table} == {len(head)}
    assert (
        f"conflict between features: Start {round_explanation(explanation[0]).between.sides[0]}. With only what speaks for it"
        in text
    )
    assert "completeness error: " in text


def test_ledger_shows_values_in_the_units_of_the_user():
    explanation = tabular()
    shown = explanation.replace(display=explanation.inputs * 0 + torch.tensor([45.0, 52000.0, 0.125, 3.0]))
    lines = dict(parts(shown.ledger(0))[1:-2])
    assert lines["age"][0] == "45"
    assert lines["income"][0] == "52000"


def test_only_single_features_have_values_in_the_ledger_of_groups():
    torch.manual_seed(0)
    cafe, x = CAFE(nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 1))), torch.randn(2, 4)
    e = cafe.explain(x, feature_groups={"first": [0, 1]})
    assert e.values(1) == ["", x[1, 2].item(), x[1, 3].item()]
    assert f"{x[0, 2].item():.4g}" in e.ledger()
    text = cafe.explain(x, feature_groups={"first": [0, 1], "last": [2, 3]}).ledger()
    assert text.splitlines()[1].split() == ["positive", "negative", "net"]
    assert "first" in text


def test_ledger_tells_layers_notes_and_several_inputs():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), nn.ReLU(), nn.Linear(6, 2), nn.Softmax(1))
    x = torch.randn(2, 4)
    assert "logit" in CAFE(model).explain(x).ledger()
    text = CAFE(model).explain(x, layer="1", target_layer="2", target=1).ledger()
    assert "unit 1 of layer '2' seen at layer '1'" in text
    two = CAFE(lambda a, b: (a * 2).sum(1) - b.sum(1)).explain((x, x[:, :2]))
    assert {"x0_0", "x1_1"} <= {name for name, _ in parts(two.ledger())}
    assert two.ledger().startswith("What moved output (c")


@pytest.mark.parametrize("show", [ledger, bars])
def test_one_row_is_shown(show):
    with pytest.raises(ValueError, match=r"has 3\. Choose one"):
        show(tabular())
    with pytest.raises(ValueError, match="at least 1"):
        show(tabular()[0], 0)


def test_numbers():
    assert [number(v) for v in (0.0, 45.0, 52000.0, 0.123456, 1e-9, 1e12)] == ["0", "45", "52000", "0.1235", "1e-09", "1e+12"]
    assert align_numbers([12.3456, -0.0001, 0.0]) == ["12.35", "0.00", "0.00"]
    assert align_numbers([0.0, 0.0]) == ["0.000", "0.000"]
    assert align_numbers([1.0, -2.0], 3, "+") == ["+1.00", "-2.00"]


def texts(figure):
    """Every text of a figure, after drawing it."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.text import Text

    FigureCanvasAgg(figure).draw()
    return "\n".join(text.get_text() for text in figure.findobj(Text))


def test_plot_names_features_output_and_conflict():
    from matplotlib.figure import Figure

    explanation = tabular()
    figure = explanation.plot(1)
    assert isinstance(figure, Figure)
    words = texts(figure)
    assert f"age = {number(explanation.inputs[1, 0].item())}" in words
    assert "a very long name…l nobody reads it" in words
    assert "price in $ per $ = " in words
    row = round_explanation(explanation[1])
    assert f"output {row.end}" in words
    assert f"baseline output {row.start}" in words
    assert f"Conflict between features: {row.between.short}" in words
    assert f"({100 * explanation.conflict_share[1].item():.0f} %)" in words
    for label in ("bias", "positive: pushes the output up", "negative: pushes the output down", "influence on the output"):
        assert label in words


def test_plot_bars_hold_the_scores():
    explanation = tabular()
    left = explanation.plot(0).axes[0]
    negative, positive = ([bar.get_width() for bar in group] for group in left.containers)
    order = explanation.combined[0].abs().argsort(descending=True)
    assert positive == pytest.approx([*explanation.positive[0, order].tolist(), explanation.bias_positive[0].item()])
    assert negative == pytest.approx([*(-explanation.negative[0, order]).tolist(), -explanation.bias_negative[0].item()])


def test_plot_walks_from_the_baseline_to_the_output():
    explanation = tabular()
    right = explanation.plot(0).axes[1]
    steps = [(group[0].get_x(), group[0].get_x() + group[0].get_width()) for group in right.containers]
    assert steps[0][0] == pytest.approx(explanation.baseline_output[0].item())
    assert steps[-1][1] == pytest.approx(explanation.output[0].item(), rel=1e-4)
    assert [a for _, a in steps[:-1]] == pytest.approx([b for b, _ in steps[1:]])


@pytest.mark.parametrize("make", EXAMPLES.values(), ids=EXAMPLES)
def test_plot_of_every_kind(make, tmp_path):
    explanation = make()
    figure = explanation.plot(0, most=8)
    words = texts(figure)
    if explanation.kind == "image":
        assert "56 other cells" in words
    elif explanation.positive[0].numel() > 8:
        assert f"{explanation.positive[0].numel() - 8} others" in words
    figure.savefig(tmp_path / "explanation.png")
    assert (tmp_path / "explanation.png").stat().st_size > 5000


def test_long_sums_leave_single_features_visible():
    left = wide().plot(0).axes[0]
    widths = [[abs(bar.get_width()) for bar in group] for group in left.containers]
    reach = max(width for group in widths for place, width in enumerate(group) if place != 12)  # but the 288 others
    assert max(group[12] for group in widths) > 3 * reach
    assert left.get_xlim()[1] < 1.5 * reach
    assert {text.get_text().strip("←→ ") for text in left.texts} == {number(group[12]) for group in widths}


def test_plot_leaves_pyplot_alone():
    def figures():
        return list(sys.modules["matplotlib.pyplot"].get_fignums()) if "matplotlib.pyplot" in sys.modules else []

    before = figures()
    tabular().plot(0)
    assert figures() == before


def test_plot_without_matplotlib_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ModuleNotFoundError, match=r"pip install 'cafexai\[plot\]'"):
        tabular().plot(0)


def test_shap_draws_a_waterfall_that_ends_at_the_output():
    import shap

    x = torch.randn(3, 4)
    e = CAFE(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))).explain(x, target=1, feature_names=list("abcd"))
    values = e.to_shap()
    assert values.output_names == "output 1"
    assert isinstance(values, shap.Explanation)
    assert values.feature_names == list("abcd")
    np.testing.assert_allclose(values.base_values + values.values.sum(1), e.output.numpy())
    np.testing.assert_allclose(values.data, x.numpy())

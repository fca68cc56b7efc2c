"""``flows="extrema"``: what activations do and undo between the points that peak flows compare."""

from __future__ import annotations

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from cafexai import CAFE, Variant
from cafexai._core.extrema import lowest_point
from cafexai._core.math_functions import pointwise

VALLEYS = {
    "gelu": nn.GELU(),
    "gelu tanh": nn.GELU(approximate="tanh"),
    "silu": nn.SiLU(),
    "mish": nn.Mish(),
    "hardswish": nn.Hardswish(),
}
DENSE = 20_001


def unit(weights, phi):
    layer = nn.Linear(len(weights), 1, bias=False, dtype=torch.float64)
    layer.weight.data = torch.tensor([weights], dtype=torch.float64)
    return nn.Sequential(layer, phi).eval()


def rise_and_fall(phi, lower, upper):
    """How much phi rises and falls between two points, by dense sampling: the largest change upwards and downwards."""
    values = phi(torch.linspace(lower, upper, DENSE, dtype=torch.float64))
    rise = (values - values.cummin(0).values).max().item()
    fall = (values.cummax(0).values - values).max().item()
    return rise, fall


def naive(contributions: Tensor, start: float, phi, c: float) -> tuple[Tensor, Tensor]:
    """Positive and negative scores of the inputs of one unit, written down as in the paper, flow by flow."""
    p, n = contributions.clamp_min(0).sum().item(), -contributions.clamp_max(0).sum().item()
    d = p - n
    change = (phi(torch.tensor(start + d).double()) - phi(torch.tensor(start).double())).item()
    low, high = min(start, start + d), max(start, start + d)
    below, inside, above = (rise_and_fall(phi, *ends) for ends in ((start - n, low), (low, high), (high, start + p)))
    rise, fall = max(below[0], above[0]), max(below[1], above[1])
    if min(p, n) < 1e-12:
        rise = fall = 0.0
    there_and_back = min(inside)
    peak = {
        "++": (d >= 0) * (max(change, 0) + there_and_back) + rise,
        "-+": (d < 0) * (max(change, 0) + there_and_back) + fall,
        "+-": (d >= 0) * (max(-change, 0) + there_and_back) + fall,
        "--": (d < 0) * (max(-change, 0) + there_and_back) + rise,
    }
    slope = 0.0 if d == 0 else change / d
    own = {"+": p, "-": n}
    cap = {"++": max(change, 0), "--": max(-change, 0), "+-": max(-change, 0), "-+": max(change, 0)}
    line = {}
    for way in peak:
        along = max(slope, 0) if way in ("++", "--") else max(-slope, 0)
        hidden = rise if way in ("++", "--") else fall
        active = (way[0] == "+") == (d >= 0)
        line[way] = min(own[way[0]] * along, active * cap[way] + hidden)
    flow = {way: (1 - c) * line[way] + c * peak[way] for way in peak}
    up, down = contributions.clamp_min(0), -contributions.clamp_max(0)

    def share(side: Tensor, way: str) -> Tensor:
        return side * (flow[way] / own[way[0]] if own[way[0]] else 0.0)

    return share(up, "++") + share(down, "-+"), share(up, "+-") + share(down, "--")


@pytest.mark.parametrize("name", VALLEYS)
@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.floats(-4, 4), min_size=1, max_size=4),
    st.sampled_from([None, 0.0, -2.0, 1.5]),
    st.sampled_from([0.0, 0.4, 1.0]),
)
def test_scores_of_a_unit_are_those_of_dense_sampling(name, sizes, start, c):
    phi, sizes = VALLEYS[name], [size if abs(size) > 1e-3 else 0.0 for size in sizes]
    model = unit([1.0] * (len(sizes) + 1), phi)
    x = torch.tensor([[*sizes, start or 0.0]], dtype=torch.float64)
    reference = torch.zeros_like(x)
    reference[0, -1] = start or 0.0
    e = CAFE(model, c, "published", flows="extrema").explain(x, None if start is None else reference)
    positive, negative = naive(x[0] - reference[0], start or 0.0, phi, c)
    torch.testing.assert_close(e.positive[0], positive, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(e.negative[0], negative, atol=1e-6, rtol=1e-6)
    torch.testing.assert_close(e.baseline_output + e.combined.sum(1), e.output)


def test_the_example_of_the_paper():
    """GELU(-2 - 5): both inputs have no effect by the published rule; each alone would have one."""
    x, model = torch.tensor([[-2.0, -5.0]], dtype=torch.float64), unit([1.0, 1.0], nn.GELU())
    published, extrema = (CAFE(model, 1.0, "published", flows=flows).explain(x) for flows in ("peak", "extrema"))
    assert published.negative.abs().max() < 1e-9
    dip = -F.gelu(torch.tensor(-0.7517915246935645)).item()
    for scores in (extrema.positive, extrema.negative):
        torch.testing.assert_close(scores, dip / 7 * torch.tensor([[2.0, 5.0]], dtype=torch.float64))
    assert extrema.combined.abs().max() < 1e-9


@pytest.mark.parametrize("phi", [nn.ReLU(), nn.Tanh(), nn.Softplus(), nn.ELU()])
def test_monotone_functions_keep_their_scores(phi):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(4, 6), phi, nn.Linear(6, 2)).double().eval()
    x, start = torch.randn(5, 4).double(), torch.randn(5, 4).double()
    plain, extrema = (CAFE(model, 0.7, "published", flows=flows).explain(x, start) for flows in ("peak", "extrema"))
    assert torch.equal(plain.positive, extrema.positive)
    assert torch.equal(plain.negative, extrema.negative)


@pytest.mark.parametrize("name", VALLEYS)
def test_networks_stay_complete_and_no_sum_of_scores_falls(name):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(4, 8), VALLEYS[name], nn.Linear(8, 8), VALLEYS[name], nn.Linear(8, 2)).double().eval()
    x = 2 * torch.randn(6, 4).double()
    for c in (0.0, 0.5, 1.0):
        e = CAFE(model, c, "published", flows="extrema").explain(x, target=1, check="each")
        assert (e.positive >= 0).all()
        assert (e.negative >= 0).all()
        torch.testing.assert_close(e.baseline_output + e.bias + e.combined.sum(1), e.output)
        peak = CAFE(model, c, "published").explain(x, target=1)
        assert (e.positive + e.negative).sum() >= (peak.positive + peak.negative).sum()


def test_lowest_points():
    assert lowest_point(torch.relu) is lowest_point(torch.tanh) is lowest_point(lambda x: x) is None
    for name, phi in VALLEYS.items():
        function = {"gelu": F.gelu, "gelu tanh": pointwise(F.gelu, (), {"approximate": "tanh"})}.get(name)
        function = function or getattr(F, name)
        point = torch.tensor(lowest_point(function), dtype=torch.float64)
        grid = torch.linspace(-10, 10, 200_001, dtype=torch.float64)
        assert phi(point) <= phi(grid).min() + 1e-12
        assert (phi(grid[grid >= point]).diff() >= -1e-12).all()
        assert (phi(grid[grid <= point]).diff() <= 1e-12).all()


def test_units_that_hand_on_net_values_refuse_it():
    for netting in ("unit", "feature"):
        with pytest.raises(ValueError, match='Set netting="path" too, or flows="peak"'):
            Variant(netting=netting, flows="extrema")
    assert Variant.preset("published").replace(flows="extrema").name == "custom"

"""Normalisations whose statistics depend on the features: against the formulas, written out in plain tensors."""

import copy

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

from cafexai import CAFE, Variant
from cafexai._carriers.feature import FeatureScores
from cafexai._carriers.unit import UnitScores
from cafexai._core.contract import Carrier

WIDTH, EPS = 6, 1e-3
OPEN = {"biases": "reference", "norms": "open"}


def normed(v, centre=True):
    v = v - v.mean(-1, keepdim=True) if centre else v
    return v / ((v * v).mean(-1, keepdim=True) + EPS).sqrt()


class Spelled(nn.Module):
    """A norm in arithmetic, and a linear map behind it."""

    def __init__(self, form, centre=True):
        super().__init__()
        self.form, self.centre = form, centre
        self.weight = nn.Parameter(torch.randn(2, WIDTH, dtype=torch.float64))
        self.gain = nn.Parameter(torch.randn(WIDTH, dtype=torch.float64))
        self.bias = nn.Parameter(torch.randn(WIDTH, dtype=torch.float64))

    def forward(self, x):
        m = x - x.mean(-1, keepdim=True) if self.centre else x
        power = (m * m if self.form == "product" else m.pow(2)).mean(-1, keepdim=True) + EPS
        scaled = {
            "rsqrt": lambda: m * torch.rsqrt(power),
            "product": lambda: m * torch.rsqrt(power),
            "var": lambda: m * torch.rsqrt(x.var(-1, correction=0, keepdim=True) + EPS),
            "power": lambda: m * power**-0.5,
            "sqrt": lambda: m / power.sqrt(),
            "reciprocal": lambda: m * (1 / power.sqrt()),
            "other side": lambda: torch.rsqrt(power) * m,
            "layer_norm": lambda: F.layer_norm(x, (WIDTH,), None, None, EPS),
            "rms_norm": lambda: F.rms_norm(x, (WIDTH,), None, EPS),
            "group_norm": lambda: F.group_norm(x, 1, None, None, EPS),
            "instance_norm": lambda: F.instance_norm(x[:, None], eps=EPS)[:, 0],
        }[self.form]()
        return F.linear(scaled * self.gain + self.bias, self.weight)


def by_hand(model, x, start, target):
    """The quotient m / sigma in halves as a linear map of x - start: dm / s - n mean(m dm) / s ** 2, all in the middle."""
    centring = torch.eye(WIDTH, dtype=x.dtype)
    centring = centring - 1 / WIDTH if model.centre else centring
    scores = []
    for row, begin in zip(x, start, strict=True):
        ends = [centring @ row, centring @ begin]
        sigmas = [deviation(m) for m in ends]
        m, sigma, n = sum(ends) / 2, sum(sigmas) / 2, sum(m / s for m, s in zip(ends, sigmas, strict=True)) / 2
        change = centring / sigma - torch.outer(n, m) / (WIDTH * sigma**2) @ centring
        scores.append((model.weight[target] * model.gain) @ change * (row - begin))
    return torch.stack(scores).detach()


def deviation(m):
    return ((m * m).mean() + EPS) ** 0.5


FORMS = ["rsqrt", "product", "var", "power", "sqrt", "reciprocal", "other side", "layer_norm", "group_norm", "instance_norm"]


@pytest.mark.parametrize("netting", ["path", "unit", "feature"])
@pytest.mark.parametrize(("form", "centre"), [*((form, True) for form in FORMS), ("rms_norm", False), ("rsqrt", False)])
def test_scores_are_those_of_the_formula(form, centre, netting):
    torch.manual_seed(1)
    model, x = Spelled(form, centre), torch.randn(4, WIDTH, dtype=torch.float64)
    start = torch.randn(4, WIDTH, dtype=torch.float64)
    e = CAFE(model, 0.5, "published", netting=netting, **OPEN).explain(x, start, target=1)
    assert torch.allclose(e.combined, by_hand(model, x, start, 1), rtol=0, atol=1e-10)
    assert torch.allclose(e.baseline_output, model(start)[:, 1], rtol=0, atol=1e-12)
    assert e.bias.abs().max() == 0
    assert not e.frozen


@given(st.lists(st.floats(-1e3, 1e3), min_size=WIDTH, max_size=WIDTH), st.floats(0, 1e3))
@settings(max_examples=30, deadline=None)
def test_symmetric_and_bounded(row, size):
    """Input and reference can be exchanged, and no coefficient is large where one of them has no variance."""
    x, start = torch.tensor([row], dtype=torch.float64), size * torch.linspace(-1, 2, WIDTH, dtype=torch.float64)[None] ** 2
    model = Spelled("layer_norm")
    with torch.no_grad():
        model.weight.fill_(1).mul_(torch.arange(WIDTH) + 1), model.gain.fill_(1)
    e, back = CAFE(model).explain(x, start, target=0), CAFE(model).explain(start, x, target=0)
    torch.testing.assert_close(e.combined, -back.combined, rtol=1e-7, atol=1e-7)
    sigma = (deviation(x - x.mean()) + deviation(start - start.mean())) / 2
    limit = 1.2 / sigma * model.weight[0].norm()
    assert (e.combined.abs() <= limit * (x - start).abs() + 1e-9).all()


HAND_WRITTEN = {
    "x / (std + eps)": lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 0.1),
    "x / norm": lambda x: x / x.norm(dim=-1, keepdim=True),
    "x / norm, bounded": lambda x: x / x.norm(dim=-1, keepdim=True).clamp_min(1.5),
    "x / expanded norm": lambda x: x / torch.linalg.vector_norm(x, dim=-1, keepdim=True).expand_as(x),
    "x / sqrt of a sum": lambda x: x / x.square().sum(-1, keepdim=True).add(1e-6).sqrt(),
    "x / a sum to the power 0.5": lambda x: x / torch.pow(torch.pow(x, 2).sum(-1, keepdim=True), 0.5),
    "normalize": lambda x: F.normalize(x, dim=-1),
    "normalize, bounded at one end": lambda x: F.normalize(x, dim=-1, eps=2.0),
    "normalize, bounded at both": lambda x: F.normalize(x, dim=-1, eps=50.0),
    "normalize, p = 1": lambda x: F.normalize(x, 1.0, -1),
    "normalize, p = 3": lambda x: F.normalize(x, 3.0, -1),
    "normalize, p = inf": lambda x: F.normalize(x, torch.inf, -1),
    "cosine_similarity": lambda x: x * F.cosine_similarity(x, torch.arange(6.0, dtype=x.dtype), dim=-1)[:, None],
}


@pytest.mark.parametrize("netting", ["unit", "feature"])
@pytest.mark.parametrize("name", HAND_WRITTEN)
def test_hand_written_norms_start_from_the_model_itself(name, netting):
    torch.manual_seed(3)
    weight = torch.randn(WIDTH, dtype=torch.float64)

    def model(v):
        return HAND_WRITTEN[name](v) @ weight

    x, start = 0.5 * torch.randn(3, WIDTH, dtype=torch.float64), 2 * torch.randn(3, WIDTH, dtype=torch.float64)
    e = CAFE(model, variant=Variant(netting=netting)).explain(x, start)
    assert e.frozen == ()
    torch.testing.assert_close(e.baseline_output, model(start), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(e.combined.sum(1), model(x) - model(start), rtol=1e-10, atol=1e-10)


def test_normalize_is_the_quotient_in_halves():
    torch.manual_seed(4)
    x, start, weight = torch.randn(3, WIDTH, dtype=torch.float64)
    e = CAFE(lambda v: F.normalize(v, dim=-1) @ weight).explain(x[None], start[None])
    size = (x.norm() + start.norm()) / 2
    unit, middle = (x / x.norm() + start / start.norm()) / 2, (x + start) / 2
    expected = (weight / size - (weight @ unit) * middle / size**2) * (x - start)
    torch.testing.assert_close(e.combined[0], expected, rtol=1e-10, atol=1e-12)
    at_zero = CAFE(lambda v: F.normalize(v, dim=-1) @ weight).explain(x[None])  # where the bound of the norm holds
    torch.testing.assert_close(at_zero.combined.sum(1), F.normalize(x[None], dim=-1) @ weight)


@pytest.mark.parametrize("netting", ["unit", "feature"])
@pytest.mark.parametrize("norm", [nn.LayerNorm(WIDTH), nn.RMSNorm(WIDTH, eps=1e-3), nn.LayerNorm((3, WIDTH))], ids=str)
def test_one_step_is_what_it_is_composed_of(norm, netting, monkeypatch):
    torch.manual_seed(5)
    norm, head = copy.deepcopy(norm).double(), nn.Linear(WIDTH, 2, dtype=torch.float64)
    nn.init.normal_(norm.weight)
    model = nn.Sequential(nn.Linear(WIDTH, WIDTH, dtype=torch.float64), norm, nn.ReLU(), head)
    x, start = torch.randn(2, 2, 3, WIDTH, dtype=torch.float64)
    cafe = CAFE(model, variant=Variant(netting=netting))
    for baseline in (start, start[:1]):
        e = cafe.explain(x, baseline, target=(1, 1))
        with monkeypatch.context() as patch:
            for carrier in (UnitScores, FeatureScores):
                patch.setattr(carrier, "_carry_step", Carrier._carry_step)
            other = cafe.explain(x, baseline, target=(1, 1))
        for part in ("combined", "positive", "negative", "baseline_output"):
            torch.testing.assert_close(getattr(e, part), getattr(other, part), rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize("netting", ["path", "unit", "feature"])
@pytest.mark.parametrize("flows", ["peak", "mean"])
def test_a_transformer_starts_from_itself_but_for_attention(netting, flows):
    torch.manual_seed(3)
    layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, batch_first=True, dtype=torch.float64).eval()
    x, start = torch.randn(2, 3, 2, 8, dtype=torch.float64)
    e = CAFE(layer, 0.5, "published", netting=netting, flows=flows, **OPEN).explain(x, start, target=(1, 2))
    assert {key.split(" in ")[0] for key in e.frozen} == {"attention pattern"}
    assert e.completeness_error.abs().max() < 1e-9
    one = CAFE(layer, 0.5, "published", netting=netting, flows=flows, **OPEN).explain(x[1:], start[1:], target=(1, 2))
    assert torch.allclose(one.combined, e.combined[1:], rtol=0, atol=1e-9)


def test_variances_of_zero_and_of_the_reference():
    norm = nn.Sequential(nn.LayerNorm(4, dtype=torch.float64), nn.Linear(4, 1, dtype=torch.float64))
    flat, x = torch.full((1, 4), 2.0, dtype=torch.float64), torch.randn(1, 4, dtype=torch.float64)
    for rows, start in ((x, flat), (flat, x), (flat, flat), (x, x)):
        e = CAFE(norm, variant="published", **OPEN).explain(rows, start)
        assert e.combined.isfinite().all()
        assert torch.allclose(e.baseline_output + e.combined.sum(1), norm(rows)[:, 0], atol=1e-9)
    no_eps = CAFE(lambda v: (v * torch.rsqrt((v * v).sum(-1, keepdim=True))).sum(-1), variant="published", **OPEN).explain(x)
    assert no_eps.combined.isfinite().all()


def test_open_norms_need_biases_in_the_reference():
    model = nn.LayerNorm(4)
    for options in ({"norms": "open"}, {"norms": "open", "biases": "scores"}, {"norms": "thawed"}):
        with pytest.raises(ValueError, match="norms="):
            CAFE(model, variant="published", **options)

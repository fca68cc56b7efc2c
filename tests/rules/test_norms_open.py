"""Normalisations whose statistics depend on the features: against the formulas, written out in plain tensors."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

from cafexai import CAFE

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
    """The change of the output as a linear map of x - start: (m - m_r) s + m_r (s - s_r), s - s_r along its secant."""
    centring = torch.eye(WIDTH, dtype=x.dtype)
    centring = centring - 1 / WIDTH if model.centre else centring
    scores = []
    for row, begin in zip(x, start, strict=True):
        m, m_r = centring @ row, centring @ begin
        v, v_r = (m * m).mean() + EPS, (m_r * m_r).mean() + EPS
        slope = (v**-0.5 - v_r**-0.5) / (v - v_r)
        change = v**-0.5 * centring + slope * torch.outer(m_r, (m + m_r) / WIDTH) @ centring
        scores.append((model.weight[target] * model.gain) @ change * (row - begin))
    return torch.stack(scores).detach()


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


@pytest.mark.parametrize("form", ["layer_norm", "rms_norm", "rsqrt"])
def test_against_zero_the_scale_is_as_if_frozen(form):
    torch.manual_seed(2)
    model, x = Spelled(form, form != "rms_norm"), torch.randn(3, WIDTH, dtype=torch.float64)
    frozen = CAFE(model, variant="published", biases="reference", norm_mean="linear").explain(x, target=0)
    found = CAFE(model, variant="published", **OPEN).explain(x, target=0)
    assert torch.allclose(found.combined, frozen.combined, rtol=0, atol=1e-12)


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

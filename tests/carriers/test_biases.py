"""CAFE(..., variant="published", biases="reference"): scores explain the change from the output at the baseline."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import naive
from architectures import ARCHITECTURES
from cafexai import CAFE
from cafexai.methods import METHODS
from whole_models.test_architectures import prepared

NETTINGS = ("path", "feature")
ACTIVATIONS = {"relu": nn.ReLU(), "gelu": nn.GELU(), "tanh": nn.Tanh(), "sigmoid": nn.Sigmoid()}


def network(activation, seed):
    torch.manual_seed(seed)
    phi = ACTIVATIONS[activation]
    return nn.Sequential(nn.Linear(3, 5), phi, nn.Linear(5, 4), phi, nn.Linear(4, 2)).double(), phi


def by_paths(model, phi, x, start, target, c):
    """Positive and negative scores of one row by the paper's rules, the reference being the model at the baseline.

    Carried as matrices from every feature, as positive and negative multipliers: what a feature's positive and negative part
    become is linear in both.
    """
    value, reference = x, start
    positive, negative = (x - start).clamp_min(0), (start - x).clamp_min(0)
    up, down = torch.diag(positive), torch.diag(negative)  # (features, units): the part of each feature in the two scores
    up_n, down_n = torch.zeros_like(up), torch.zeros_like(down)
    plus, minus = up + up_n, down + down_n
    for layer in model:
        if isinstance(layer, nn.Linear):
            w = layer.weight.detach()
            plus, minus = (
                plus @ w.clamp_min(0).T + minus @ (-w).clamp_min(0).T,
                minus @ w.clamp_min(0).T + plus @ (-w).clamp_min(0).T,
            )
            value, reference = layer(value).detach(), layer(reference).detach()
            continue
        new_plus, new_minus = torch.zeros_like(plus), torch.zeros_like(minus)
        for u in range(len(value)):
            p, n, r = plus[:, u].sum().item(), minus[:, u].sum().item(), reference[u].item()
            points = {"ref": r, "comb": r + p - n, "pos": r + p, "neg": r - n}
            flow = naive.flows(r, p, n, {name: float(phi(torch.tensor(v).double())) for name, v in points.items()}.get)
            m = {sign: c * flow[f"peak{sign}"] + (1 - c) * flow[f"linear{sign}"] for sign in ("++", "+-", "-+", "--")}
            of_p, of_n = (plus[:, u] / p if p else 0 * plus[:, u]), (minus[:, u] / n if n else 0 * minus[:, u])
            new_plus[:, u] = of_p * m["++"] + of_n * m["-+"]
            new_minus[:, u] = of_p * m["+-"] + of_n * m["--"]
        plus, minus, value, reference = new_plus, new_minus, phi(value), phi(reference)
    return plus[:, target], minus[:, target]


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(list(ACTIVATIONS)), st.integers(0, 10**6), st.sampled_from([0.0, 0.3, 1.0]), st.booleans())
def test_path_netting_is_the_paper_with_another_reference(activation, seed, c, zero):
    model, phi = network(activation, seed)
    x, start = torch.randn(3).double(), torch.zeros(3).double() if zero else torch.randn(3).double()
    e = CAFE(model, c, variant="published", biases="reference").explain(x[None], None if zero else start[None], target=1)
    positive, negative = by_paths(model, phi, x, start, 1, c)
    torch.testing.assert_close(e.positive[0], positive, rtol=1e-9, atol=1e-10)
    torch.testing.assert_close(e.negative[0], negative, rtol=1e-9, atol=1e-10)


@settings(max_examples=30, deadline=None)
@given(st.sampled_from(list(ACTIVATIONS)), st.integers(0, 10**6), st.sampled_from([0.0, 0.5, 1.0]), st.sampled_from(NETTINGS))
def test_features_explain_the_change_from_the_baseline(activation, seed, c, netting):
    model, _ = network(activation, seed)
    x, start = torch.randn(4, 3).double(), torch.randn(1, 3).double()
    x[0, 1] = start[0, 1]
    e = CAFE(model, c, "published", netting=netting, biases="reference").explain(x, start, target=0)
    with torch.no_grad():
        at_start, change = model(start)[:, 0], model(x)[:, 0] - model(start)[:, 0]
    torch.testing.assert_close(e.baseline_output, at_start.expand(4))
    torch.testing.assert_close(e.combined.sum(1), change)
    assert (e.bias_positive == 0).all()
    assert (e.bias_negative == 0).all()
    assert e.positive[0, 1] == e.negative[0, 1] == 0
    if c == 0 and activation == "relu":  # elsewhere the linear flows are cut off at the peak flows
        torch.testing.assert_close(e.combined, METHODS["deeplift_rescale"](model, x, baselines=start, target=0))


@pytest.mark.parametrize("netting", NETTINGS)
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_complete_on_every_architecture(name, netting):
    model, inputs, references, options = prepared(name, torch.float64)
    cafe = CAFE(model, 0.5, "published", netting=netting, biases="reference")
    e = cafe.explain(inputs, references, target=1, check="each", **options)
    summed = sum(part.flatten(1).sum(1) for part in e.combined)
    torch.testing.assert_close(e.baseline_output + summed, e.output, rtol=1e-8, atol=1e-9)
    assert (e.bias == 0).all()
    at_rest = cafe.explain(inputs, inputs, target=1, **options)  # nothing changes: the frozen model is the model
    torch.testing.assert_close(at_rest.baseline_output, at_rest.output)
    for part in at_rest.positive:
        torch.testing.assert_close(part, torch.zeros_like(part), rtol=0, atol=1e-12)


def test_the_word_is_checked():
    with pytest.raises(ValueError, match="reference"):
        CAFE(nn.Linear(2, 1), variant="published", biases="zero")

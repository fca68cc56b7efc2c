"""Parts of the studies on depth and on deeper networks."""

import pytest
import torch
from torch import nn

from cafexai import CAFE
from cafexai.models import mlp, residual_mlp
from cafexai.paper.studies import depth, depth_ft, infidelity_deep, infidelity_deep_report
from cafexai.paper.studies.methods import method


def test_peak_counts_bytes_that_live_at_the_same_time():
    with depth.Peak() as peak:
        one = torch.zeros(1000, dtype=torch.float64)
        two = one + 1
        del one, two
        three = torch.zeros(1000, dtype=torch.float64)
        three.view(10, 100).add_(1)  # no memory of its own
    assert peak.highest == 16_000


def test_a_residual_network_is_the_sum_of_its_blocks():
    model = residual_mlp(3, 4, 2, 1)
    x = torch.randn(5, 3)
    hidden = model[0](x)
    for block in model[1:3]:
        first, _, second = block.body
        hidden = hidden + second(first(hidden).relu())
    torch.testing.assert_close(model(x), model[3](hidden))
    e = CAFE(model, variant="published", netting="feature").explain(x)
    torch.testing.assert_close(e.combined.sum(1) + e.bias, e.output)


def test_plain_networks_have_the_variance_of_he():
    model = depth.build("plain", 64, 256, 3, 0)
    for layer in model:
        if isinstance(layer, nn.Linear) and layer.out_features > 1:
            assert layer.weight.std().item() == pytest.approx((2 / layer.in_features) ** 0.5, rel=0.05)
            assert (layer.bias == 0).all()


def test_rounding_in_float32_leaves_the_network_as_it_was():
    model = mlp(3, 8, 8, 1).double()
    before = [p.clone() for p in model.parameters()]
    x = torch.randn(4, 3, dtype=torch.float64)
    error = depth._rounding_error(model, x, "path c=0.5")
    assert 0 < error < 1e-5
    for one, two in zip(before, model.parameters(), strict=True):
        torch.testing.assert_close(one, two, rtol=1e-6, atol=1e-6)


def test_methods_with_biases_in_the_reference():
    model = mlp(3, 8, 8, 2)
    x = torch.randn(4, 3)
    first = infidelity_deep.find_method("cafe reference c=first")(model, x, target=0)
    same = CAFE(model, {"1": 0.5, "3": 0.0, "*": 0.0}, variant="published", biases="reference").attribute(x, target=0)
    torch.testing.assert_close(first, same)
    netted = infidelity_deep.find_method("feature reference c=0.25")(model, x, target=0)
    torch.testing.assert_close(
        netted, CAFE(model, 0.25, "published", netting="feature", biases="reference").attribute(x, target=0)
    )
    torch.testing.assert_close(
        infidelity_deep.find_method("cafe c=1")(model, x, target=0), CAFE.published(model, 1.0).attribute(x, target=0)
    )
    torch.testing.assert_close(
        method("feature c=1")(model, x, target=0), CAFE(model, 1.0, "published", netting="feature").attribute(x, target=0)
    )


def test_who_is_lower_by_two_standard_errors():
    settings = {"data": ["a"], "activations": ["relu"], "seeds": [1, 2, 3], "methods": ["one", "two"]}
    values = {1: (1.0, 2.0), 2: (1.1, 2.0), 3: (0.9, 2.0)}
    results = {
        f"a-relu-{seed}": {"methods": {name: {"small": v, "large": v} for name, v in zip(("one", "two"), pair, strict=True)}}
        for seed, pair in values.items()
    }
    lower, higher, numbers = infidelity_deep_report.against(settings, results, "one", ["two"])
    assert (lower, higher, len(numbers)) == (["a relu", "a relu"], [], 2)
    assert "-50.0%" in numbers[0]


def transformers_found(ways, size=1.0):
    """Results of a data set in which path netting has an infidelity of 2, unit netting 1 and all others 3."""
    infidelity = {"path": 2.0, "unit": 1.0}
    found = {
        " ".join(way): {"size": size, "median": size, **dict.fromkeys(("small", "large"), infidelity.get(way[0], 3.0))}
        for way in ways
    }
    return {"compas-42": {"ways": found}}


def test_findings_of_unit_netting_on_transformers():
    settings = {"data": ["compas"], "seeds": [42]}
    before = depth_ft.report(settings, transformers_found(depth_ft.WAYS)).findings
    assert not any("unit netting" in finding.claim or "deep models" in finding.claim for finding in before)
    for size in (49.0, 51.0):
        results = transformers_found((*depth_ft.WAYS, *depth_ft.UNITS), size)
        own = [f for f in depth_ft.report(settings, results).findings if f.claim not in {known.claim for known in before}]
        told = {f.claim: f.holds for f in own}
        small = size < depth_ft.LIMIT
        assert list(told.values()) == [small, True, small, False]
        assert [claim.split(":")[0] for claim in told if "positive scores" in claim] == [
            "unit netting",
            "the default of deep models",
        ]

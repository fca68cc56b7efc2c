"""Netting by unit: only the direct inputs of a unit are in conflict, with their net values; and mean flows."""

from __future__ import annotations

import itertools

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor, nn

import models
import naive
from architectures import ARCHITECTURES, adds_up
from cafexai import CAFE
from cafexai._carriers import CARRIERS
from cafexai._carriers import unit_activation as formulas
from cafexai._carriers.unit import UnitScores
from cafexai._carriers.unit_activation import net_activation
from cafexai._core import activation
from cafexai._core.flow_rule import FlowRule
from cafexai._core.tensors import Scored
from cafexai.methods import METHODS
from rules.test_rules import call, instances, outputs, twin_of
from whole_models.test_architectures import prepared


def netted(pair):
    delta = pair.positive - pair.negative
    return naive.Pair(pair.reference, delta.clamp_min(0), (-delta).clamp_min(0))


@pytest.mark.parametrize(("case", "function", "rule"), list(instances()))
def test_every_rule_acts_on_the_net_values_of_its_inputs_where_it_sums(case, function, rule):
    if case.twin in ("constant", "shaped") or case.frozen == "glu":
        pytest.skip("gives plain values, or is made of several")
    _, states, pairs, result, plain = call(case, function, 0, 0.6, carrier=UnitScores)
    for place, part in outputs(result):
        if not isinstance(part, Scored):
            continue

        def f(*values, place=place):
            out = plain(*values)
            return out if place is None else out[place]

        state: Tensor = part.state
        whole, pairs_of_it = twin_of(case, f, pairs, 0.6)
        of_units, nets = twin_of(case, f, [netted(pair) for pair in pairs], 0.6)
        twin = whole.pair(pairs_of_it)
        torch.testing.assert_close(state.delta, twin.positive - twin.negative, atol=1e-9, rtol=1e-9)
        if case.twin == "elementwise":
            torch.testing.assert_close(state.total, state.delta.abs())
            gradients = torch.autograd.grad(state.delta.sum(), [t for s in states for t in s.parts], allow_unused=True)
            found = sum(t * g for t, g in zip([t for s in states for t in s.parts], gradients, strict=True) if g is not None)
            up, down = (m[0].sum(0).view(found.shape) for m in (_minus(whole.pp, whole.np), _minus(whole.pn, whole.nn)))
            if function is not torch.relu:
                torch.testing.assert_close(found, up * pairs[0].positive + down * pairs[0].negative, atol=1e-8, rtol=1e-8)
            continue
        restarted, as_it_was = (t.positive + t.negative for t in (of_units.pair(nets), twin))
        sums = any(bool(((p + n) != 0).sum(1).max() > 1) for p, n in zip(whole.pp, whole.pn, strict=True))
        if case.name in ADDED:
            assert ((state.total >= restarted - 1e-9) & (state.total <= as_it_was + 1e-9)).all()
        else:
            same = [torch.allclose(state.total, one, atol=1e-9) for one in (restarted, as_it_was)]
            assert same[0] if sums else any(same)


# sums of two values restart nothing, and these are made with one
ADDED = """
    add sub subtract rsub __rsub__ __radd__ lerp addcmul addcdiv addmm addmv addbmm baddbmm addr diff index_add scatter_add
    scatter_reduce scatter
""".split()


def _minus(one, other):
    return [a - b for a, b in zip(one, other, strict=True)]


def by_hand(model, x, reference, c, flows, biases):
    """One row through linear layers and activations in turn, unit by unit: positive, negative, share and size of the biases."""
    layers, value, start, seen = list(model), x, reference, []
    for layer in layers:
        if isinstance(layer, nn.Linear):
            d = value - start
            inputs = torch.cat([layer.weight * d, layer.bias[:, None] * (biases == "scores")], 1)  # direct inputs, bias last
            start = layer.weight @ start + layer.bias * (biases == "reference")
            value = start + inputs.sum(1)
            seen.append((layer.weight, d, inputs, start, value))
        else:
            value, start = layer(value), layer(start)
    up = down = torch.ones(1)  # what positive and negative inputs of a unit are multiplied by, up to the output
    share = size = torch.zeros(())
    for number in reversed(range(len(seen))):
        weight, d, inputs, _, _ = seen[number]
        shares = torch.where(inputs > 0, up[:, None], down[:, None]) * inputs
        edges, of_bias = shares[:, :-1], shares[:, -1]
        share, size = share + of_bias.sum(), size + of_bias.abs().sum()
        if number > 0:
            mean = (weight * (up + down)[:, None] / 2).sum(0)
            through = torch.where(d == 0, mean, edges.sum(0) / torch.where(d == 0, 1.0, d))
            _, _, before, r, a = seen[number - 1]
            sides = before.clamp_min(0).sum(1), (-before).clamp_min(0).sum(1)
            up, down = (through * m for m in _multipliers(layers[2 * number - 1], r, a, *sides, c, flows))
    return edges.clamp_min(0).sum(0), (-edges).clamp_min(0).sum(0), share, size


def _multipliers(phi, r, a, p, n, c, flows):
    """What positive and negative direct inputs are multiplied by."""
    d, change = a - r, phi(a) - phi(r)
    upper, lower = phi(r + p) - phi(torch.maximum(a, r)), phi(torch.minimum(a, r)) - phi(r - n)
    linear = torch.where(d == 0, 0.0, torch.minimum(p, n) * change / torch.where(d == 0, 1.0, d))
    if flows == "mean":
        net = (1 - c) * linear + c * (upper + lower) / 2
    else:
        most, least = torch.maximum(upper, lower).clamp_min(0), torch.minimum(upper, lower).clamp_max(0)
        along, against = torch.minimum(linear.clamp_min(0), most), torch.maximum(linear.clamp_max(0), least)
        net = c * (most + least) + (1 - c) * (along + against)
    net = torch.where((p > 0) & (n > 0), net, 0.0)
    up = torch.where(p > 0, (net + change * (d >= 0)) / torch.where(p > 0, p, 1.0), 0.0)
    down = torch.where(n > 0, (net - change * (d < 0)) / torch.where(n > 0, n, 1.0), 0.0)
    return up, down


@pytest.mark.parametrize("flows", ["peak", "mean"])
@pytest.mark.parametrize("c", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("phi", [torch.relu, nn.functional.gelu, nn.functional.leaky_relu, torch.tanh])
def test_multipliers_of_a_unit_equal_the_definition(phi, c, flows):
    """Also where one side or both are empty, where both are equal, and where the way begins or ends at 0."""
    torch.manual_seed(0)
    p, n, r = torch.rand(200), torch.rand(200), torch.randn(200)
    p[:20], n[10:30], n[30:40], r[40:60] = 0, 0, p[30:40], 0
    r[60:80] = n[60:80] - p[60:80]
    for start in (None, r):
        begin = torch.zeros(200) if start is None else r
        rule = FlowRule(flows, c)
        step, reference, behind, function = net_activation(p - n, start, phi, True, rule)
        change, size, kept, rest = step.apply(p - n, p + n, reference, behind, function, rule)
        up, down = _multipliers(phi, begin, begin + (p - n), p, n, c, flows)
        torch.testing.assert_close(change, phi(begin + (p - n)) - phi(begin))
        assert torch.equal(size, change.abs())
        of_delta, of_total = step.pull((torch.ones(200), None), kept, rest)
        decided = p != n  # else D / d is a derivative
        for found, expected in ((of_delta + of_total, up), (of_delta - of_total, down)):
            torch.testing.assert_close(found[decided], expected[decided], atol=1e-10, rtol=0)


@given(
    st.integers(0, 10**6),
    st.sampled_from([nn.ReLU(), nn.GELU(), nn.Tanh()]),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from(["peak", "mean"]),
    st.sampled_from(["scores", "reference"]),
    st.booleans(),
)
def test_deep_chains_equal_the_definition_unit_by_unit(seed, phi, c, flows, biases, zero):
    generator = torch.Generator().manual_seed(seed)
    sizes = [4, 6, 5, 3, 1]
    layers = []
    for size, following in itertools.pairwise(sizes):
        layer = nn.Linear(size, following)
        with torch.no_grad():
            for parameter in layer.parameters():
                parameter.copy_(torch.randn(parameter.shape, generator=generator))
        layers += [layer, phi]
    model = nn.Sequential(*layers[:-1])
    x = torch.randn(2, 4, generator=generator)
    start = torch.zeros(4) if zero else torch.randn(4, generator=generator)
    e = CAFE(model, c, "published", netting="unit", flows=flows, biases=biases).explain(x, None if zero else start)
    for row in range(2):
        with torch.no_grad():
            positive, negative, bias, size = by_hand(model, x[row], start, c, flows, biases)
        torch.testing.assert_close(e.positive[row], positive, atol=1e-9, rtol=1e-7)
        torch.testing.assert_close(e.negative[row], negative, atol=1e-9, rtol=1e-7)
        torch.testing.assert_close(e.bias[row], torch.as_tensor(bias), atol=1e-9, rtol=1e-7)
        torch.testing.assert_close((e.bias_positive + e.bias_negative)[row], torch.as_tensor(size), atol=1e-9, rtol=1e-7)


@pytest.mark.parametrize("c", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("biases", ["scores", "reference"])
@pytest.mark.parametrize("phi", [nn.ReLU(), nn.Tanh(), nn.GELU()])
def test_with_one_hidden_layer_it_is_the_other_nettings(phi, biases, c):
    model = nn.Sequential(nn.Linear(6, 9), phi, nn.Linear(9, 2))
    x = torch.randn(4, 6)
    for baselines in (None, torch.randn(1, 6)):
        unit, path, feature = (
            CAFE(model, c, "published", netting=word, biases=biases).explain(x, baselines, 1)
            for word in ("unit", "path", "feature")
        )
        for part in ("combined", "bias"):
            torch.testing.assert_close(getattr(unit, part), getattr(path, part), atol=1e-10, rtol=0)
        for part in ("positive", "negative"):
            torch.testing.assert_close(getattr(unit, part), getattr(feature, part), atol=1e-10, rtol=0)
            if not isinstance(phi, nn.GELU):  # a monotone function
                torch.testing.assert_close(getattr(unit, part), getattr(path, part), atol=1e-10, rtol=0)


@pytest.mark.parametrize("phi", [nn.ReLU(), nn.GELU(), nn.Tanh(), nn.ReLU6(), nn.Sigmoid()])
def test_mean_flows_are_deeplift_at_both_ends(phi):
    model = nn.Sequential(nn.Linear(6, 19), phi, nn.Linear(19, 12), phi, nn.Linear(12, 12), phi, nn.Linear(12, 2))
    x = torch.randn(5, 6)
    for start in (torch.zeros(1, 6), torch.randn(1, 6)):
        for c, rule in ((0.0, "deeplift_rescale"), (1.0, "deeplift_revealcancel")):
            found = CAFE(model, c, "published", netting="unit", flows="mean", biases="reference").attribute(x, start, 1)
            expected = METHODS[rule](model, x, target=1, baselines=start)
            torch.testing.assert_close(found, expected, atol=1e-12, rtol=0)


def test_mean_flows_have_no_cap_where_functions_saturate():
    """Two features of 1100 against each other before a ReLU6."""
    model = nn.Sequential(nn.Linear(2, 1, bias=False), nn.ReLU6(), nn.Linear(1, 1, bias=False))
    with torch.no_grad():
        model[0].weight.copy_(torch.tensor([[1.0, -1.0]]))
        model[2].weight.fill_(1.0)
    x = torch.tensor([[1101.5, 1100.0]])
    peak, mean = (
        CAFE(model, 0.0, "published", netting="unit", flows=flows).explain(x).combined[0] for flows in ("peak", "mean")
    )
    torch.testing.assert_close(mean, torch.tensor([1101.5, -1100.0]))  # the slope of Rescale is 1
    torch.testing.assert_close(peak.sum(), mean.sum())
    assert peak.abs().max() < 10


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_all_architectures_by_unit(name):
    for dtype, flows, biases in ((torch.float32, "peak", "reference"), (torch.float64, "mean", "scores")):
        model, inputs, references, options = prepared(name, dtype)
        check = "each" if dtype == torch.float64 else "output"
        e = CAFE(model, 0.5, "published", netting="unit", flows=flows, biases=biases).explain(
            inputs, references, target=1, check=check, **options
        )
        adds_up(e)
        size = 1 + e.flat(e.positive).abs().max()
        assert e.flat(e.positive).min() >= 0
        assert (e.flat(e.positive) - e.flat(e.negative) - e.flat(e.combined)).abs().max() <= 1e-5 * size
        assert (e.bias_positive - e.bias_negative - e.bias).abs().max() <= 1e-5 * (1 + e.bias_positive.max())


def test_all_options():
    model, x = models.mlp(5, 8, 8, 3), torch.randn(4, 5)
    cafe = CAFE(model, variant="published", netting="unit")
    one = cafe.explain(x, target=2)
    torch.testing.assert_close(cafe.explain(x, target="all")[2].positive, one.positive)
    torch.testing.assert_close(cafe.explain(x, target=2, c=[0.0, 0.5])[0.5].negative, one.negative)
    torch.testing.assert_close(cafe.explain(x, target=2, batch_size=1).positive, one.positive)
    torch.testing.assert_close(cafe.attribute(x, None, 2), one.combined)
    grouped = cafe.explain(x, target=2, feature_groups={"a": [0, 1]})
    torch.testing.assert_close(grouped.positive[:, 0], one.positive[:, :2].sum(1))
    for layer in ("0", "1", "2"):
        hidden = cafe.explain(x, target=2, layer=layer)
        reported = cafe.explain(x, target=2, layer=layer, start=False)
        torch.testing.assert_close(hidden.combined, reported.combined)
        torch.testing.assert_close(hidden.positive, reported.positive)
    assert one.meta.settings["netting"] == "unit"
    assert one.meta.settings["flows"] == "peak"
    with pytest.raises(ValueError, match="Allowed values: 'peak'"):
        CAFE(model, variant="published", flows="larger")


def test_the_published_method_by_its_name():
    model, x = models.mlp(5, 8, 8, 3), torch.randn(4, 5)
    e, expected = (
        CAFE.published(model, 0.7).explain(x, target=1),
        CAFE(model, 0.7, "published", netting="path", biases="scores").explain(x, target=1),
    )
    assert torch.equal(e.positive, expected.positive)
    assert [e.meta.settings[word] for word in ("c", "netting", "flows", "biases")] == [0.7, "path", "peak", "scores"]
    found = METHODS["cafe"](model, x, target=1, variant="published", netting="unit", flows="mean")
    torch.testing.assert_close(found, CAFE(model, variant="published", netting="unit", flows="mean").attribute(x, None, 1))


def test_linear_models_and_outputs_that_no_map_leads_to():
    x = torch.randn(3, 4)
    e = CAFE(lambda v: 2 * v[:, 0] - v[:, 1] + 3, variant="published", netting="unit").explain(x)
    torch.testing.assert_close(e.combined, torch.stack([2 * x[:, 0], -x[:, 1], 0 * x[:, 2], 0 * x[:, 3]], 1))
    torch.testing.assert_close(e.positive, e.combined.clamp_min(0))
    torch.testing.assert_close(e.bias_positive, torch.full((3,), 3.0))


def test_nothing_grows_with_depth():
    x = torch.randn(4, 16)
    for layers in (4, 16):
        model = models.mlp(16, *[32] * layers, 1)
        unit, path = (CAFE(model, 0.5, "published", netting=word).explain(x) for word in ("unit", "path"))
        ratio = [(e.positive + e.negative).sum() / e.output.abs().sum() for e in (unit, path)]
        assert ratio[0] < ratio[1]
    assert ratio[0] < 1e-3 * ratio[1]


@pytest.mark.parametrize("netting", ["path", "unit"])
def test_where_nothing_cancels_rounding_of_slices_does_not_count(netting):
    """Functions of a slice are rounded otherwise than of the same numbers in a row: such differences were divided by 0."""
    torch.manual_seed(0)
    for length in range(4, 12):
        layer = nn.Conv1d(16, 16, 4, padding=3, groups=16, bias=False)
        e = CAFE(lambda v: nn.functional.silu(layer(v)[..., : v.shape[-1]]).sum((1, 2)), 1.0, "published", netting=netting)
        e = e.explain(torch.randn(1, 16, length) / 10)
        assert e.completeness_error.abs().max() < 1e-12
        assert (e.positive + e.negative).max() < 10


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
def test_a_root_behind_closed_units_has_no_slope(netting):
    """Its derivative at 0 is infinite; nothing flows there."""
    weight, x, start = torch.randn(4, 6), torch.randn(3, 4), torch.randn(3, 4)

    def model(v):
        return torch.sqrt(torch.relu(torch.relu(v @ weight) @ weight.T)).sum(1)

    for reference in (None, start):
        e = CAFE(model, variant="published", netting=netting, flows="mean").explain(x, reference)
        assert e.completeness_error.abs().max() < 1e-12


@pytest.mark.parametrize("rule", [FlowRule("mean", 0.5), FlowRule("mean", 1.0), FlowRule("peak", 0.5)])
@pytest.mark.parametrize("phi", [torch.relu, torch.tanh])
def test_blocks_have_the_bits_of_the_whole(phi, rule, monkeypatch):
    """Whatever is written in its place block by block; also where nothing changes and where nothing cancels."""
    monkeypatch.setenv("CAFEXAI_COMPILE", "never")
    torch.manual_seed(0)
    delta, reference = torch.randn(64, 32), torch.randn(32).expand(64, -1)
    delta[:4] = 0
    total = delta.abs() + torch.rand(64, 32)
    total[2:8] = delta[2:8].abs()
    step, reference, behind, phi = net_activation(delta, reference, phi, True, rule)
    arguments = (delta, total, reference, behind, phi, rule)
    change, size, kept, _ = step.apply(*arguments)
    for module, name, most in ((activation, "BLOCK", 256), (formulas, "BLOCK", 256), (formulas, "LARGE", 512)):
        monkeypatch.setattr(module, name, most)
    again, size_again, kept_again, _ = step.apply(*arguments)
    for one, two in zip((change, size, *kept), (again, size_again, *kept_again), strict=True):
        assert torch.equal(one, two)
    torch.testing.assert_close(kept[1] * delta + kept[2] * total, change, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("baseline", [0.0, 0.5, -0.5])
@pytest.mark.parametrize("phi", [nn.ReLU(), nn.GELU(), nn.Tanh(), nn.Hardtanh(-0.2, 0.9)], ids=lambda phi: type(phi).__name__)
@pytest.mark.parametrize("flows", ["peak", "mean"])
@pytest.mark.parametrize("c", [0.0, 0.5, 1.0])
def test_a_unit_that_does_not_change_is_the_same_with_every_netting(baseline, phi, flows, c):
    """d is exactly 0 and p = n > 0: by the paper, whose flows are the peak ones, there is no linear flow."""
    first, last = nn.Linear(3, 1, bias=False).double(), nn.Linear(1, 1, bias=False).double()
    with torch.no_grad():
        first.weight.fill_(1.0)
        last.weight.fill_(1.0)
    x = torch.tensor([[1.0, -1.0, 0.0]], dtype=torch.float64) + baseline
    found = [CAFE(nn.Sequential(first, phi, last), c, netting, flows=flows).explain(x, baseline) for netting in CARRIERS]
    for e in found[1:]:
        torch.testing.assert_close(e.combined, found[0].combined)
        torch.testing.assert_close(e.positive, found[0].positive)
    if flows == "peak" and c == 0:
        assert found[0].combined.tolist() == [[0.0, 0.0, 0.0]]

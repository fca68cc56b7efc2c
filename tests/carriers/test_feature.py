"""netting="feature": its naive twin, its properties, every rule and every architecture."""

from __future__ import annotations

import functools
import warnings

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import cases
import models
import naive
from architectures import ARCHITECTURES
from cafexai import CAFE
from cafexai._carriers.feature import FeatureScores
from cafexai._core.feature_index import Features
from cafexai._core.run import Run, Settings
from cafexai._core.tensors import Scored
from cafexai._engine.state_guard import StateGuard
from cafexai._engine.tracer import Trace
from cafexai.conflicts import audit
from naive_methods import layers_of
from rules.test_rules import build, instances, outputs
from whole_models.test_architectures import prepared, relative_error

NET = functools.partial(CAFE, variant="published", netting="feature")


# ---- the naive twin -------------------------------------------------------------------------------------------------
def by_loops(model, x, start, target, c):
    """Contributions of each feature and of the biases, unit by unit, for one row; then the edges into the target."""
    contributions = [[x[i] - start[i] if i == f else torch.tensor(0.0) for i in range(len(x))] for f in range(len(x))]
    contributions.append([torch.tensor(0.0)] * len(x))  # the biases
    reference = list(start)
    layers = layers_of(model)
    for number, (weight, bias, activation) in enumerate(layers):
        edges = [[[weight[u, i] * k[i] for i in range(len(k))] for u in range(len(weight))] for k in contributions]
        for u in range(len(weight)):
            edges[-1][u].append(bias[u])
        reference = [sum(w * r for w, r in zip(row, reference, strict=True)) for row in weight]
        if number == len(layers) - 1:
            positive = [sum(max(float(e), 0) for e in of[target]) for of in edges]
            negative = [sum(max(-float(e), 0) for e in of[target]) for of in edges]
            return torch.tensor(positive), torch.tensor(negative), reference[target]
        contributions = [[sum(unit) for unit in of] for of in edges]
        for u in range(len(weight)):
            p = sum(max(float(k[u]), 0) for k in contributions)
            n = sum(max(-float(k[u]), 0) for k in contributions)
            r = float(reference[u])
            points = {"ref": r, "comb": r + p - n, "pos": r + p, "neg": r - n}
            flow = naive.flows(r, p, n, {name: float(activation(torch.tensor(v))) for name, v in points.items()}.get)
            mixed = {sign: c * flow[f"peak{sign}"] + (1 - c) * flow[f"linear{sign}"] for sign in ("++", "+-", "-+", "--")}
            up = (mixed["++"] - mixed["+-"]) / p if p else 0.0
            down = (mixed["--"] - mixed["-+"]) / n if n else 0.0
            for k in contributions:
                k[u] = k[u] * (up if k[u] > 0 else down)
            reference[u] = activation(torch.tensor(r))
    raise AssertionError


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU, nn.Tanh, nn.Sigmoid])
@pytest.mark.parametrize("c", [0.0, 0.3, 1.0])
def test_equals_its_naive_twin(activation, c):
    model, x, start = models.mlp(4, 6, 5, 4, 2, activation=activation), torch.randn(3, 4), torch.randn(3, 4)
    start[0] = 0
    x[1, 2] = start[1, 2]
    e = NET(model, c).explain(x, start, target=1)
    with torch.no_grad():
        for row in range(3):
            positive, negative, baseline = by_loops(model, x[row], start[row], 1, c)
            torch.testing.assert_close(e.positive[row], positive[:-1])
            torch.testing.assert_close(e.negative[row], negative[:-1])
            torch.testing.assert_close(e.bias_positive[row], positive[-1])
            torch.testing.assert_close(e.bias_negative[row], negative[-1])
            torch.testing.assert_close(e.baseline_output[row], baseline)


# ---- every rule ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(("case", "function", "rule"), list(instances()))
def test_contributions_add_up_through_every_rule(case, function, rule):
    """Three features and the biases with random contributions: their sum is the change, with edges as large or larger."""
    if case.twin == "constant":
        pytest.skip("gives plain values")
    leaves, structure, pairs = build(case, 1)
    rows = {pair.reference.shape[0] for pair in pairs}
    run = Run(rows.pop() if len(rows) == 1 else 1, Settings(FeatureScores, lambda path: 0.6))
    run.state.features = Features.of([torch.Size([3])])
    arguments = []
    for leaf in leaves:
        if isinstance(leaf, naive.Pair):
            delta = leaf.positive - leaf.negative
            parts = torch.stack([0.7 * leaf.positive, -0.6 * leaf.negative, 0.3 * leaf.positive, -0.4 * leaf.negative])
            leaf = Scored(FeatureScores(run, leaf.reference, delta, parts, None, None), torch.float64)
        arguments.append(leaf)
    args, kwargs = torch.utils._pytree.tree_unflatten(arguments, structure)
    trace = Trace(run, dict, StateGuard(None))
    with trace:
        result = function(*args, **kwargs)
    assert not trace.problems, trace.problems[0]
    for _, part in outputs(args[0] if result is None else result):
        state = part.state if isinstance(part, Scored) else None
        if state is None:
            continue
        torch.testing.assert_close(state.contributions.sum(0), state.delta, atol=1e-9, rtol=1e-7)
        assert (state.edges - state.contributions.abs()).min() > -1e-9 * (1 + state.contributions.abs().max())


def test_the_cases_are_those_of_the_rules():
    assert len(list(instances())) >= len(cases.CASES)


# ---- architectures ---------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("zero", [True, False], ids=["zero", "random"])
def test_complete_on_every_architecture(name, zero):
    for dtype, limit in ((torch.float64, 1e-9), (torch.float32, 1e-3)):
        model, inputs, references, options = prepared(name, dtype)
        with warnings.catch_warnings():
            warnings.simplefilter("error", UserWarning) if dtype == torch.float64 else warnings.simplefilter("ignore")
            e = NET(model, 0.5).explain(inputs, None if zero else references, target=1, **options)
        assert relative_error(e) <= limit
        path = CAFE.published(model, 0.5)
        if dtype == torch.float64:
            expected = path.explain(inputs, None if zero else references, target=1, **options)
            torch.testing.assert_close(e.output, expected.output)
            torch.testing.assert_close(e.baseline_output, expected.baseline_output, atol=1e-9, rtol=1e-6)
        for part, x in zip(e.positive, inputs, strict=True):
            assert part.shape == x.shape
            assert (part >= 0).all()
        same = torch.cat([(x == r).flatten() for x, r in zip(inputs, references, strict=True)])
        if not zero and same.any():
            assert (torch.cat([part.flatten() for part in e.positive])[same] == 0).all()


@pytest.mark.parametrize("name", ["mlp", "BERT", "LSTM", "FT-Transformer"])
def test_a_batch_is_its_rows(name):
    found = [key for key in ARCHITECTURES if name.lower() in key.lower() and not key.startswith("exported")]
    model, inputs, references, options = prepared(found[0] if found else next(iter(ARCHITECTURES)), torch.float64)
    whole = NET(model).explain(inputs, references, target=1, **options)
    for i in range(len(whole)):
        row, start = (tuple(x[i : i + 1] for x in part) for part in (inputs, references))
        one = NET(model).explain(row, start, target=1, **options)
        torch.testing.assert_close(one.bias, whole[i].bias)
        for mine, yours in zip(one.positive, whole[i].positive, strict=True):
            torch.testing.assert_close(mine, yours)


# ---- properties ------------------------------------------------------------------------------------------------------
MONOTONE = [nn.ReLU, nn.Tanh, nn.Sigmoid, nn.Softplus, nn.ELU, nn.LeakyReLU]


@given(st.sampled_from([*MONOTONE, nn.GELU]), st.floats(0, 1), st.booleans(), st.integers(0, 999))
def test_with_one_hidden_layer_both_nettings_agree(activation, c, zero, seed):
    torch.manual_seed(seed)
    model, x = models.mlp(5, 9, 3, activation=activation), torch.randn(4, 5)
    start = None if zero else torch.randn(4, 5)
    path, feature = CAFE.published(model, c).explain(x, start, target=2), NET(model, c).explain(x, start, target=2)
    names = ["combined", "bias", "output", "baseline_output"]
    if activation is not nn.GELU:
        names += ["positive", "negative", "bias_positive", "bias_negative", "conflict"]
    for name in names:
        torch.testing.assert_close(getattr(feature, name), getattr(path, name), atol=1e-10, rtol=1e-10)


@given(st.floats(0, 1), st.integers(0, 999))
def test_missingness_completeness_and_permutation(c, seed):
    torch.manual_seed(seed)
    model, x, start = models.mlp(5, 8, 8, 8, 2, activation=nn.GELU), torch.randn(4, 5), torch.randn(4, 5)
    x[:, 3] = start[:, 3]
    e = NET(model, c).explain(x, start, target=1)
    assert (e.positive[:, 3] == 0).all()
    assert (e.negative[:, 3] == 0).all()
    torch.testing.assert_close(e.combined.sum(1) + e.bias + e.baseline_output, model(x)[:, 1].detach())
    torch.testing.assert_close(e.positive - e.negative, e.combined)
    order = torch.randperm(5)
    swapped = models.mlp(5, 8, 8, 8, 2, activation=nn.GELU)
    swapped.load_state_dict(model.state_dict())
    swapped[0].weight.data = model[0].weight.data[:, order]
    torch.testing.assert_close(NET(swapped, c).explain(x[:, order], start[:, order], target=1).positive, e.positive[:, order])


@given(st.floats(-3, 3), st.floats(-3, 3), st.floats(0, 1))
def test_linear_in_the_model(a, b, c):
    """The combined scores of a weighted sum of two models are the weighted sum of theirs."""
    torch.manual_seed(3)
    one, two = models.mlp(4, 6, 6, 1, activation=nn.Tanh), models.mlp(4, 7, 5, 1)
    x, start = torch.randn(3, 4), torch.randn(3, 4)
    both = NET(lambda v: a * one(v) + b * two(v), c).explain(x, start)
    apart = [NET(model, c).explain(x, start) for model in (one, two)]
    torch.testing.assert_close(both.combined, a * apart[0].combined + b * apart[1].combined)
    torch.testing.assert_close(both.bias, a * apart[0].bias + b * apart[1].bias)


@pytest.mark.parametrize("bias", [True, False])
def test_theorem_1_no_conflict_of_a_unit_is_underreported(bias):
    torch.manual_seed(5)
    model, x = models.mlp(6, 10, 8, 2, bias=bias), torch.randn(15, 6)
    result = audit(functools.partial(NET, c=1.0), model, x)
    assert result.conflicts > 100
    assert (result.underreported, result.hidden, result.undecided) == (0, 0, 0)


def test_scores_stay_in_proportion_with_depth():
    """Where those of the paths grow without bound."""
    torch.set_default_dtype(torch.float32)
    torch.manual_seed(0)
    layers = [nn.Linear(20, 64), nn.ReLU()]
    for _ in range(15):
        layers += [nn.Linear(64, 64), nn.ReLU()]
    model = nn.Sequential(*layers, nn.Linear(64, 1)).eval()
    for module in model:
        if isinstance(module, nn.Linear):
            nn.init.kaiming_normal_(module.weight)
            nn.init.zeros_(module.bias)
    x = torch.randn(8, 20)
    feature = NET(model, 0.0).explain(x)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        path = CAFE.published(model, 0.0).explain(x)
    assert feature.positive.sum(1).max() < 1e4 * feature.output.abs().min()
    assert path.positive.sum(1).min() > 1e6 * path.output.abs().max()


# ---- the same surface ------------------------------------------------------------------------------------------------
def test_groups_are_features():
    model, x = models.mlp(6, 8, 8, 2, activation=nn.GELU), torch.randn(4, 6)
    single = NET(model).explain(x, target=1)
    alone = NET(model).explain(x, target=1, feature_groups={f"g{i}": [i] for i in range(6)})
    torch.testing.assert_close(alone.positive, single.positive)
    grouped = NET(model).explain(x, target=1, feature_groups={"pair": [1, 4]})
    assert grouped.names() == ("x0", "pair", "x2", "x3", "x5")
    assert grouped.positive.shape == (4, 5)
    torch.testing.assert_close(grouped.combined.sum(1) + grouped.bias + grouped.baseline_output, grouped.output)
    mask = torch.tensor([0, 7, 2, 3, 7, 5])
    torch.testing.assert_close(NET(model).explain(x, target=1, feature_groups=mask).positive.sum(), grouped.positive.sum())
    everything = NET(model).explain(x, target=1, feature_groups=torch.zeros(6, dtype=torch.long))
    torch.testing.assert_close(everything.combined[:, 0] + everything.bias + everything.baseline_output, everything.output)
    pooled = CAFE.published(model).explain(x, target=1, feature_groups={"pair": [1, 4]})
    assert pooled.positive.shape == grouped.positive.shape


def test_all_classes_several_c_layers_units_and_batches():
    model, x = models.mlp(5, 8, 8, 3, activation=nn.GELU), torch.randn(7, 5)
    cafe = NET(model, 0.7)
    for label, e in cafe.explain(x, target="all").items():
        torch.testing.assert_close(e.positive, cafe.explain(x, target=label).positive)
    for c, e in cafe.explain(x, target=1, c=[0.0, 1.0]).items():
        torch.testing.assert_close(e.positive, NET(model, c).explain(x, target=1).positive)
    inner = cafe.explain(x, target=1, layer="1")
    tail = nn.Sequential(*list(model)[2:])
    torch.testing.assert_close(inner.positive, NET(tail, 0.7).explain(model[:2](x), target=1).positive)
    unit = cafe.explain(x, target_layer="2", target=3)
    torch.testing.assert_close(unit.output, model[:3](x)[:, 3].detach())
    whole = cafe.explain(x, target=1)
    torch.testing.assert_close(cafe.explain(x, target=1, batch_size=2).positive, whole.positive)
    torch.testing.assert_close(cafe.attribute(x, target=1), whole.combined)
    stack = torch.randn(3, 1, 5)
    mean = sum(cafe.explain(x, one, target=1).positive for one in stack) / 3
    torch.testing.assert_close(cafe.explain(x, stack, target=1).positive, mean)
    by_layer = NET(model, c={"1": 0.0, "3": 1.0}).explain(x, target=1)
    assert not torch.allclose(by_layer.positive, whole.positive)
    assert whole.meta.settings["netting"] == "feature"
    with pytest.raises(ValueError, match="from_inputs=False"):
        cafe.explain_layer(x, "1", from_inputs=True)
    with pytest.raises(ValueError, match="'path'"):
        CAFE(model, variant="published", netting="edge")


def test_rows_are_split_by_themselves(monkeypatch):
    from cafexai._engine import batches

    model, x = models.mlp(20, 64, 64, 3), torch.randn(60, 20)
    whole = NET(model).explain(x, target=1)
    monkeypatch.setattr(batches, "CARRIED", 2**15)
    monkeypatch.setattr(batches, "WORTH", 1)
    torch.testing.assert_close(NET(model).explain(x, target=1).positive, whole.positive)


def test_rows_that_influence_each_other_are_refused():
    with pytest.raises(ValueError, match="row"):
        NET(lambda v: (v - v.mean(0)).relu().sum(1)).explain(torch.randn(4, 3) + 1)


def test_several_inputs_and_codes():
    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed, self.net = nn.Embedding(7, 3), models.mlp(4 + 6, 8, 8, 1)

        def forward(self, numbers, codes):
            return self.net(torch.cat([numbers, self.embed(codes).flatten(1)], 1))

    model, numbers, codes = Both().eval(), torch.randn(5, 4), torch.randint(7, (5, 2))
    e = NET(model, 1.0).explain((numbers, codes))
    assert [part.shape for part in e.positive] == [(5, 4), (5, 2)]
    total = e.combined[0].sum(1) + e.combined[1].sum(1) + e.bias + e.baseline_output
    torch.testing.assert_close(total, e.output)
    grouped = NET(model).explain((numbers, codes), feature_groups=(torch.tensor([0, 0, 1, 1]), torch.tensor([2, 2])))
    assert grouped.positive.shape == (5, 3)
    assert (grouped.positive.sum(1) > 0).all()


# ---- features at their reference ---------------------------------------------------------------------------------------
def carried(monkeypatch):
    """How many contributions each pass carried."""
    found = []
    real = Features.keep_changed

    def changed(self, changes):
        result = real(self, changes)
        found.append(result.carried)
        return result

    monkeypatch.setattr(Features, "keep_changed", changed)
    return found


@pytest.mark.parametrize("netting_options", [{}, {"biases": "reference"}])
@pytest.mark.parametrize("groups", [None, "mask"])
def test_features_at_their_reference_are_not_carried(monkeypatch, groups, netting_options):
    """The same numbers as if they were, for every row with features of its own."""
    model = nn.Sequential(nn.Linear(12, 7), nn.GELU(), nn.Linear(7, 6), nn.ReLU(), nn.Linear(6, 2))
    x, start = torch.randn(9, 12), torch.randn(1, 12)
    same = torch.rand(9, 12) < torch.linspace(0.65, 1, 9)[:, None]
    same[:, 8:] = True
    x = torch.where(same, start, x)
    options = {"target": 1, "pairs": True, "feature_groups": None if groups is None else torch.arange(12) // 2}
    counts = carried(monkeypatch)
    sparse = NET(model, 0.4, **netting_options).explain(x, start, **options)
    assert counts[0] < (12 if groups is None else 6)
    monkeypatch.setattr(Features, "keep_changed", lambda self, changes: self)
    dense = NET(model, 0.4, **netting_options).explain(x, start, **options)
    for name in ("positive", "negative", "combined", "bias", "conflict_pairs"):
        torch.testing.assert_close(getattr(sparse, name), getattr(dense, name))


def test_features_at_their_reference_in_several_inputs_layers_and_images(monkeypatch):
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.head = nn.Conv2d(1, 3, 3), nn.Linear(3 * 16 + 5, 2)

        def forward(self, picture, row):
            return self.head(torch.cat([self.conv(picture).relu().flatten(1), row], 1))

    model, picture, row = Two(), torch.randn(3, 1, 6, 6), torch.randn(3, 5)
    picture[:, :, 2:] = 0
    row[1] = 0
    counts = carried(monkeypatch)
    sparse = NET(model).explain((picture, row), target=0)
    assert counts == [12 + 5]
    layered = NET(model).explain((picture, row), target=0, layer="conv")
    monkeypatch.setattr(Features, "keep_changed", lambda self, changes: self)
    dense = NET(model).explain((picture, row), target=0)
    for one, two in zip(sparse.positive, dense.positive, strict=True):
        torch.testing.assert_close(one, two)
    torch.testing.assert_close(layered.positive, NET(model).explain((picture, row), target=0, layer="conv").positive)


@pytest.mark.parametrize("biases", ["scores", "reference"])
@pytest.mark.parametrize("how", ["sum", "mean", "einsum", "matmul"])
def test_sums_over_the_first_dimension_behind_a_function_that_is_not_0_at_0(how, biases):
    """There the reference is one row for all; the first dimension is time."""
    weights = torch.randn(2, 5)
    head = nn.Linear(4, 2)

    def model(x):
        y = torch.sigmoid(x.transpose(0, 1))
        ways = {
            "sum": lambda: y.sum(0),
            "mean": lambda: y.mean(0),
            "einsum": lambda: torch.einsum("kt,tbd->kbd", weights, y)[0],
            "matmul": lambda: torch.matmul(weights, y.reshape(5, -1))[0].reshape(-1, 4),
        }
        return head(ways[how]())

    x = torch.randn(3, 5, 4)
    one, two = (
        CAFE(model, 0.5, "published", netting=netting, biases=biases).explain(x, target=0) for netting in ("path", "feature")
    )
    torch.testing.assert_close(one.baseline_output, two.baseline_output)
    torch.testing.assert_close(one.combined, two.combined)  # one function of each feature: nothing meets


def test_nothing_differs_from_the_reference():
    model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    e = NET(model).explain(torch.zeros(2, 3), target=0)
    assert (e.positive == 0).all()
    torch.testing.assert_close(e.bias, e.output)


def test_rows_that_depend_on_each_other_are_refused():
    """Features are numbered anew in each row: values of several rows must not meet."""

    class Mixed(nn.Module):
        def forward(self, x):
            return (x + x.flip(0)).relu()

    x = torch.eye(4)
    with pytest.raises(ValueError, match="row"):
        NET(Mixed()).explain(x, target=0)


def test_rows_of_one_number_and_a_number_that_is_spread():
    x = torch.randn(3)
    torch.testing.assert_close(NET(lambda v: v * 2 + 1).explain(x).combined, 2 * x)
    row = torch.randn(1, 4)
    e = NET(lambda v: torch.ones(1, 3) + v.sum()).explain(row, target=1)
    torch.testing.assert_close(e.combined, row)
    torch.testing.assert_close(e.bias, torch.ones(1))


def test_a_reference_that_is_one_row_for_all_keeps_the_shape_of_the_value():
    x = torch.randn(4, 3)
    e = NET(lambda v: v.sigmoid().sum(1)).explain(x)
    torch.testing.assert_close(e.combined, x.sigmoid() - 0.5)
    torch.testing.assert_close(e.baseline_output, torch.full((4,), 1.5))


def test_edges_of_sums():
    """The edges of a sum are those of its terms; one that is added to further, a residual stream, is one edge there."""
    x = torch.ones(1, 1)

    def found(f):
        e = NET(f).explain(x)
        return e.positive.item(), e.negative.item()

    assert found(lambda v: 3 * v - 2 * v) == (3, 2)
    assert found(lambda v: (3 * v - 2 * v) * 2) == (6, 4)
    assert found(lambda v: (3 * v - 2 * v) + v) == (2, 0)
    assert found(lambda v: v - (2 * v - 3 * v)) == (2, 0)
    assert found(lambda v: (3 * v - 2 * v) - (v - 3 * v)) == (3, 0)

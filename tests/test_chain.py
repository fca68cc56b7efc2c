"""Chains of torch's own layers taken as a whole give what following their calls gives; anything else is followed."""

from __future__ import annotations

import functools
import itertools

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.nn.utils import parametrizations, prune
from torch.overrides import TorchFunctionMode

import models
import naive
from cafexai import CAFE, activation, chain, forward, registry

FIELDS = ("positive", "negative", "combined", "output", "baseline_output", "completeness_error", "bias", "target", "baselines")
ACTIVATIONS = [
    nn.ReLU,
    lambda: nn.ReLU(inplace=True),
    nn.GELU,
    lambda: nn.GELU(approximate="tanh"),
    nn.SiLU,
    nn.Tanh,
    lambda: nn.ELU(0.7),
    lambda: nn.LeakyReLU(0.2),
    nn.Identity,
    lambda: nn.Dropout(0.3),
]


@pytest.fixture
def taken(monkeypatch):
    """The batches that were taken as chains."""
    found = []

    def along(*arguments):
        found.append(arguments)
        return chain.along(*arguments)

    monkeypatch.setattr(forward, "along", along)
    return found


def followed(run):
    """What the same call gives if no model counts as a chain."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(forward, "stages_of", lambda *_: None)
        return run()


def same(run):
    one, two = run(), followed(run)
    for name in FIELDS:
        torch.testing.assert_close(getattr(one, name), getattr(two, name), rtol=1e-13, atol=1e-13, msg=name)
    assert list(one.bias_by_layer) == list(two.bias_by_layer)
    for layer, scores in one.bias_by_layer.items():
        torch.testing.assert_close(scores, two.bias_by_layer[layer], rtol=1e-13, atol=1e-13)
    assert (one.notes, one.frozen, one.settings) == (two.notes, two.frozen, two.settings)
    assert one.positive.dtype == two.positive.dtype
    return one


@st.composite
def chains(draw):
    widths = draw(st.lists(st.integers(1, 6), min_size=2, max_size=5))
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(widths):
        layers.append(nn.Linear(a, b, bias=draw(st.booleans())))
        layers += [draw(st.sampled_from(ACTIVATIONS))() for _ in range(draw(st.integers(0, 2)))]
    if draw(st.booleans()):
        layers.insert(0, draw(st.sampled_from(ACTIVATIONS))())
    cut = draw(st.integers(0, len(layers)))
    return nn.Sequential(*layers[:cut], nn.Sequential(*layers[cut:])).eval(), widths[0]


@given(
    chains(),
    st.integers(1, 4),
    st.sampled_from([0.0, 0.3, 1.0]),
    st.sampled_from(["zero", "number", "row", "rows", "stack"]),
    st.booleans(),
    st.integers(0, 2**20),
)
def test_a_chain_is_what_following_its_calls_gives(found, rows, c, baseline, single, seed):
    model, width = found
    torch.manual_seed(seed)
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter)
    x = torch.randn(rows, width)
    x[torch.rand_like(x) < 0.2] = 0
    baselines = {
        "zero": None,
        "number": 0.4,
        "row": torch.randn(width),
        "rows": torch.randn(rows, width),
        "stack": torch.randn(3, 1, width),
    }[baseline]
    if single:
        same(lambda: CAFE(model, c).explain(x, baselines, 0))
    else:
        same(lambda: CAFE(model, c).explain(x, baselines))
    torch.testing.assert_close(
        CAFE(model, c).attribute(x, baselines, 0), followed(lambda: CAFE(model, c).attribute(x, baselines, 0))
    )


def test_a_chain_is_what_the_paper_says(taken):
    model, x = models.mlp(4, 6, 5, 3, activation=nn.Tanh), torch.randn(3, 4)
    reference = torch.randn(1, 4)
    e = CAFE(model, 0.3).explain(x, reference, target=1)
    assert len(taken) == 1
    for row in range(3):
        value = naive.Pair(reference[0], naive.clip(x[row] - reference[0]), naive.clip(reference[0] - x[row]))
        scores, maps = torch.cat([value.positive, value.negative]), torch.eye(8)
        for layer in model:
            made = naive.linear if isinstance(layer, nn.Linear) else functools.partial(naive.elementwise, c=0.3)
            twin = made(layer, [value])
            maps = torch.cat([torch.cat([*twin.pp, *twin.pn], 1), torch.cat([*twin.np, *twin.nn], 1)]) @ maps
            value = twin.pair([value])
        positive, negative = (maps * scores)[[1, 4]].view(2, 2, 4).sum(1)
        torch.testing.assert_close(e.positive[row], positive)
        torch.testing.assert_close(e.negative[row], negative)
        torch.testing.assert_close(e.output[row], value.value[1])


@pytest.mark.parametrize("target", [None, 1, [0, 2, 1], torch.tensor([2, 2, 0]), "all"])
def test_all_forms_of_targets(target, taken):
    model, x = models.mlp(4, 6, 3), torch.randn(3, 4)
    one, two = CAFE(model).explain(x, target=target), followed(lambda: CAFE(model).explain(x, target=target))
    assert taken
    for a, b in zip(one.values(), two.values(), strict=True) if target == "all" else [(one, two)]:
        torch.testing.assert_close(a.positive, b.positive)
        torch.testing.assert_close(a.bias, b.bias)
        assert torch.equal(a.target, b.target)


def test_several_c_and_c_by_module(taken):
    model, x = models.mlp(4, 6, 5, 3), torch.randn(2, 4)
    together = CAFE(model).explain(x, target=0, c=[0, 0.5, 1])
    assert len(taken) == 3
    for c, e in together.items():
        torch.testing.assert_close(e.positive, followed(lambda c=c: CAFE(model, c).explain(x, target=0)).positive)
    same(lambda: CAFE(model, {"1": 0.0, "3": 1.0}).explain(x, target=0))


def test_a_layer_used_twice():
    shared, x = nn.Linear(4, 4), torch.randn(2, 4)
    model = nn.Sequential(shared, nn.ReLU(), shared, nn.Linear(4, 2))
    same(lambda: CAFE(model).explain(x, target=0))


@pytest.mark.parametrize("activation", [nn.ReLU, nn.GELU])
def test_many_rows_in_chunks(activation, taken):
    model = models.mlp(20, 300, 300, 4, activation=activation).float()
    x = torch.randn(8000, 20).float()
    e = CAFE(model).explain(x, target=2)
    assert len(taken) > 1
    found = followed(lambda: CAFE(model).explain(x, target=2))
    for name in ("positive", "negative", "combined", "bias"):
        one, two = getattr(e, name), getattr(found, name)
        assert (one - two).abs().max() <= 1e-5 * two.abs().max(), name


def test_single_precision(taken):
    model, x = models.mlp(4, 8, 3).float(), torch.randn(2, 4).float()
    e = CAFE(model).explain(x, target=0)
    assert taken
    assert e.positive.dtype == torch.float32
    torch.testing.assert_close(e.positive, followed(lambda: CAFE(model).explain(x, target=0)).positive)


def test_nothing_is_shared_with_the_caller_and_the_model_stays_as_it_is():
    model, x = models.mlp(3, 5, 2), torch.randn(2, 3)
    baselines = torch.randn(1, 3)
    model[0].weight.grad = torch.ones_like(model[0].weight)
    before = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    e, scores = CAFE(model).explain(x, baselines, target=0), CAFE(model).attribute(x, target=0)
    kept = [e.inputs.clone(), e.baselines.clone(), e.output.clone(), e.positive.clone(), scores.clone()]
    with torch.no_grad():
        x.zero_()
        baselines.zero_()
        assert all(torch.equal(before[name], tensor) for name, tensor in model.state_dict().items())
        model[0].weight.zero_()
    assert all(torch.equal(a, b) for a, b in zip(kept, [e.inputs, e.baselines, e.output, e.positive, scores], strict=True))
    assert not scores.requires_grad
    assert torch.equal(model[0].weight.grad, torch.ones_like(model[0].weight))


class Doubled(nn.Linear):
    def forward(self, x):
        return 2 * super().forward(x)


class Passing(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def _own_forward(model):
    model[0].forward = lambda x: 2 * F.linear(x, model[0].weight)


def _replaced(model):
    model[0] = nn.Linear(4, 6)


CHANGED = {
    "hook": lambda model: model[1].register_forward_hook(lambda module, inputs, output: 3 * output),
    "hook before": lambda model: model[2].register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,)),
    "forward of its own": _own_forward,
    "subclass": lambda model: model.insert(0, Doubled(4, 4)),
    "parametrised": lambda model: parametrizations.weight_norm(model[0]),
    "pruned": lambda model: prune.l1_unstructured(model[0], "weight", 0.5),
    "no rule for chains": lambda model: model.append(nn.Softplus()),
    "output dropped": lambda model: model.append(nn.Sigmoid()),
    "layer put in later": _replaced,
    "no layer": lambda model: [model.pop(0) for _ in range(3)],
}


@pytest.mark.parametrize("change", CHANGED)
def test_models_that_are_more_than_their_layers_are_followed(change, taken):
    model, x = models.mlp(4, 6, 3), torch.randn(2, 4)
    cafe = CAFE(model)
    if change == "layer put in later":
        CHANGED[change](model)
    else:
        CHANGED[change](model)
        cafe = CAFE(model)
    e = cafe.explain(x, target=0)
    assert not taken
    if change != "output dropped":
        torch.testing.assert_close(e.output, model(x)[:, 0].detach())
    assert e.completeness_error.abs().max() < 1e-12


@pytest.mark.parametrize(
    "options",
    [
        {"layer": "1"},
        {"layer": "1", "start": False},
        {"target_layer": "0"},
        {"output": lambda raw: 2 * raw},
        {"check": "each"},
    ],
    ids=lambda options: "-".join(options),
)
def test_calls_that_ask_for_more_are_followed(options, taken):
    CAFE(models.mlp(4, 6, 3)).explain(torch.randn(2, 4), target=0, **options)
    assert not taken


@pytest.mark.parametrize("options", [{"netting": "feature"}, {"biases": "reference"}], ids=str)
def test_other_explainers_follow_the_calls(options, taken):
    CAFE(models.mlp(4, 6, 3), **options).explain(torch.randn(2, 4), target=0)
    assert not taken


def test_a_function_is_followed(taken):
    model = models.mlp(4, 6, 3)
    CAFE(lambda x: model(x)).explain(torch.randn(2, 4), target=0)
    assert not taken


def test_inputs_of_more_dimensions_or_many_numbers_are_followed(taken, monkeypatch):
    monkeypatch.setattr(activation, "LARGE", 299)
    model = models.mlp(4, 6, 3)
    CAFE(model).explain(torch.randn(2, 5, 4), target=(0, 0))
    CAFE(model).explain(torch.randn(50, 4), target=0, batch_size=50)
    assert not taken


def test_other_precisions_are_followed(taken):
    CAFE(models.mlp(4, 6, 3).to(torch.bfloat16)).explain(torch.randn(2, 4).to(torch.bfloat16), target=0)
    with torch.autocast("cpu"):
        CAFE(models.mlp(4, 6, 3).float()).explain(torch.randn(2, 4).float(), target=0)
    assert not taken


def test_watched_calls_are_followed(taken):
    model, x = models.mlp(4, 6, 3), torch.randn(2, 4)
    with Passing():
        CAFE(model).explain(x, target=0)
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: None)
    CAFE(model).explain(x, target=0)
    handle.remove()
    assert not taken


@pytest.mark.parametrize("name", ["relu", "linear"])
def test_a_rule_of_the_user_counts(name, taken, monkeypatch):
    model, x = models.mlp(4, 6, 3), torch.randn(2, 4)
    function = {"relu": torch.relu, "linear": F.linear}[name]
    called = []

    def own(*arguments, **options):
        called.append(name)
        return shipped.apply(*arguments, **options)

    shipped = registry.find(function)
    table = dict(registry._table)
    try:
        registry.rule(name)(own)
        CAFE(model).explain(x, target=0)
    finally:
        registry._table.clear()
        registry._table.update(table)
    assert called
    assert not taken


def test_a_layer_that_torch_itself_computes_otherwise_is_followed(taken, monkeypatch):
    """What cannot be seen on the layers is seen on the output."""
    model, x = models.mlp(4, 6, 3), torch.randn(2, 4)
    monkeypatch.setattr(nn.Linear, "forward", lambda self, x: 2 * F.linear(x, self.weight, self.bias))
    e = CAFE(model).explain(x, target=0)
    assert taken
    torch.testing.assert_close(e.output, model(x)[:, 0].detach())
    assert e.completeness_error.abs().max() < 1e-12


def test_numbers_beyond_single_precision_are_carried_in_double():
    model, x = models.mlp(3, 4, 4, 2).float(), torch.full((1, 3), 1e3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(1e9)
        model[4].weight.mul_(1e9)
        model[4].weight[0] = 0
    with pytest.warns(UserWarning, match="float64"):
        e = CAFE(model, 1.0).explain(x.float(), target=1)
    assert e.completeness_error.isfinite().all()

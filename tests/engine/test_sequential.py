"""Chains of torch's own layers taken as a whole give what following their calls gives; anything else is followed."""

from __future__ import annotations

import functools
import gc
import itertools
import re
import weakref

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
from cafexai import CAFE
from cafexai._core import steps
from cafexai._engine import forward
from cafexai._engine import sequential as chain
from cafexai.rules import registry

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
        patch.setattr(forward, "steps_of", lambda *_: None)
        return run()


def same(run):
    one, two = run(), followed(run)
    for name in FIELDS:
        torch.testing.assert_close(getattr(one, name), getattr(two, name), rtol=1e-13, atol=1e-13, msg=name)
    assert list(one.bias_by_layer) == list(two.bias_by_layer)
    for layer, scores in one.bias_by_layer.items():
        torch.testing.assert_close(scores, two.bias_by_layer[layer], rtol=1e-13, atol=1e-13)
    notes = [[re.sub(r"measured: \d+ more", "measured: some more", note) for note in e.notes] for e in (one, two)]
    assert (notes[0], one.frozen, one.meta.settings) == (notes[1], two.frozen, two.settings)  # a chain takes fewer evaluations
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
    e = CAFE.published(model, 0.3).explain(x, reference, target=1)
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


@pytest.mark.parametrize("flows", ["peak", "mean"])
def test_activations_in_a_row_by_unit(flows, taken):
    """Each takes the net value of the one before it."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Tanh(), nn.ReLU(), nn.Linear(6, 5), nn.GELU(), nn.SiLU(), nn.Linear(5, 2))
    for biases in ("scores", "reference"):
        same(
            lambda b=biases: CAFE(model, variant="published", netting="unit", flows=flows, biases=b).explain(
                torch.ones(1, 4), target=0
            )
        )
    assert taken


def test_weights_that_are_larger_than_what_is_kept():
    model, x = models.mlp(300, 300, 3), torch.randn(2, 300)
    assert model[0].weight.numel() > steps.SMALL
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


def _broadcast_bias(model):
    model[0].bias = nn.Parameter(torch.zeros(1))


def _further_parameter(model):
    model[0].scale = nn.Parameter(torch.ones(1))


def _weight_as_buffer(model):
    weight = model[0].weight.detach()
    del model[0].weight
    model[0].register_buffer("weight", weight)


def _subclass_as_weight(model):
    class Mine(torch.Tensor):
        pass

    model[0].weight = nn.Parameter(model[0].weight.detach().as_subclass(Mine))


CHANGED = {
    "hook": lambda model: model[1].register_forward_hook(lambda module, inputs, output: 3 * output),
    "hook before": lambda model: model[2].register_forward_pre_hook(lambda module, inputs: (inputs[0] + 1,)),
    "forward of its own": _own_forward,
    "subclass": lambda model: model.insert(0, Doubled(4, 4)),
    "parametrised": lambda model: parametrizations.weight_norm(model[0]),
    "pruned": lambda model: prune.l1_unstructured(model[0], "weight", 0.5),
    "bias that broadcasts": _broadcast_bias,
    "further parameter": _further_parameter,
    "weight as buffer": _weight_as_buffer,
    "subclass as weight": _subclass_as_weight,
    "no rule for chains": lambda model: model.append(nn.Softplus()),
    "output dropped": lambda model: model.append(nn.Sigmoid()),
    "no layer": lambda model: [model.pop(0) for _ in range(3)],
}


@pytest.mark.parametrize("change", CHANGED)
def test_models_that_are_more_than_their_layers_are_followed(change, taken):
    model, x = models.mlp(4, 6, 3), torch.randn(2, 4)
    CHANGED[change](model)
    e = CAFE(model).explain(x, target=0)
    assert not taken
    assert type(e.positive) is torch.Tensor
    if change != "output dropped":
        torch.testing.assert_close(e.output, model(x)[:, 0].detach().as_subclass(torch.Tensor))
    assert e.completeness_error.abs().max() < 1e-12


def test_a_layer_that_was_put_in_later_counts(taken):
    model, x = models.mlp(4, 6, 3), torch.randn(2, 4)
    cafe = CAFE(model)
    model[0] = nn.Linear(4, 6)
    torch.testing.assert_close(same(lambda: cafe.explain(x, target=0)).output, model(x)[:, 0].detach())
    assert len(taken) == 1


def test_further_arguments_are_followed(taken):
    class Scaled(nn.Sequential):
        def forward(self, x, factor=1.0):
            return factor * super().forward(x)

    model, x = Scaled(nn.Linear(4, 3)), torch.randn(2, 4)
    for extra in (2.0, {"factor": 2.0}):
        e = CAFE(model).explain(x, target=0, additional_forward_args=extra)
        torch.testing.assert_close(e.output, 2 * model(x)[:, 0].detach())
    assert not taken


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


@pytest.mark.parametrize("options", [{"variant": "feature"}], ids=str)
def test_other_explainers_follow_the_calls(options, taken):
    CAFE(models.mlp(4, 6, 3), **options).explain(torch.randn(2, 4), target=0)
    assert not taken


def test_a_function_is_followed(taken):
    model = models.mlp(4, 6, 3)
    CAFE(lambda x: model(x)).explain(torch.randn(2, 4), target=0)
    assert not taken


def test_inputs_of_more_dimensions_or_many_numbers_are_followed(taken, monkeypatch):
    monkeypatch.setattr(chain, "LARGE", 299)
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
    everywhere = nn.modules.module
    for handle in (
        everywhere.register_module_forward_hook(lambda module, inputs, output: None),
        everywhere.register_module_forward_pre_hook(lambda module, inputs: None),
    ):
        CAFE(model).explain(x, target=0)
        handle.remove()
    assert not taken


@pytest.mark.parametrize(
    "target", ["relu", "linear", F.relu, F.linear, F.dropout], ids=lambda part: getattr(part, "__name__", part)
)
@pytest.mark.usefixtures("shipped_rules")
def test_a_rule_of_the_user_counts(target, taken):
    model, x = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.2), nn.ReLU(), nn.Linear(6, 3)).eval(), torch.randn(2, 4)
    called = []
    shipped = registry.find(target if callable(target) else getattr(F, target))

    @functools.wraps(shipped.apply)
    def own(*arguments, **options):
        called.append(target)
        return shipped.apply(*arguments, **options)

    registry.rule(target)(own)
    CAFE(model).explain(x, target=0)
    assert called
    assert not taken


@pytest.mark.parametrize("c", [0.5, [0, 0.5]], ids=str)
@pytest.mark.parametrize("kind", [nn.Linear, nn.ReLU, nn.Sequential])
def test_a_kind_of_layer_that_computes_otherwise_is_followed(kind, c, taken, monkeypatch):
    model, x = models.mlp(4, 6, 3), torch.randn(2, 4)
    shipped = kind.forward
    monkeypatch.setattr(kind, "forward", lambda self, x: 2 * shipped(self, x))
    found = CAFE(model).explain(x, target=0, c=c)
    assert not taken
    for e in [found] if c == 0.5 else found.values():
        torch.testing.assert_close(e.output, model(x)[:, 0].detach())


@pytest.mark.parametrize("failing", ["target", "precision"])
def test_a_pass_that_fails_leaves_nothing_behind(failing, monkeypatch):
    runs = []
    made = forward.Run

    def remembered(*arguments):
        run = made(*arguments)
        runs.append(weakref.ref(run))
        return run

    monkeypatch.setattr(forward, "Run", remembered)
    gc.disable()
    try:
        if failing == "target":
            with pytest.raises(ValueError, match="out of range"):
                CAFE(models.mlp(4, 6, 3)).explain(torch.randn(2, 4), target=5)
        else:
            _beyond_single_precision()
        assert runs
        assert all(run() is None for run in runs)
    finally:
        gc.enable()


def _beyond_single_precision():
    """Two features cancel each other before a unit; what they bring is too large for float32, what the model computes is 1."""
    model = nn.Sequential(nn.Linear(2, 1), nn.ReLU(), nn.Linear(1, 1)).float().eval()
    with torch.no_grad():
        for parameter, values in zip(model.parameters(), ([[1e25, -1e25]], [0.0], [[1e20]], [1.0]), strict=True):
            parameter.copy_(torch.tensor(values))
    e = CAFE(model, 1.0).explain(torch.ones(1, 2).float())
    assert any("float64" in note for note in e.notes)
    return e


def test_numbers_beyond_single_precision_are_carried_in_double(taken):
    e = _beyond_single_precision()
    assert len(taken) == 1  # the second pass is followed
    assert e.positive.dtype == torch.float64
    assert e.completeness_error.isfinite().all()


@pytest.mark.parametrize("netting", ["path", "unit", "feature"])
def test_a_model_that_was_built_in_inference_mode(netting):
    with torch.inference_mode():
        model = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    x = torch.randn(5, 3)
    e = CAFE(model, variant="published", netting=netting).explain(x, target=0)
    twin = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.Linear(4, 2))
    twin.load_state_dict({name: part.clone() for name, part in model.state_dict().items()})
    torch.testing.assert_close(e.combined, CAFE(twin, variant="published", netting=netting).explain(x, target=0).combined)

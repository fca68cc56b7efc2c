"""The same net written in different ways, and models as people write them."""

from __future__ import annotations

import warnings

import pytest
import torch
import torch.nn.functional as F
from torch import nn
from torch.nn.utils import parametrizations

import models
from cafexai import CAFE, UnsupportedOperation, elementwise_module
from cafexai.debug import check_operations


class Net(nn.Module):
    """Two hidden layers; the activation is applied by the given function of the module and the value."""

    def __init__(self, activate, weights):
        super().__init__()
        self.one, self.two, self.three = nn.Linear(5, 16), nn.Linear(16, 16), nn.Linear(16, 3)
        self.relu = nn.ReLU()
        self.inplace = nn.ReLU(inplace=True)
        self.activate = activate
        if weights is not None:
            self.load_state_dict(weights)
        self.eval()

    def forward(self, x):
        x = self.activate(self, self.one(x))
        x = self.activate(self, self.two(x))
        return self.three(x)


FORMS = {
    "F.relu": lambda m, v: F.relu(v),
    "F.relu inplace": lambda m, v: F.relu(v, inplace=True),
    "one module": lambda m, v: m.relu(v),
    "in-place module": lambda m, v: m.inplace(v),
    "torch.relu": lambda m, v: torch.relu(v),
    "torch.relu_": lambda m, v: torch.relu_(v),
    "method": lambda m, v: v.relu(),
    "made inside forward": lambda m, v: nn.ReLU()(v),
}


def equal(one, two):
    for name in ("positive", "negative", "combined", "bias_positive", "bias_negative", "output", "baseline_output"):
        assert torch.equal(getattr(one, name), getattr(two, name)), name


@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_forms_of_relu_give_bit_equal_scores(zero, dtype):
    weights = Net(None, None).state_dict()
    x = torch.randn(7, 5, dtype=dtype)
    baseline = None if zero else torch.randn(7, 5, dtype=dtype)
    separate = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, 16), nn.ReLU(), nn.Linear(16, 3)).eval()
    separate.load_state_dict(dict(zip(separate.state_dict(), weights.values(), strict=True)))
    first = CAFE(separate.to(dtype)).explain(x, baselines=baseline, target=1)
    for activate in FORMS.values():
        equal(first, CAFE(Net(activate, weights).to(dtype)).explain(x, baselines=baseline, target=1))


@pytest.mark.parametrize("c", [0.0, 0.5])
def test_stock_style_residual_net_in_float32(c):
    model = models.with_statistics(models.ResidualCNN(16, (1, 1, 1)).double(), 8, 3, 32, 32).float()
    x = torch.randn(4, 3, 32, 32, dtype=torch.float32)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        e = CAFE(model, c).explain(x)
    relative = e.completeness_error.abs() / e.output.abs()
    assert relative.max() <= 1e-5
    whole = e.baseline_output + e.bias + e.combined.double().sum((1, 2, 3))
    assert ((whole - e.output).abs() / e.output.abs()).max() <= 1e-5


def test_without_biases_the_bias_scores_are_zero():
    model = models.with_statistics(models.ResidualCNN(4), 4, 3, 16, 16)
    for module in model.modules():
        if isinstance(module, nn.BatchNorm2d):
            module.running_mean.zero_()
            nn.init.zeros_(module.bias)
    nn.init.zeros_(model.fc.bias)
    e = CAFE.published(model).explain(torch.randn(3, 3, 16, 16), baselines=torch.randn(1, 3, 16, 16))
    assert e.bias_by_layer
    assert (e.bias_positive == 0).all()
    assert (e.bias_negative == 0).all()


@pytest.mark.parametrize("context", [torch.no_grad, torch.inference_mode, lambda: torch.set_grad_enabled(False)])
def test_gradients_turned_off_inside_or_outside(context):
    model, x = models.mlp(4, 8, 8, 2), torch.randn(3, 4)

    def inside(v):
        with context():
            return model(v)

    expected = CAFE(model).explain(x, target=0)
    torch.testing.assert_close(CAFE(inside).explain(x, target=0).positive, expected.positive)
    torch.testing.assert_close(CAFE(inside).explain(x, target=0).bias_positive, expected.bias_positive)
    with context():
        equal(expected, CAFE(model).explain(x * 1, target=0))
        torch.testing.assert_close(CAFE(model).attribute(x, target=0), expected.combined)


def test_autocast_inside_does_not_lower_the_precision():
    model, x = models.mlp(4, 8, 2).float(), torch.randn(3, 4, dtype=torch.float32)

    def inside(v):
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(v)

    one, two = CAFE(model).explain(x, target=0), CAFE(inside).explain(x, target=0)
    torch.testing.assert_close(one.combined, two.combined)


def test_autocast_around_a_call_does_not_lower_the_precision(recwarn):
    model, x = models.mlp(4, 8, 2).float(), torch.randn(3, 4, dtype=torch.float32)
    one = CAFE(model).explain(x, target=0)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        two = CAFE(model).explain(x, target=0)
    torch.testing.assert_close(one.combined, two.combined)
    assert two.combined.dtype == torch.float32
    assert not [warning for warning in recwarn if "float64" in str(warning.message)]


def test_an_elementwise_module_may_compute_in_another_precision():
    class Wide(nn.Module):
        def forward(self, x):
            return torch.tanh(x.double())

    elementwise_module(Wide)
    first, wide, last = nn.Linear(4, 6).float(), Wide(), nn.Linear(6, 3).float()
    x = torch.randn(2, 4, dtype=torch.float32)
    found = CAFE(lambda v: last(wide(first(v)).float())).explain(x, target=0)
    plain = CAFE(lambda v: last(torch.tanh(first(v)))).explain(x, target=0)
    torch.testing.assert_close(found.positive, plain.positive)


@pytest.mark.filterwarnings("ignore:Sparse CSR")
def test_sparse_weights():
    x, weight = torch.randn(3, 4), torch.randn(6, 4).relu()
    sparse = weight.to_sparse_csr()
    found = CAFE(lambda v: F.linear(v, sparse)).explain(x, target=1)
    torch.testing.assert_close(found.positive, CAFE(lambda v: F.linear(v, weight)).explain(x, target=1).positive)


def scores(f, x, **options):
    return CAFE(f, 0.6).explain(x, check="each", **options)


def test_in_place_operations_and_views():
    x = torch.randn(3, 4)
    w = torch.randn(4, 4)

    def plain(v):
        h = v @ w
        left = F.relu(h[:, :2]) * 2
        whole = torch.cat([left, h[:, 2:]], 1)
        return (F.gelu(whole) + v).sum(1)

    def written(v):
        h = v @ w
        part = h[:, :2]
        part.relu_()
        part.mul_(2)
        h = F.gelu(h)
        h += v
        return h.sum(1)

    def viewed(v):
        h = v @ w
        rows = h.view(3, 2, 2)
        h[:, :2] = F.relu(h[:, :2]) * 2
        return (F.gelu(rows.flatten(1)) + v).sum(1)

    def flattened(v):
        h = (v @ w).view(3, 2, 2)
        flat = h.flatten(1)
        flat[:, :2] *= 2
        torch.relu_(h[:, 0])
        return (F.gelu(h.reshape(3, 4)) + v).sum(1)

    one = scores(plain, x)
    for f in (written, viewed, flattened):
        torch.testing.assert_close(f(x.clone()), plain(x))
        two = scores(f, x)
        torch.testing.assert_close(one.positive, two.positive)
        torch.testing.assert_close(one.negative, two.negative)


def test_writing_into_plain_tensors():
    x, layer = torch.randn(3, 4), nn.Linear(4, 2)

    def plain(v):
        return F.gelu(torch.cat([layer(v), torch.ones(3, 1), v[:, :1]], 1)).sum(1)

    def written(v):
        buffer = torch.zeros(3, 4)
        buffer[:, 2] = 1.0
        buffer[:, :2] = layer(v)
        buffer[:, 3] = v[:, 0]
        return F.gelu(buffer).sum(1)

    def added(v):
        total = torch.zeros(3, 4)
        total += torch.cat([layer(v), torch.ones(3, 1), v[:, :1]], 1)
        return F.gelu(total).sum(1)

    one = scores(plain, x)
    for f in (written, added):
        two = scores(f, x)
        torch.testing.assert_close(one.combined, two.combined)
        torch.testing.assert_close(one.bias, two.bias)


def test_writing_into_the_model_is_refused():
    class Remembers(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("memory", torch.zeros(2, 3))

        def forward(self, x):
            self.memory[:] = x
            return self.memory.sum(1)

    model = Remembers()
    with pytest.raises(ValueError, match="'memory'"):
        CAFE(model).explain(torch.randn(2, 3))
    assert type(model.memory) is torch.Tensor
    assert (model.memory == 0).all()


@pytest.mark.parametrize(
    "parametrise",
    [parametrizations.weight_norm, parametrizations.spectral_norm, parametrizations.orthogonal, torch.nn.utils.weight_norm],
)
@pytest.mark.filterwarnings("ignore:.*weight_norm.*:FutureWarning")
def test_parametrised_weights(parametrise):
    layer = parametrise(nn.Linear(4, 4)).eval()
    model, x = nn.Sequential(layer, nn.Tanh(), nn.Linear(4, 1)), torch.randn(3, 4)
    e = scores(model, x)
    plain = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), model[2])
    plain[0].weight.data, plain[0].bias.data = layer.weight.data.clone(), layer.bias.data.clone()
    torch.testing.assert_close(e.positive, scores(plain, x).positive)


class Sequence(nn.Module):
    """One net on (rows, time, features), the batch folded, moved or kept."""

    def __init__(self, layout):
        super().__init__()
        self.layout = layout
        self.one, self.two, self.out = nn.Linear(3, 4), nn.Linear(4, 4), nn.Linear(4, 2)
        self.token = nn.Parameter(torch.randn(1, 1, 3))

    def forward(self, x):
        rows, time = x.shape[:2]
        if self.layout == "rows first":
            x = torch.cat([self.token.expand(rows, 1, 3), x], 1)
            h = self.two(F.gelu(self.one(x))) + 0.5
            return self.out(F.relu(h).mean(1))
        if self.layout == "folded":
            x = torch.cat([self.token.expand(rows, 1, 3), x], 1)
            h = F.gelu(self.one(x.reshape(rows * (time + 1), 3)))
            h = (self.two(h) + 0.5).view(rows, time + 1, 4)
            return self.out(F.relu(h).mean(1))
        if self.layout == "channels":
            x = torch.cat([self.token.expand(rows, 1, 3), x], 1).transpose(1, 2)
            h = F.gelu(F.conv1d(x, self.one.weight[:, :, None], self.one.bias))
            h = F.conv1d(h, self.two.weight[:, :, None], self.two.bias) + 0.5
            return self.out(F.relu(h).mean(2))
        if self.layout == "buffer":
            buffer = torch.zeros(time + 1, rows, 4)
            buffer[0] = self.one(self.token[0].expand(rows, 3))
            for t in range(time):
                buffer[t + 1] = self.one(x[:, t])
            h = self.two(F.gelu(buffer)) + torch.full((time + 1, 1, 1), 0.5)
            return self.out(F.relu(h).mean(0))
        x = torch.cat([self.token.expand(1, rows, 3), x.transpose(0, 1)], 0)
        h = self.two(F.gelu(self.one(x))) + torch.full((time + 1, 1, 1), 0.5)
        return self.out(F.relu(h).mean(0))


@pytest.mark.parametrize("layout", ["folded", "channels", "time first", "buffer"])
@pytest.mark.parametrize("rows", [1, 3, 4])
def test_bias_scores_belong_to_their_row_in_any_layout(layout, rows):
    model = Sequence("rows first")
    other = Sequence(layout)
    other.load_state_dict(model.state_dict())
    x, baseline = torch.randn(rows, 3, 3), torch.randn(rows, 3, 3)
    one, two = scores(model, x, baselines=baseline, target=1), scores(other, x, baselines=baseline, target=1)
    torch.testing.assert_close(one.positive, two.positive)
    torch.testing.assert_close(one.bias, two.bias)
    if layout != "buffer":  # there the layer runs on the token alone: a constant, of which only the sum is known
        torch.testing.assert_close(one.bias_positive, two.bias_positive)


def test_rows_that_influence_each_other_are_refused():
    def centred(v):
        return F.relu(v - v.mean(0, keepdim=True) + 1).sum(1)

    with pytest.raises((ValueError, RuntimeError), match="row"):
        CAFE(centred).explain(torch.randn(3, 4))
    e = CAFE(centred).explain(torch.randn(1, 4))
    assert e.completeness_error.abs().max() < 1e-12


@pytest.mark.parametrize(
    ("widths", "activation"), [((54, 256, 256, 256, 256, 7), nn.GELU), ((54, 1024, 1024, 1024, 1024, 7), nn.ReLU)]
)
def test_float32_against_float64(widths, activation):
    model, x = models.mlp(*widths, activation=activation), torch.randn(50, 54)
    exact, default = CAFE.published(model).explain(x, target=0), CAFE(model).explain(x, target=0)
    model.float()
    single, short = CAFE.published(model).explain(x.float(), target=0), CAFE(model).explain(x.float(), target=0)
    for found, expected, limit in ((single, exact, 2e-6), (short, default, 1e-5)):
        for name in ("combined", "positive", "negative"):
            error = (getattr(found, name).double() - getattr(expected, name)).norm() / getattr(expected, name).norm()
            assert error <= limit, name


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_models_are_scored_in_float32(dtype):
    model, x = models.mlp(6, 32, 32, 3), torch.randn(5, 6)
    low = model.to(dtype)
    x = x.to(dtype)
    e = CAFE(low).explain(x, target=1)
    assert e.positive.dtype == torch.float32
    exact = CAFE(low.float()).explain(x.float(), target=1)
    torch.testing.assert_close(e.combined, exact.combined)
    assert e.checks.output_error < 0.1


def test_checkpointed_modules():
    from torch.utils.checkpoint import checkpoint

    model, x = models.mlp(4, 8, 8, 2), torch.randn(3, 4)
    expected = CAFE(model).explain(x, target=0)
    for reentrant in (False, True):
        result = CAFE(lambda v, r=reentrant: model[2:](checkpoint(model[:2], v, use_reentrant=r))).explain(x, target=0)
        torch.testing.assert_close(result.combined, expected.combined)


def test_wrapped_models_are_unwrapped():
    model, x = models.mlp(4, 8, 2), torch.randn(3, 4)
    expected = CAFE(model).explain(x, target=0)
    for wrapped in (nn.DataParallel(model), torch.compile(model, backend="eager")):
        equal(expected, CAFE(wrapped).explain(x, target=0))


def test_the_calls_of_a_script_cannot_be_seen():
    model = models.mlp(4, 8, 2)
    for scripted in (torch.jit.trace(model, torch.randn(1, 4)), nn.Sequential(torch.jit.script(model))):
        with pytest.raises(ValueError, match="TorchScript"):
            CAFE(scripted).explain(torch.randn(2, 4))


def test_other_threads_are_refused():
    import threading

    model = models.mlp(4, 8, 2)

    def elsewhere(v):
        box = []

        def work():
            try:
                box.append(model(v))
            except Exception as error:
                box.append(error)

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        if isinstance(box[0], Exception):
            raise box[0]
        return box[0]

    with pytest.raises(UnsupportedOperation, match="thread"):
        CAFE(elsewhere).explain(torch.randn(2, 4))


def test_a_model_that_writes_into_its_input():
    x = torch.randn(3, 4)
    before = x.clone()

    def writes(v):
        v.relu_()
        v[:, 0] += 1
        return v.sum(1)

    e = check_operations(CAFE.published(writes), x)
    assert torch.equal(x, before)
    torch.testing.assert_close(e.output, before.relu().sum(1) + 1)
    torch.testing.assert_close(e.bias, torch.ones(3))


def test_many_rows_keep_their_own_bias():
    """More rows than a small mantissa could count, in a folded layout and in float32."""
    layer = nn.Linear(2, 2).float()

    def folded(v):
        return F.relu(layer(v.reshape(-1, 2)) * 1.5).view(len(v), -1).sum(1)

    x = torch.randn(5000, 2, 2, dtype=torch.float32)
    e = CAFE(folded).explain(x)
    one = CAFE(folded).explain(x[4321:4322])
    torch.testing.assert_close(e[4321].bias, one.bias)


@pytest.mark.parametrize("netting", ["path", "feature", "unit"])
def test_exported_programs_with_a_dynamic_batch(netting):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.table, self.layer = nn.Embedding(20, 8), nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
            self.head = nn.Linear(32, 3)

        def forward(self, ids, x):
            h = self.layer(self.table(ids) + x)
            return self.head(torch.relu(h.reshape(x.shape[0], -1) + torch.ones(ids.size(0), 32) * 0.1))

    torch.manual_seed(0)
    net, inputs = Net().eval(), (torch.randint(0, 20, (3, 4)), torch.randn(3, 4, 8))
    rows = torch.export.Dim("rows", min=2, max=64)
    program = torch.export.export(net, inputs, dynamic_shapes=({0: rows}, {0: rows})).module()
    expected = CAFE(net, variant="published", netting=netting).explain(inputs, target=1)
    for count in (3, 2):
        found = CAFE(program, variant="published", netting=netting).explain(tuple(part[:count] for part in inputs), target=1)
        for one, other in zip(found.positive, expected.positive, strict=True):
            torch.testing.assert_close(one, other[:count])
        assert not any("sym" in entry for entry in map(str, found.frozen))

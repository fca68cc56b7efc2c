"""References behind large layers that come from the plain run: the same scores, and no check is lost."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cafexai._core.layer_values as layer_values
import cafexai._engine.plain_layers as plain_layers
from cafexai import CAFE
from cafexai._carriers.unit import UnitScores
from cafexai._core.layer_values import LayerValues
from cafexai.errors import CompletenessError


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.shared, self.last = nn.Linear(4, 24), nn.Linear(24, 24), nn.Linear(24, 2)

    def forward(self, x):
        x = self.first(x)
        x = x + F.gelu(self.shared(x))
        x = x + F.relu(self.shared(x))  # the same weight twice
        return self.last(x)


class Written(nn.Module):
    """Products as addmm, and a result that is written into."""

    def __init__(self):
        super().__init__()
        self.weight, self.bias, self.last = nn.Parameter(torch.randn(4, 5)), nn.Parameter(torch.randn(5)), nn.Linear(5, 2)

    def forward(self, x):
        return self.last(torch.addmm(self.bias, x, self.weight).tanh_())


def pooled():
    return nn.Sequential(
        *(nn.Conv2d(2, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 4, 2, stride=(1, 2), dilation=(2, 1)), nn.SiLU(), nn.Conv2d(4, 4, 1, groups=2), nn.Tanh()),
        *(nn.Flatten(), nn.LazyLinear(2)),
    )


class Tokens(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value, self.out = (nn.Linear(3, 3) for _ in range(4))
        self.norm = nn.LayerNorm(3)

    def forward(self, x):
        x = self.norm(x)
        return self.out(F.relu(F.scaled_dot_product_attention(self.query(x), self.key(x), self.value(x)))).mean(1)


MODELS = {
    "residual": (Residual, (3, 4)),
    "written": (Written, (3, 4)),
    "pooled": (pooled, (2, 2, 6, 6)),
    "tokens": (Tokens, (2, 5, 3)),
}


def made(name, dtype=torch.float64):
    torch.manual_seed(1)
    build, shape = MODELS[name]
    x, baseline = torch.randn(shape, dtype=dtype), torch.randn(shape, dtype=dtype)  # as many references as rows
    model = build().to(dtype).eval()
    model(x)
    return model, x, baseline


@pytest.fixture
def reused(monkeypatch):
    """All layers count as large; whether each was reused is listed."""
    found, at_reference = [], LayerValues.at_reference

    def counted(self, *arguments):
        result = at_reference(self, *arguments)
        found.append(result is not None)
        return result

    monkeypatch.setattr(layer_values, "WORTH", 0)
    monkeypatch.setattr(plain_layers, "LARGE", 0)
    monkeypatch.setattr(LayerValues, "at_reference", counted)
    return found


def explained(model, x, baseline, variant="default"):
    e = CAFE(model, variant=variant).explain(x, baseline, target=1, conflict="net")
    return torch.cat([part.flatten() for part in (e.positive, e.negative, e.combined, e.output, e.baseline_output)])


@pytest.mark.parametrize("variant", ["default", "published"])
@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_products(name, variant, reused, monkeypatch):
    model, x, baseline = made(name)
    found = explained(model, x, baseline, variant)
    assert any(reused)
    reused.clear()
    monkeypatch.setattr(plain_layers, "LARGE", 2**62)
    torch.testing.assert_close(found, explained(model, x, baseline, variant), rtol=1e-10, atol=1e-10)
    assert not reused


def test_in_short_precision(reused, monkeypatch):
    model, x, baseline = made("residual", torch.float32)
    found = explained(model, x, baseline)
    assert any(reused)
    assert torch.allclose(found.double(), explained(model.double(), x.double(), baseline.double()), rtol=1e-4, atol=1e-5)


def test_a_result_that_the_model_wrote_into_is_not_used(reused):
    explained(*made("written"))
    assert reused == [False, True]


def test_layers_in_groups_are_multiplied(reused):
    explained(*made("pooled"))
    assert reused == [True, True, False, True]


def test_one_reference_for_all_rows_is_multiplied(reused):
    model, x, baseline = made("residual")
    explained(model, x, baseline[:1])
    assert not reused


@pytest.mark.parametrize("factor", [1.01, 1 + 1e-6])
def test_a_wrong_product_is_seen(factor, reused, monkeypatch):
    model, x, baseline = made("residual")
    ahead = UnitScores._ahead
    monkeypatch.setattr(UnitScores, "_ahead", lambda self, weight, bias: ahead(self, weight, bias) * factor)
    with pytest.raises(CompletenessError):
        explained(model, x, baseline)
    assert not any(reused)


def test_a_wrong_value_before_a_layer_is_seen(reused, monkeypatch):
    model, x, baseline = made("residual")
    add = UnitScores.add

    def wrong(self, other, alpha=1):
        result = add(self, other, alpha)
        result.delta = result.template = result.delta * (1 + 1e-6)
        return result

    monkeypatch.setattr(UnitScores, "add", wrong)
    with pytest.raises(CompletenessError):
        explained(model, x, baseline)


def test_what_has_nearly_cancelled_is_multiplied():
    weight = torch.randn(64, 32, dtype=torch.float64)
    x, values = torch.randn(2, 32, dtype=torch.float64), LayerValues()
    start = torch.stack([x[0] * 1e-15, x[1]])  # of the first row a - d holds rounding alone
    layer_values_worth, layer_values.WORTH = layer_values.WORTH, 0
    try:
        values.add(x, weight, F.linear(x, weight))
    finally:
        layer_values.WORTH = layer_values_worth
    assert values.at_reference(F.linear, -1, start, F.linear(x - start, weight), weight, None) is None


def test_a_model_that_answers_by_chance_is_still_refused(reused):
    class Chance(Residual):
        def forward(self, x):
            return self.last(self.first(x) * (1 + float(__import__("numpy").random.rand())))

    torch.manual_seed(0)
    x = torch.randn(2, 4, dtype=torch.float64)
    with pytest.raises(RuntimeError, match="not deterministic"):
        CAFE(Chance().double()).explain(x, torch.randn_like(x), target=0)


def test_random_numbers_and_writes_of_the_model(reused):
    class Counting(Residual):
        def __init__(self):
            super().__init__()
            self.register_buffer("calls", torch.zeros(()))

        def forward(self, x):
            self.calls += 1
            self.first.weight.data.mul_(1.5)
            return super().forward(x + 0.1 * torch.randn_like(x) * self.calls)

    torch.manual_seed(0)
    model, x = Counting().double(), torch.randn(2, 4, dtype=torch.float64)
    before, state = model.first.weight.clone(), torch.get_rng_state()
    e = CAFE(model).explain(x, torch.randn_like(x), target=0, conflict="net")
    torch.set_rng_state(state)
    assert torch.equal(model.first.weight, before)
    assert model.calls == 0
    assert e.output.isfinite().all()


@pytest.mark.parametrize("shape", [(640, 5), (640, 5, 2, 2)])
def test_inputs_that_no_compared_unit_reads_are_multiplied(shape, monkeypatch):
    monkeypatch.setattr(layer_values, "WORTH", 0)
    layer, units = (F.linear, -1) if len(shape) == 2 else (F.conv2d, -3)
    weight = torch.randn(shape, dtype=torch.float64)
    x, start = torch.randn(2, 2, 5, *(4,) * (len(shape) - 2), dtype=torch.float64)

    def reference():
        values = LayerValues()
        values.add(x, weight, layer(x, weight))
        return values.at_reference(layer, units, start, layer(x - start, weight), weight, None)

    torch.testing.assert_close(reference(), layer(start, weight))
    weight[:: min(layer_values.EVERY, len(weight) // layer_values.FEW), 3] = 0
    assert reference() is None


@pytest.mark.parametrize("kind", ["image of one colour", "the same tokens"])
def test_places_that_are_alike_at_the_reference_share_a_maximum(kind, reused, monkeypatch):
    torch.manual_seed(0)
    if kind == "image of one colour":
        x, baseline = torch.randn(1, 2, 8, 8), torch.full((1, 2, 8, 8), 0.3)
        model = nn.Sequential(nn.Conv2d(2, 6, 3, padding=1), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(96, 2))
    else:
        x, baseline = torch.randn(1, 5, 4), torch.randn(1, 1, 4).repeat(1, 5, 1)
        model = nn.Sequential(nn.Linear(4, 6), nn.AdaptiveMaxPool2d((1, 6)), nn.Flatten(), nn.Linear(6, 2))
    found = explained(model, x, baseline, "published")
    assert reused[:1] == [False]
    monkeypatch.setattr(plain_layers, "LARGE", 2**62)
    torch.testing.assert_close(found, explained(model, x, baseline, "published"))


def test_rows_with_one_baseline_each_and_flat_tokens():
    weight, x = torch.randn(6, 4), torch.randn(10, 4)
    start = torch.randn(1, 4).repeat(10, 1)
    for rows, alike in ((10, False), (2, True)):
        values = LayerValues(rows)
        assert values._repeats(F.linear(start, weight), -1) is alike
    assert not values._repeats(F.linear(x, weight), -1)


def test_weights_that_are_made_by_the_first_call_are_asked_for():
    model, x = nn.Sequential(nn.LazyLinear(3), nn.ReLU(), nn.LazyLinear(2)).eval(), torch.randn(2, 4)
    with pytest.raises(ValueError, match=r"module '0' \(LazyLinear\) has no weights .*: call model\(x\) once"):
        CAFE(model).explain(x, target=0)
    assert model[0].has_uninitialized_params()
    model(x)
    assert CAFE(model).explain(x, target=0).completeness_error.abs().max() < 1e-5

"""Changes behind layers that come from the plain run: the same scores, and no check is lost."""

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import cafexai._engine.plain_layers as plain_layers
from cafexai import CAFE
from cafexai._carriers import unit
from cafexai._core.layer_values import LayerValues


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.shared, self.last = nn.Linear(4, 6), nn.Linear(6, 6), nn.Linear(6, 2)

    def forward(self, x):
        x = self.first(x)
        x = x + F.gelu(self.shared(x))
        x = x + F.gelu(self.shared(x))  # the same weight twice
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
        *(nn.Conv2d(2, 4, 3, padding=1, groups=2), nn.BatchNorm2d(4), nn.ReLU(inplace=True), nn.MaxPool2d(2)),
        *(nn.Conv2d(4, 3, 2, stride=(1, 2), dilation=(2, 1)), nn.SiLU(), nn.Flatten(), nn.LazyLinear(2)),
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


def made(name):
    torch.manual_seed(1)
    build, shape = MODELS[name]
    x, baseline = torch.randn(shape), torch.randn(shape[1:])[None]
    model = build().double().eval()
    model(x)
    return model, x, baseline


@pytest.fixture
def reused(monkeypatch):
    """All layers count as large; what was reused is counted."""
    found, change = [], LayerValues.change

    def counted(self, *arguments):
        result = change(self, *arguments)
        found.append(result is not None)
        return result

    monkeypatch.setattr(plain_layers, "WORTH", 0)
    monkeypatch.setattr(LayerValues, "change", counted)
    return found


def explained(model, x, baseline, variant):
    e = CAFE(model, variant=variant).explain(x, baseline, target=1)
    return torch.cat([part.flatten() for part in (e.positive, e.negative, e.combined, e.output, e.conflict)])


@pytest.mark.parametrize("variant", ["default", "published"])
@pytest.mark.parametrize("zero", [True, False])
@pytest.mark.parametrize("name", MODELS)
def test_scores_are_those_of_products(name, zero, variant, reused, monkeypatch):
    model, x, baseline = made(name)
    baseline = torch.zeros_like(baseline) if zero else baseline
    found = explained(model, x, baseline, variant)
    assert any(reused)
    monkeypatch.setattr(plain_layers, "WORTH", 2**62)
    monkeypatch.setattr(plain_layers, "LARGE", 2**62)
    torch.testing.assert_close(found, explained(model, x, baseline, variant), rtol=1e-10, atol=1e-10)


def test_a_result_that_the_model_wrote_into_is_not_used(reused):
    model, x, baseline = made("written")
    explained(model, x, baseline, "default")
    assert reused == [False, True]


def test_a_change_far_below_the_reference_is_multiplied(reused):
    model, x, _ = made("residual")
    e = CAFE(model).explain(x, x + 1e-6, target=1)
    assert not any(reused)
    assert e.completeness_error.abs().max() < 1e-12


def test_a_missed_sum_is_tried_again_with_products(reused, monkeypatch):
    model, x, baseline = made("residual")
    right = explained(model, x, baseline, "default")
    monkeypatch.setattr(unit, "pull_linear", lambda gradient, shape, weight: gradient @ weight * 1.01)
    assert torch.allclose(explained(model, x, baseline, "default"), right, rtol=1e-10)


def test_a_model_that_answers_by_chance_is_still_refused(reused):
    class Chance(Residual):
        def forward(self, x):
            chance = float(__import__("numpy").random.rand())
            return self.last(self.first(x) * (1 + chance))

    torch.manual_seed(0)
    with pytest.raises(RuntimeError, match="not deterministic"):
        CAFE(Chance().double()).explain(torch.randn(2, 4), target=0)


def test_weights_that_forward_changes(reused):
    class Counting(Residual):
        def forward(self, x):
            self.first.weight.data.mul_(1.5)
            return super().forward(x)

    torch.manual_seed(0)
    model, x = Counting().double(), torch.randn(2, 4)
    before = model.first.weight.clone()
    e = CAFE(model).explain(x, target=0)
    assert torch.equal(model.first.weight, before)
    assert torch.allclose(e.output, model(x)[:, 0])

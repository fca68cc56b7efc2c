"""What a rule of a user may be registered for: it is used, or it is refused at once."""

import pytest
import torch
from torch import nn

import cafexai
from cafexai import CAFE, UnsupportedOperation
from cafexai.rules import registry

X = torch.randn(4, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))


@pytest.fixture(autouse=True)
def own_table(monkeypatch):
    monkeypatch.setattr(registry, "TABLE", dict(registry.TABLE))
    from cafexai._engine import tracer

    monkeypatch.setattr(tracer, "TABLE", registry.TABLE)


class Old(torch.autograd.Function):
    """A function that leaves torch inside, so that nothing but a rule explains it."""

    @staticmethod
    def forward(ctx, x, low):
        ctx.save_for_backward(x)
        return torch.from_numpy(x.detach().numpy().clip(low))

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x > 0), None


class New(torch.autograd.Function):
    @staticmethod
    def forward(x, low):
        return torch.from_numpy(x.detach().numpy().clip(low))

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.low = inputs[1]

    @staticmethod
    def backward(ctx, gradient):
        return gradient, None


def clipped(function):
    torch.manual_seed(0)
    first, last = nn.Linear(3, 5).double(), nn.Linear(5, 1).double()

    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.last = first, last

        def forward(self, x):
            return self.last(function(self.first(x)))

    return Model()


@pytest.mark.parametrize("kind", [Old, New])
def test_a_rule_for_the_apply_of_a_function_is_used(kind):
    own = type(kind.__name__, (kind,), {"forward": staticmethod(kind.forward)})
    held = own.apply  # before there is a rule, as models do: clip = Clip.apply
    seen = []

    @cafexai.rule(own.apply)
    def clip(x, low):
        seen.append(low)
        return x.elementwise(lambda v: v.clamp_min(low), True)

    model, twin = clipped(lambda v: held(v, 0.0)), clipped(torch.relu)
    e = CAFE(model).explain(X)
    assert seen
    torch.testing.assert_close(e.combined, CAFE(twin).explain(X).combined)
    gradient = torch.autograd.grad(model(X).sum(), model.first.weight)  # by its own backward, as before
    assert gradient[0].abs().sum() > 0


def test_without_a_rule_a_function_is_followed_inside():
    class Inside(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clamp_min(0)

        @staticmethod
        def backward(ctx, gradient):
            return gradient

    e = CAFE(clipped(Inside.apply)).explain(X)
    torch.testing.assert_close(e.combined, CAFE(clipped(torch.relu)).explain(X).combined)


def test_operators_of_a_library():
    @torch.library.custom_op("cafexai_test::clip", mutates_args=())
    def clip(x: torch.Tensor) -> torch.Tensor:
        return x.clamp_min(0)

    with pytest.raises(UnsupportedOperation, match=r"clip.*there is no rule for it"):  # it is not torch.clip
        CAFE(clipped(clip)).explain(X)
    cafexai.rule(clip)(lambda x: x.elementwise(torch.relu, True))
    e = CAFE(clipped(clip)).explain(X)
    torch.testing.assert_close(e.combined, CAFE(clipped(torch.relu)).explain(X).combined)


def test_what_would_never_be_used_is_refused():
    def helper(x):
        return x.clamp_min(0)

    for target, message in (
        (helper, "torch does not report calls of a Python function"),
        (Old, r"rule\(Old\).*Register Old\.apply"),
        (nn.ReLU, r"rule\(ReLU\)"),
    ):
        with pytest.raises(ValueError, match=message):
            cafexai.rule(target)(lambda x: x)
    assert helper not in registry.TABLE


def test_a_function_that_reports_its_calls_is_taken():
    def reports(x):
        if torch.overrides.has_torch_function((x,)):
            return torch.overrides.handle_torch_function(reports, (x,), x)
        return x.clamp_min(0)

    cafexai.rule(reports)(lambda x: x.elementwise(torch.relu, True))
    torch.testing.assert_close(CAFE(clipped(reports)).explain(X).combined, CAFE(clipped(torch.relu)).explain(X).combined)

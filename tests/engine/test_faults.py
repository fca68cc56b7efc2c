"""Our faults are told from those of the model, of the user's rules, and of code that takes plain tensors only."""

import pytest
import torch
from torch import nn

import cafexai
from cafexai import CAFE, UnsupportedOperation
from cafexai._core import foreign, value
from cafexai._engine import attempt, batches, faults, forward, sides
from cafexai.batch._bad_rows import explained_apart
from cafexai.errors import InternalError
from cafexai.onnx import _module as onnx_module
from cafexai.rules import registry

X = torch.randn(4, 3, dtype=torch.float64)


class Model(nn.Module):
    def __init__(self, phi=torch.sin):
        super().__init__()
        self.body, self.phi = nn.Linear(3, 2).double(), phi

    def forward(self, x):
        return self.phi(self.body(x))


def broken(kind):
    def fail(self, *args, **kwargs):
        if kind is AttributeError:
            return self.no_such_thing
        if kind is ValueError:
            return int("three")
        return torch.ones(2) @ torch.ones(3)

    source = fail.__code__.replace(co_filename=value.__file__)  # as if it stood in the engine
    return type(fail)(source, fail.__globals__, "fail", None, fail.__closure__)


def in_file(function, file, **names):
    """The function as if it stood in another file."""
    code = function.__code__.replace(co_filename=file)
    return type(function)(code, {**function.__globals__, **names}, function.__name__, None, function.__closure__)


@pytest.mark.parametrize("kind", [AttributeError, ValueError, RuntimeError])
def test_a_fault_of_the_engine_is_said_to_be_ours(monkeypatch, kind):
    monkeypatch.setattr(value.Scores, "elementwise", broken(kind))
    with pytest.raises(
        InternalError, match=rf"internal error of cafexai {cafexai.__version__}.*torch\.sin.*{kind.__name__}.*report"
    ):
        CAFE(Model()).explain(X, target=0)


def test_a_fault_of_ours_is_no_reason_to_refuse_rows(monkeypatch):
    monkeypatch.setattr(value.Scores, "elementwise", broken(AttributeError))
    cafe = CAFE(Model())
    with pytest.raises(InternalError):
        list(explained_apart(lambda rows: cafe.explain(rows, target=0), X, torch.arange(4).numpy(), {}))


def test_a_fault_of_ours_in_a_plain_pass_is_not_taken_for_one_of_the_model(monkeypatch):
    def fail(*_):
        raise RuntimeError("no_such_thing")

    monkeypatch.setattr(attempt, "plain_output", in_file(fail, forward.__file__))
    monkeypatch.setattr(batches, "WORTH", 1)
    with pytest.raises(InternalError, match=r"RuntimeError: no_such_thing \(cafexai/_engine/forward\.py"):
        CAFE.published(Model()).explain(X, target=0)


def einsum():
    return torch.einsum("ij,jk->ik", torch.ones(2, 3), torch.ones(4, 2))


def raised():
    raise RuntimeError("something")


def python_of_torch():
    return torch.nn.functional.interpolate(torch.ones(2), scale_factor=2)


def module_of_torch():
    return nn.Linear(2, 2)(torch.ones(3))


@pytest.mark.parametrize("fault", [einsum, raised, python_of_torch])
def test_a_fault_while_conflict_is_measured_is_ours_whatever_its_type(monkeypatch, fault):
    """Also where torch's own Python code has raised it: frames of torch belong to who called them."""
    own = in_file(fault, sides.__file__)
    monkeypatch.setattr(sides, "_sides", in_file(lambda *_: own(), sides.__file__))
    with pytest.raises(InternalError, match=r"internal error of cafexai .*cafexai/_engine/sides\.py.*report"):
        CAFE(Model(torch.relu)).explain(X, target=0)


class FailsAtBaseline(nn.Module):
    """It raises where a feature is 0, as at the points p and q at which conflict is measured."""

    def __init__(self, fault, softmax):
        super().__init__()
        self.body, self.fault, self.softmax = nn.Linear(3, 2).double(), fault, softmax
        with torch.no_grad():
            self.body.weight.copy_(torch.tensor([[1.0, -1.0, 1.0], [-1.0, 1.0, 0.5]]))

    def forward(self, x):
        y = self.body(x)
        if bool((x == 0).any()):
            self.fault()
        return y.softmax(1) if self.softmax else y


@pytest.mark.parametrize("softmax", [False, True])
@pytest.mark.parametrize("fault", [einsum, raised, python_of_torch, module_of_torch])
@pytest.mark.parametrize("home", [__file__, onnx_module.__file__])  # modules that we have made of others' models are models
def test_a_model_that_raises_where_conflict_is_measured_is_explained(fault, softmax, home):
    model = FailsAtBaseline(in_file(fault, home), softmax)
    model.forward = in_file(FailsAtBaseline.forward, home).__get__(model)
    e = CAFE(model).explain(X.abs() + 0.1, target=0)
    assert any("Conflict comes from net scores: it could not be measured (" in note for note in e.meta.notes)


def test_a_model_that_gives_something_else_where_conflict_is_measured_is_explained():
    for other in (lambda y: y[:, 0], lambda y: y[:, :0], lambda y: y[:1], lambda y: None, lambda y: y[0, 0]):
        body = nn.Linear(3, 2).double()
        torch.nn.init.constant_(body.weight, -1.0)
        body.weight.data[:, 1] = 1.0
        model = lambda x, body=body, other=other: other(body(x)) if bool((x == 0).any()) else body(x)  # noqa: E731
        e = CAFE(model).explain(X.abs() + 0.1, target=1)
        assert any("it could not be measured" in note for note in e.meta.notes)


def test_a_model_of_torch_alone_that_raises_is_not_ours():
    def call(model):
        return foreign.call_foreign(model, torch.ones(1, 4))

    with pytest.raises(RuntimeError, match="shapes") as caught:
        in_file(call, forward.__file__)(nn.Sequential(nn.Linear(3, 2)))
    error = caught.value.with_traceback(caught.value.__traceback__.tb_next)
    assert faults.refuse_own_fault(error, "explain") is None


def test_a_fault_of_a_rule_of_the_user_is_said_to_be_theirs(monkeypatch):
    monkeypatch.setattr(registry, "TABLE", dict(registry.TABLE))
    from cafexai._engine import faults, tracer

    for module in (tracer, faults):
        monkeypatch.setattr(module, "TABLE", registry.TABLE)

    @cafexai.rule(torch.special.bessel_j1)
    def bessel(x):
        return x.no_such_thing

    with pytest.raises(UnsupportedOperation, match=r"the rule that you have registered for .*bessel_j1 fails.*Mend it"):
        CAFE(Model(torch.special.bessel_j1)).explain(X, target=0)


def test_code_that_takes_plain_tensors_only_is_still_said_to_be_that():
    def pointer(v):
        if type(v) is not torch.Tensor:
            raise TypeError("only plain tensors")
        return v

    with pytest.raises(UnsupportedOperation, match="runs on plain tensors, but not on scored values"):
        CAFE(Model(pointer)).explain(X, target=0)


def test_an_error_of_the_model_itself_stays_what_it_is():
    def fail(v):
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        CAFE(Model(fail)).explain(X, target=0)

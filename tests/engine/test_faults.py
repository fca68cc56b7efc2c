"""Our faults are told from those of the model, of the user's rules, and of code that takes plain tensors only."""

import pytest
import torch
from torch import nn

import cafexai
from cafexai import CAFE, UnsupportedOperation
from cafexai._core import value
from cafexai._engine import batches
from cafexai.batch._bad_rows import explained_apart
from cafexai.errors import InternalError
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
        raise AttributeError("no_such_thing")

    source = fail.__code__.replace(co_filename=value.__file__)
    monkeypatch.setattr(batches, "plain_output", type(fail)(source, {"AttributeError": AttributeError}))
    monkeypatch.setattr(batches, "WORTH", 1)
    with pytest.raises((InternalError, AttributeError)):
        CAFE.published(Model()).explain(X, target=0)


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

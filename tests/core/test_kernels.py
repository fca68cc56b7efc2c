"""The compiled kernels give what the formulas give, are made only when they pay, and can be done without."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys

import pytest
import torch
import torch.nn.functional as F
from torch import nn

import models
from cafexai import CAFE
from cafexai._core import activation as formulas
from cafexai._core import kernels
from cafexai._core.math_functions import is_plain, pointwise
from rules import test_rules

compiler = pytest.mark.skipif(shutil.which("g++") is None and shutil.which("clang++") is None, reason="no compiler")
USED_MOST = ("relu", "gelu", "silu", "tanh", "sigmoid", "elu", "leaky_relu", "softplus", "hardswish", "mish")


@pytest.fixture
def _always(monkeypatch):
    """Kernels for everything, however small; a failure of the compiler is a failure of the test."""
    monkeypatch.setenv("CAFEXAI_COMPILE", "always")
    monkeypatch.setattr(kernels, "SMALL", 2)

    def failed(error):
        raise error

    monkeypatch.setattr(kernels, "_give_up", failed)


def elementwise(names):
    chosen, seen = [], set()
    for param in test_rules.ELEMENTWISE:
        case, function, _ = param.values
        if case.name in names and is_plain(function) and case.name not in seen:
            seen.add(case.name)
            chosen.append(param)
    return chosen


def check(case, function, rule):
    for c in (0.0, 0.5, 1.0):
        for edge in (None, "no positive", "no negative", "none", "equal", "zero reference"):

            def edit(pair, edge=edge):
                if edge in ("no positive", "none"):
                    pair.positive.zero_()
                if edge in ("no negative", "none"):
                    pair.negative.zero_()
                if edge == "equal":
                    pair.negative.copy_(pair.positive)
                if edge == "zero reference":
                    pair.reference.zero_()

            run, states, pairs, result, plain = test_rules.call(case, function, 3, c, edit)
            test_rules.compare(case, result.state, test_rules.naive.elementwise(plain, pairs, c), pairs, states, run)


@compiler
@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize(("case", "function", "rule"), elementwise(("gelu", "tanh")))
def test_rules_by_kernels(case, function, rule):
    check(case, function, rule)
    assert any(key[0] is formulas.apply_peak_flows for key in kernels._kernels)


@compiler
@pytest.mark.slow
@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("large", [False, True])
@pytest.mark.parametrize(("case", "function", "rule"), elementwise(USED_MOST))
def test_all_rules_by_kernels(case, function, rule, large, monkeypatch):
    if large:
        monkeypatch.setattr(formulas, "LARGE", 1)
    check(case, function, rule)


slowly = pytest.mark.slow  # each compiles for seconds


@compiler
@pytest.mark.parametrize(
    ("activation", "large"),
    [(nn.ReLU, False), (nn.GELU, True), pytest.param(nn.ReLU, True, marks=slowly), pytest.param(nn.GELU, False, marks=slowly)],
)
def test_compiled_and_eager_agree(activation, large, monkeypatch):
    torch.manual_seed(0)
    model = models.mlp(54, 64, 64, 64, 7, activation=activation).float()
    x = torch.randn(100, 54, dtype=torch.float32)
    if large:
        monkeypatch.setattr(formulas, "LARGE", 1)
    for baselines in (None, 0.5):
        found = {}
        for mode in ("never", "always"):
            monkeypatch.setenv("CAFEXAI_COMPILE", mode)
            found[mode] = CAFE.published(model).explain(x, baselines, 1)
        assert not kernels._broken
        for name in ("positive", "negative", "combined", "bias"):
            one, two = (getattr(found[mode], name) for mode in found)
            assert (one - two).abs().max() <= 1e-5 * one.abs().max(), name


@compiler
@pytest.mark.usefixtures("_always")
@pytest.mark.parametrize("activation", [pytest.param(nn.ReLU, marks=slowly), nn.GELU])
def test_by_unit_compiled_and_eager_agree(activation, monkeypatch):
    torch.manual_seed(0)
    model = models.mlp(20, 32, 32, 32, 7, activation=activation).float()
    x = torch.randn(100, 20, dtype=torch.float32)
    x[0] = 0  # where nothing changes, the slope is a derivative
    for flows, baselines in (("peak", 0.5), ("mean", None), ("mean", 0.5)):
        found = {}
        for mode in ("never", "always"):
            monkeypatch.setenv("CAFEXAI_COMPILE", mode)
            found[mode] = CAFE(model, variant="published", netting="unit", flows=flows).explain(x, baselines, 1)
        for name in ("positive", "negative", "combined", "bias"):
            one, two = (getattr(found[mode], name) for mode in found)
            assert (one - two).abs().max() <= 1e-5 * one.abs().max(), (name, flows)


def test_nothing_is_compiled_for_little_work(monkeypatch):
    monkeypatch.setenv("CAFEXAI_COMPILE", "auto")
    monkeypatch.setattr(kernels, "_work", {})
    delta = torch.zeros(2**12)
    assert not kernels.pays(delta, torch.tanh)
    assert not kernels.pays(torch.zeros(7), torch.tanh)
    kernels._work[torch.tanh, delta.dtype] = kernels.PAYS
    assert kernels.pays(delta, torch.tanh)
    monkeypatch.setenv("CAFEXAI_COMPILE", "never")
    assert not kernels.pays(delta, torch.tanh)


def test_a_missing_compiler_is_not_noticed(monkeypatch):
    model, x = models.mlp(5, 8, 3, activation=nn.SiLU), torch.randn(6, 5)
    expected = CAFE.published(model).explain(x, target=1)
    monkeypatch.setenv("CAFEXAI_COMPILE", "always")
    monkeypatch.setattr(kernels, "SMALL", 2)
    monkeypatch.setattr(kernels, "_kernels", {})
    monkeypatch.setattr(kernels, "_broken", None)
    monkeypatch.setattr(torch, "compile", lambda *args, **options: lambda *tensors: 1 / 0)
    found = CAFE.published(model).explain(x, target=1)
    assert kernels._broken
    assert torch.equal(found.positive, expected.positive)


def test_functions_with_equal_settings_are_one():
    assert pointwise(F.gelu, (), {}) is F.gelu
    assert pointwise(F.gelu, (), {"approximate": "tanh"}) is pointwise(F.gelu, (), {"approximate": "tanh"})
    assert pointwise(F.leaky_relu, (0.1,), {}) is not pointwise(F.leaky_relu, (0.2,), {})
    assert is_plain(pointwise(F.leaky_relu, (0.1,), {}))
    assert not is_plain(pointwise(F.hardtanh, (torch.zeros(2),), {}))
    assert not is_plain(lambda v: v)


def test_a_first_explanation_loads_no_compiler():
    """These modules take a third of a second and more."""
    code = """
import sys, torch, cafexai
compilers = ("sympy", "torch._dynamo.eval_frame", "torch._inductor.compile_fx")
for activation in ("ReLU", "GELU", "Tanh", "LeakyReLU", "Softplus"):
    phi = getattr(torch.nn, activation)()
    model = torch.nn.Sequential(torch.nn.Linear(7, 100), phi, torch.nn.Linear(100, 2)).eval()
    cafexai.CAFE.published(model).explain(torch.randn(100, 7))
    cafexai.CAFE.published(model).attribute(torch.randn(2000, 7))
    print(activation, [name for name in compilers if name in sys.modules])
"""
    environment = {**os.environ, "CAFEXAI_COMPILE": "auto"}
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, env=environment)
    assert result.stdout.splitlines() == [f"{name} []" for name in ("ReLU", "GELU", "Tanh", "LeakyReLU", "Softplus")], (
        result.stderr
    )

"""Models of the zoo say something of their input, or are not counted."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from torch import nn


@pytest.fixture(autouse=True)
def _zoo(monkeypatch):
    monkeypatch.syspath_prepend(str(Path(__file__).parents[2] / "zoo"))
    yield
    for name in ("liveliness", "specimen"):
        sys.modules.pop(name, None)


def moved(specimen, plain):
    import liveliness

    (x,) = specimen.inputs.values()
    with torch.no_grad():
        return (specimen.model(liveliness.elsewhere(x)) - plain).abs().max() / plain.abs().max()


def test_weights_of_a_model_that_lives_are_left_alone():
    import liveliness
    from specimen import Specimen

    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2))
    before = [parameter.clone() for parameter in model.parameters()]
    plain = liveliness.outputs(Specimen(model, {0: torch.randn(2, 4)}))
    assert all(map(torch.equal, before, model.parameters()))
    assert plain.shape == (2, 2)


@pytest.mark.parametrize("deaf", ["scales near 0", "weights near 0", "a head of 0"])
def test_a_model_that_does_not_hear_its_input_gets_weights_with_which_it_does(deaf):
    import liveliness
    from specimen import Specimen

    body = [layer for _ in range(6) for layer in (nn.Linear(6, 6), nn.BatchNorm1d(6), nn.SiLU())]
    model = nn.Sequential(*body, nn.Linear(6, 3)).eval()
    for name, parameter in model.named_parameters():
        if deaf == "weights near 0" and parameter.ndim == 2:
            parameter.data *= 1e-3
        if deaf == "scales near 0" and isinstance(model[int(name.split(".")[0])], nn.BatchNorm1d) and "weight" in name:
            parameter.data *= 1e-3
    if deaf == "a head of 0":
        nn.init.zeros_(model[-1].weight)
    specimen = Specimen(model, {0: torch.randn(2, 6)})
    plain = liveliness.outputs(specimen)
    assert moved(specimen, plain) >= liveliness.HARDLY
    assert not any(module.training for module in model.modules())
    assert {module.momentum for module in model.modules() if isinstance(module, nn.BatchNorm1d)} == {0.1}


@pytest.mark.parametrize("model", [lambda x: x * 0 + 1, lambda x: x / 0])
def test_what_cannot_be_brought_to_life_is_not_counted(model):
    import liveliness
    from specimen import Specimen

    class Wrapped(nn.Module):
        def forward(self, x):
            return model(x)

    with pytest.raises(liveliness.Lifeless):
        liveliness.outputs(Specimen(Wrapped(), {0: torch.randn(2, 4)}))

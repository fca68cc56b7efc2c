"""The hand-set networks: they compute what they are said to, and their truth sums to the change of the output."""

import itertools
import math

import pytest
import torch

from cafexai import CAFE
from cafexai.paper.studies.unit_networks import CLASSES, UNITS
from cafexai.paper.studies.units import MinusOthers


def made(name, rows=16):
    return UNITS[name](rows, torch.Generator().manual_seed(3))


def outputs(unit, x, target=0):
    out = unit.model(x)
    return out[:, 0] if isinstance(target, int) else out[torch.arange(len(x)), target]


@pytest.mark.parametrize("name", [name for name in UNITS if name != "uncertainty"])
def test_the_truth_sums_to_the_change(name):
    unit = made(name, 64)
    change = outputs(unit, unit.x) - outputs(unit, unit.baseline)
    torch.testing.assert_close(unit.truth.sum(1), change)
    assert unit.truth.abs().max() > 0


@pytest.mark.parametrize(("name", "truth"), [("Boolean AND", all), ("Boolean OR", any)])
def test_boolean_networks_and_their_shapley_values(name, truth):
    unit = made(name, 64)
    for row, out in zip(unit.x, unit.model(unit.x)[:, 0], strict=True):
        assert out.item() == float(truth(value > 0 for value in row.tolist()))
    count = unit.x.shape[1]
    for row, expected in zip(unit.x[:8], unit.truth, strict=False):
        shares = torch.zeros(count)
        for order in itertools.permutations(range(count)):
            now = unit.baseline[:1].clone()
            for place in order:
                before = unit.model(now).item()
                now[0, place] = row[place]
                shares[place] += (unit.model(now).item() - before) / math.factorial(count)
        torch.testing.assert_close(shares, expected.to(shares))


def test_additive_units_deserve_what_each_feature_does_alone():
    for name in ("weighted", "shattered gradients", "pertinent negatives"):
        unit = made(name, 5)
        for place in range(unit.x.shape[1]):
            alone = unit.baseline.clone()
            alone[:, place] = unit.x[:, place]
            torch.testing.assert_close(outputs(unit, alone) - outputs(unit, unit.baseline), unit.truth[:, place])
    slopes = [UNITS["shattered gradients"](200, torch.Generator().manual_seed(0))]
    x = slopes[0].x.clone().requires_grad_()
    (slope,) = torch.autograd.grad(slopes[0].model(x).sum(), x)
    assert (slope > 1).any(0).all()
    assert (slope < -1).any(0).all()


def test_partners_cancel_and_categories_choose():
    unit = made("conflicting", 50)
    half = unit.x.shape[1] // 2
    off = unit.x[:, half:] > 0
    assert torch.equal(unit.truth[:, half:][off], -unit.truth[:, :half][off])
    assert (unit.truth[:, half:][~off] == 0).all()
    assert (made("interacting").truth[:, 6:] == 0).all()


def test_uncertainty_is_a_contrast():
    unit = made("uncertainty")
    difference = MinusOthers(unit.model)
    torch.testing.assert_close(unit.truth.sum(1), outputs(unit._replace(model=difference), unit.x, unit.target))
    e = CAFE(unit.model).explain(unit.x, target=unit.target, against="others")
    torch.testing.assert_close(e.combined, unit.truth, atol=1e-12, rtol=1e-12)
    assert (unit.truth[:, CLASSES] == 0).all()

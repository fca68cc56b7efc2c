"""The arithmetic of ``benchmarks/beside_deeplift.py``: which limits it holds, and what it counts."""

import importlib
import sys
from pathlib import Path

import pytest
import torch

pytest.importorskip("captum")


@pytest.fixture(scope="module")
def beside():
    folder = str(Path(__file__).parents[2] / "benchmarks")
    sys.path.insert(0, folder)
    try:
        yield importlib.import_module("beside_deeplift")
    finally:
        sys.path.remove(folder)


def found(beside, *, products=1.0, memory=None, attribute=2.0):
    multiples = {beside.BASE: 1, beside.DEEPLIFT: 2, beside.ATTRIBUTE: attribute, beside.EXPLAIN: 2.8, beside.MEASURED: 3.5}
    counted = {beside.DEEPLIFT: 100, beside.ATTRIBUTE: 100 * products, beside.EXPLAIN: 150}
    return {"multiples": {**multiples, beside.FIRST: 2.5}, "products": counted, "memory": memory or {}}


def test_limits_are_multiples_of_deeplift_and_of_later_calls(beside):
    lines = {what: (value, limit) for what, value, limit in beside.judge({"ViT": found(beside)})}
    assert lines == {
        "ViT: attribute / DeepLIFT (products 1.00)": (1.0, 1.0),
        'ViT: explain, conflict="net" / DeepLIFT (products 1.50)': (1.4, 1.3),
        "ViT: first / later attribute": (1.25, 1.3),
    }


def test_more_products_allow_a_tenth_more_time_for_attribute_alone(beside):
    (_, _, allowed), (_, _, other), *_ = beside.judge({"ViT": found(beside, products=1.2)})
    assert (allowed, other) == (1.1, 1.3)


def test_memory_is_judged_where_the_gradient_needs_some_and_conflict_on_tables(beside):
    large = beside.judge({"ViT": found(beside, memory={beside.BASE: 100.0, beside.EXPLAIN: 350.0})})
    assert ("ViT: memory of explain / gradient", 3.5, 3.0) in large
    assert not any("memory" in what for what, *_ in beside.judge({"ViT": found(beside, memory={beside.BASE: 1.0})}))
    name = beside.TABLES[0].name
    assert (f"{name}: measured / net conflict", 1.25, 1.25) in beside.judge({name: found(beside)})


def test_products_are_those_of_forward_and_backward(beside):
    a, b = torch.ones(2, 3, requires_grad=True), torch.ones(3, 5)
    assert beside.products(lambda: (a @ b).sum().backward()) == 2 * 2 * (2 * 3 * 5)

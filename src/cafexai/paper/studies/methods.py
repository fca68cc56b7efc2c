"""Methods of a study by the names that its settings and tables use."""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Iterator
from typing import Any

from ...methods import METHODS, Method

CAFES = ("cafe c=0", "cafe c=0.5", "cafe c=1")
FAST = ("gradient_x_input", "lrp", "deeplift_rescale", "gradient_shap", "integrated_gradients", "smoothgrad")
ALL = (*FAST, "deeplift_revealcancel", "kernel_shap", "shapley_value_sampling", "lime", *CAFES)
NETTED = ("feature c=0", "feature c=0.5", "feature c=1")  # CAFE with netting="feature": ours, not in the paper
UNITS = ("unit c=0", "unit c=0.5", "unit c=1", "deep c=0.5", "deep c=1")  # with netting="unit", and the default
WAYS: dict[str, dict[str, Any]] = {
    "cafe": {"variant": "published"},
    "feature": {"variant": "published", "netting": "feature"},
    "unit": {"variant": "published", "netting": "unit"},
    "deep": {"variant": "default"},
}


def method(name: str) -> Method:
    """ "cafe c=0.5" is CAFE as published with that constant, the other WAYS ours; all others are named in METHODS."""
    kind, given, c = name.partition(" c=")
    if given and kind in WAYS:
        return functools.partial(METHODS["cafe"], c=float(c), **WAYS[kind])
    if name not in METHODS:
        known = ", ".join([*METHODS, "cafe c=0 to cafe c=1"])
        raise ValueError(
            f"methods: there is no {name!r}; choose among {known} and feature c=0 to feature c=1 (unit, deep alike)."
        )
    return METHODS[name]


@contextlib.contextmanager
def large_scores() -> Iterator[None]:
    """Without the warning about scores far larger than the output: their size is what is measured."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*positive and negative are .* times the change of the output")
        yield

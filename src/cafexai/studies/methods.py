"""Methods of a study by the names that its settings and tables use."""

from __future__ import annotations

import functools

from ..methods import METHODS, Method

CAFES = ("cafe c=0", "cafe c=0.5", "cafe c=1")
FAST = ("gradient_x_input", "lrp", "deeplift_rescale", "gradient_shap", "integrated_gradients", "smoothgrad")
ALL = (*FAST, "deeplift_revealcancel", "kernel_shap", "shapley_value_sampling", "lime", *CAFES)
NETTED = ("feature c=0", "feature c=0.5", "feature c=1")  # CAFE with netting="feature": ours, not in the paper


def method(name: str) -> Method:
    """ "cafe c=0.5" is CAFE with that constant, "feature c=0.5" with netting="feature"; all others are named in METHODS."""
    kind, given, c = name.partition(" c=")
    if given and kind in ("cafe", "feature"):
        return functools.partial(METHODS["cafe"], c=float(c), netting="path" if kind == "cafe" else "feature")
    if name not in METHODS:
        known = ", ".join([*METHODS, "cafe c=0 to cafe c=1"])
        raise ValueError(f"methods: there is no {name!r}; choose among {known} and feature c=0 to feature c=1.")
    return METHODS[name]

"""Methods of a study by the names that its settings and tables use."""

from __future__ import annotations

import functools

from ..methods import METHODS, Method

CAFES = ("cafe c=0", "cafe c=0.5", "cafe c=1")
FAST = ("gradient_x_input", "lrp", "deeplift_rescale", "gradient_shap", "integrated_gradients", "smoothgrad")
ALL = (*FAST, "deeplift_revealcancel", "kernel_shap", "shapley_value_sampling", "lime", *CAFES)


def method(name: str) -> Method:
    """ "cafe c=0.5" is CAFE with that constant; all others are named in METHODS."""
    if name.startswith("cafe c="):
        return functools.partial(METHODS["cafe"], c=float(name.removeprefix("cafe c=")))
    if name not in METHODS:
        raise ValueError(f"methods: there is no {name!r}; choose among {', '.join(METHODS)} and cafe c=0 to cafe c=1.")
    return METHODS[name]

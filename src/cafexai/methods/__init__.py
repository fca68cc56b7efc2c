"""CAFE and the methods it is compared with, behind one signature.

``METHODS[name](model, x, *, target=None, baselines=None, feature_groups=None)`` gives scores shaped like x. Methods that need
no baseline or no groups take the arguments and leave them alone; methods with chance have a ``seed``. Every method is one
registered function (``case.py``); it is also there by its name: ``cafexai.methods.lime``.
"""

from __future__ import annotations

from . import bias, gradients, propagation, sampling, transformers
from .case import METHODS, Method, method, scores_groups

__all__ = [
    "METHODS",
    "Method",
    "bias",
    "gradients",
    "method",
    "propagation",
    "sampling",
    "scores_groups",
    "transformers",
    *METHODS,
]


def __getattr__(name: str) -> Method:
    if name in METHODS:
        return METHODS[name]
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}. Methods: {', '.join(METHODS)}.")


def __dir__() -> list[str]:
    return sorted({*globals(), *METHODS})

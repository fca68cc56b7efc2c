"""Conflict-aware feature-wise explanations for PyTorch models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from ._engine.support import supported
    from .comparison import compare
    from .errors import LawBroken, UnsupportedOperation
    from .explain import CAFE
    from .explanation import Explanation
    from .explanations import Explanations
    from .rules.table import elementwise_module, rule
    from .sklearn import from_sklearn

# Loaded when they are first asked for, so that the command line need not wait for torch.
_PLACES = {
    "CAFE": ".explain",
    "Explanation": ".explanation",
    "Explanations": ".explanations",
    "LawBroken": ".errors",
    "UnsupportedOperation": ".errors",
    "compare": ".comparison",
    "elementwise_module": ".rules.table",
    "from_sklearn": ".sklearn",
    "rule": ".rules.table",
    "supported": "._engine.support",
}

__all__ = [
    "CAFE",
    "Explanation",
    "Explanations",
    "LawBroken",
    "UnsupportedOperation",
    "__version__",
    "compare",
    "elementwise_module",
    "from_sklearn",
    "rule",
    "supported",
]


_FOLDERS = ("adapters", "comparison", "conflicts", "datasets", "methods", "metrics", "models", "studies")


def __getattr__(name: str) -> Any:
    if name in _PLACES:
        value = getattr(importlib.import_module(_PLACES[name], __name__), name)
        globals()[name] = value
        return value
    if name in _FOLDERS:
        return importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__, *_FOLDERS})

"""Conflict-aware feature-wise explanations for PyTorch models."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

__version__ = "0.2.0.dev0"

if TYPE_CHECKING:
    from ._engine.refine import Refine as Refine
    from ._engine.support import supported as supported
    from ._inputs.noise import DataNoise as DataNoise
    from ._inputs.noise import Masks as Masks
    from .comparison import compare as compare
    from .errors import LawBroken as LawBroken
    from .errors import UnsupportedOperation as UnsupportedOperation
    from .explain import CAFE as CAFE
    from .explanation import Explanation as Explanation
    from .explanations import Explanations as Explanations
    from .explorer import explore as explore
    from .rules.table import elementwise_module as elementwise_module
    from .rules.table import rule as rule
    from .schema import Column as Column
    from .schema import Schema as Schema
    from .sklearn import from_sklearn as from_sklearn

# Loaded when they are first asked for, so that the command line need not wait for torch.
_PLACES = {
    "CAFE": ".explain",
    "Column": ".schema",
    "DataNoise": "._inputs.noise",
    "Explanation": ".explanation",
    "Explanations": ".explanations",
    "LawBroken": ".errors",
    "Masks": "._inputs.noise",
    "Refine": "._engine.refine",
    "Schema": ".schema",
    "UnsupportedOperation": ".errors",
    "compare": ".comparison",
    "explore": ".explorer",
    "elementwise_module": ".rules.table",
    "from_sklearn": ".sklearn",
    "rule": ".rules.table",
    "supported": "._engine.support",
}

__all__ = ["__version__", *_PLACES]
_FOLDERS = tuple(
    """adapters batch comparison conflicts datasets errors explanation explorer methods metrics models onnx rules schema
       sklearn studies""".split()
)


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

"""Conflict-aware feature-wise explanations for PyTorch models."""

from __future__ import annotations

import importlib as _importlib
import logging as _logging_module
from typing import TYPE_CHECKING as _TYPE_CHECKING
from typing import Any as _Any

__version__ = "0.2.0.dev0"
_logging_module.getLogger("cafexai").addHandler(_logging_module.NullHandler())

if _TYPE_CHECKING:
    from ._core.variant import Variant as Variant
    from ._engine.support import supported as supported
    from ._inputs.background import Background as Background
    from ._inputs.perturbations import DataNoise as DataNoise
    from ._inputs.perturbations import Masks as Masks
    from .cafe import CAFE as CAFE
    from .comparison import compare as compare
    from .errors import CompletenessError as CompletenessError
    from .errors import LawBroken as LawBroken
    from .errors import UnsupportedOperation as UnsupportedOperation
    from .explanation import Explanation as Explanation
    from .explanation import Explanations as Explanations
    from .explorer import explore as explore
    from .refinement.refine import Refine as Refine
    from .rules.registry import elementwise_module as elementwise_module
    from .rules.registry import rule as rule
    from .schema import Column as Column
    from .schema import Schema as Schema
    from .sklearn import from_sklearn as from_sklearn

# Imported on first use, so that the command line does not wait for torch.
_MODULES = {
    "Background": "._inputs.background",
    "CAFE": ".cafe",
    "Column": ".schema",
    "CompletenessError": ".errors",
    "DataNoise": "._inputs.perturbations",
    "Explanation": ".explanation",
    "Explanations": ".explanation",
    "LawBroken": ".errors",
    "Masks": "._inputs.perturbations",
    "Refine": ".refinement.refine",
    "Schema": ".schema",
    "UnsupportedOperation": ".errors",
    "Variant": "._core.variant",
    "compare": ".comparison",
    "elementwise_module": ".rules.registry",
    "explore": ".explorer",
    "from_sklearn": ".sklearn",
    "rule": ".rules.registry",
    "supported": "._engine.support",
}
_FOLDERS = tuple(
    """adapters batch comparison conflicts datasets debug errors explanation explorer generation loading methods metrics models
       monitor onnx paper plotting refinement reporting rules schema serving sklearn studies""".split()
)
__all__ = ["__version__", *_MODULES]


def __getattr__(name: str) -> _Any:
    if name in _MODULES:
        value = getattr(_importlib.import_module(_MODULES[name], __name__), name)
        globals()[name] = value
        return value
    if name in _FOLDERS:
        return _importlib.import_module(f".{name}", __name__)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*__all__, *_FOLDERS})

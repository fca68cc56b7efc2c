"""Adapters: explanations for pandas, SHAP, shapash and explainerdashboard; our methods for Captum and Quantus."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .exports import for_explainerdashboard as for_explainerdashboard
    from .exports import for_shap as for_shap
    from .exports import for_shapash as for_shapash
    from .exports import long_table as long_table
    from .methods import captum_attribution as captum_attribution
    from .methods import quantus_explain as quantus_explain
    from .methods import quantus_table as quantus_table

# Imported on first use: exports must not load every method.
_MODULES = {
    "captum_attribution": ".methods",
    "for_explainerdashboard": ".exports",
    "for_shap": ".exports",
    "for_shapash": ".exports",
    "long_table": ".exports",
    "quantus_explain": ".methods",
    "quantus_table": ".methods",
}
__all__ = list(_MODULES)


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module(_MODULES[name], __name__), name)


def __dir__() -> list[str]:
    return __all__

"""Conflict-aware feature-wise explanations for PyTorch models."""

__version__ = "0.1.0"

from .compare import compare
from .explain import CAFE
from .explanation import Explanation
from .explanations import Explanations
from .law import LawBroken
from .registry import UnsupportedOperation, elementwise_module, rule
from .sklearn import from_sklearn
from .support import supported

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

"""Conflict-aware feature-wise explanations for PyTorch models."""

__version__ = "0.1.0"

from .explain import CAFE
from .explanation import Explanation
from .law import LawBroken
from .registry import UnsupportedOperation, rule

__all__ = ["CAFE", "Explanation", "LawBroken", "UnsupportedOperation", "__version__", "rule"]

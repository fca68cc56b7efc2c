"""Methods side by side on one model: ``compare`` and its result."""

from .result import Comparison
from .run import compare, default_methods

__all__ = ["Comparison", "compare", "default_methods"]

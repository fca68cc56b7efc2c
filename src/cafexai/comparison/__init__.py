"""Methods side by side on one model: ``compare`` and its result."""

from .run import compare, default_methods
from .table import Comparison

__all__ = ["Comparison", "compare", "default_methods"]

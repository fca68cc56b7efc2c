"""The result: plain tensors that sum to the output."""

from .conflict import ConflictInfo
from .conflict_scale import ConflictScale
from .explanation import Explanation
from .explanations import Explanations
from .hidden_conflicts import HiddenConflicts
from .parts import Checks, FeatureInfo, Meta, Refinement, Tensors

__all__ = [
    "Checks",
    "ConflictInfo",
    "ConflictScale",
    "Explanation",
    "Explanations",
    "FeatureInfo",
    "HiddenConflicts",
    "Meta",
    "Refinement",
    "Tensors",
]

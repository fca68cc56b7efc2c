"""The result: plain tensors that sum to the output."""

from .explanation import Explanation
from .explanations import Explanations
from .parts import Checks, FeatureInfo, Meta, Refinement, Tensors

__all__ = ["Checks", "Explanation", "Explanations", "FeatureInfo", "Meta", "Refinement", "Tensors"]

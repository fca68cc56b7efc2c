"""What the model does if rows are changed: scores held against it, and what-if curves."""

from .check import ChangeCheck, check_explanation
from .what_if import Calls, WhatIf, vary_feature

__all__ = ["Calls", "ChangeCheck", "WhatIf", "check_explanation", "vary_feature"]

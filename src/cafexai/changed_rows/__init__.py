"""What the model does if rows are changed: scores held against it, and what-if curves."""

from .check import ChangeCheck
from .image_regions import Occlusion
from .what_if import WhatIf

__all__ = ["ChangeCheck", "Occlusion", "WhatIf"]

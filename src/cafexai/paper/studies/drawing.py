"""Figures of the studies: those of explanations, with the colours of the methods."""

from __future__ import annotations

from ...plotting.figures import bare, figure, heatmap
from ...plotting.palette import METHODS as COLOURS

__all__ = ["COLOURS", "bare", "figure", "heatmap"]

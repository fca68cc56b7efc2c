"""The rules: what each function of torch does to scored values. The only folder that knows torch operations."""

from . import (
    arithmetic,
    attention,
    constants,
    conversion,
    elementwise,
    embedding,
    exported,
    layers,
    linear,
    norms,
    recurrent,
    selection,
    shape,
    writing,
)

layers.ship()

__all__ = [
    "arithmetic",
    "attention",
    "constants",
    "conversion",
    "elementwise",
    "embedding",
    "exported",
    "linear",
    "norms",
    "recurrent",
    "selection",
    "shape",
    "writing",
]

"""The rules: what each function of torch does to scored values. The only folder that knows torch operations."""

from . import (  # noqa: F401  (importing a file registers its rules)
    arithmetic,
    attention,
    conversion,
    elementwise,
    embedding,
    exported,
    frozen,
    grouped,
    indexing,
    linalg,
    linear,
    losses,
    norms,
    packed,
    recurrent,
    reductions,
    selection,
    shape,
)
from .sequential_layers import ship

ship()

"""The rules: what each function of torch does to scored values. The only folder that knows torch operations."""

from . import (  # noqa: F401
    arithmetic,
    attention,
    constants,
    conversion,
    elementwise,
    embedding,
    exported,
    grouped,
    linear,
    losses,
    norms,
    packed,
    recurrent,
    reductions,
    selection,
    shape,
    solving,
    writing,
)
from .layers import ship

ship()

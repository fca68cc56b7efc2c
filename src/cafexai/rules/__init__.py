"""The rules: what each function of torch does to scored values. The only folder that knows torch operations."""

from . import arithmetic, constants, conversion, elementwise, linear, selection, shape, writing

__all__ = ["arithmetic", "constants", "conversion", "elementwise", "linear", "selection", "shape", "writing"]

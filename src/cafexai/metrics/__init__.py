"""How good are attributions? Pure functions of a callable model and scores; one number per row, chance from a seed."""

from __future__ import annotations

from .infidelity import infidelity
from .perturbations import PatchPerturbation, Perturb, TabularPerturbation
from .simple import completeness_error, complexity, max_sensitivity, rmse, runtime
from .table import METRICS, Bench, metric
from .units import UnitModel, random_units, structural_infidelity

__all__ = [
    "METRICS",
    "Bench",
    "PatchPerturbation",
    "Perturb",
    "TabularPerturbation",
    "UnitModel",
    "completeness_error",
    "complexity",
    "infidelity",
    "max_sensitivity",
    "metric",
    "random_units",
    "rmse",
    "runtime",
    "structural_infidelity",
]

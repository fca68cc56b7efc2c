"""How good are attributions? Pure functions of a callable model and scores; one number per row, chance from a seed."""

from __future__ import annotations

from .aopc import normalized_aopc
from .curves import comprehensiveness, deletion, insertion, sufficiency
from .infidelity import infidelity
from .occlusion import occlusion_correlation, sign_agreement
from .perturbations import PatchPerturbation, Perturb, TabularPerturbation
from .randomised import Randomised, randomised
from .registry import METRICS, Bench, metric
from .removal import Replace, cells
from .simple import completeness_error, complexity, max_sensitivity, rmse, runtime
from .unit_infidelity import UnitModel, random_units, structural_infidelity

__all__ = [
    "METRICS",
    "Bench",
    "PatchPerturbation",
    "Perturb",
    "Randomised",
    "Replace",
    "TabularPerturbation",
    "UnitModel",
    "cells",
    "completeness_error",
    "complexity",
    "comprehensiveness",
    "deletion",
    "infidelity",
    "insertion",
    "max_sensitivity",
    "metric",
    "normalized_aopc",
    "occlusion_correlation",
    "random_units",
    "randomised",
    "rmse",
    "runtime",
    "sign_agreement",
    "structural_infidelity",
    "sufficiency",
]

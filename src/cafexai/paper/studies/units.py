"""Hand-set networks with known truth, after XAI-Units: how far is every method, and every variant of CAFE, from it?"""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ... import methods
from ...errors import UnsupportedOperation
from ...methods import Method
from .published_numbers import METHOD_TITLES
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace
from .unit_networks import UNITS, Unit

LOGIT, CONTRAST = "uncertainty, its logit alone", "uncertainty"
EXACT = 1e-24  # a mean squared error that only rounding leaves
VARIANTS: dict[str, dict[str, Any]] = {
    "published": {"variant": "published"},
    "published, biases in the reference": {"variant": "published", "biases": "reference"},
    "default": {},
    "unit, peak": {"variant": "default", "flows": "peak"},
    "feature": {"variant": "feature"},
    "feature, peak": {"variant": "feature", "flows": "peak"},
}
CS = ("0", "0.25", "0.5", "1")
OURS = tuple(f"CAFE {variant} c={c}" for variant in VARIANTS for c in CS)
RIVALS = (
    *("lrp", "deeplift_rescale", "deeplift_revealcancel", "bias_backpropagation", "gradient_x_input", "integrated_gradients"),
    *("gradient_shap", "smoothgrad", "kernel_shap", "lime", "shapley_value_sampling", "cp_lrp", "attn_lrp", "gim"),
)
BLOCKS = ("cafe_blocks", "cafe_if_missing")


class MinusOthers(nn.Module):
    """Each output minus the mean of the others."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, x: Tensor) -> Tensor:
        """(rows, classes) for (rows, features)."""
        out: Tensor = self.model(x)
        count = out.shape[1]
        return out @ (torch.eye(count, dtype=out.dtype) * count - 1) / (count - 1)


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per unit."""
    for name in [*UNITS, LOGIT]:

        def run(name: str = name) -> Any:
            return measure_unit(name, settings)

        yield Task(name, run)


def measure_unit(name: str, settings: Settings) -> dict[str, Any]:
    """The mean squared error of every method over rows, features and networks; why it refused, or None."""
    found: dict[str, Any] = {}
    for seed in range(settings["networks"]):
        unit = UNITS[CONTRAST if name == LOGIT else name](settings["rows"], torch.Generator().manual_seed(seed))
        unit = unit._replace(model=MinusOthers(unit.model)) if name == CONTRAST else unit
        for method in settings["methods"]:
            error = _error(method, unit)
            found[method] = error if isinstance(error, str) else found.get(method, 0.0) + error / settings["networks"]
    return found


def _error(name: str, unit: Unit) -> float | str:
    try:
        scores = find_method(name)(unit.model, unit.x, target=unit.target, baselines=unit.baseline)
    except UnsupportedOperation as problem:
        return str(problem)
    return (scores - unit.truth).square().mean().item()


def find_method(name: str) -> Method:
    """A method by its name, or a variant of CAFE with its c."""
    if not name.startswith("CAFE "):
        return methods.METHODS[name]
    variant, c = name.removeprefix("CAFE ").split(" c=")
    return functools.partial(methods.METHODS["cafe"], c=float(c), **VARIANTS[variant])


def report(settings: Settings, results: Results) -> Report:
    """One line per method, one column per unit, and what was known before."""
    units = [*UNITS, LOGIT]
    rows = [[METHOD_TITLES[name], *(_cell(results[unit][name]) for unit in units)] for name in settings["methods"]]
    note = (
        f"Mean squared error over {settings['rows']} rows of each of {settings['networks']} networks; 0: below {EXACT:g}. "
        "Methods without a baseline (gradients, LRP, bias back-propagation) take none; the last three networks have one."
    )
    table = Table("units", "Distance from the truth on networks set by hand", ["method", *units], rows, note)
    return Report([table], list(_findings(settings, results)))


def _cell(error: float | str) -> float | str:
    return "refused" if isinstance(error, str) else 0.0 if error < EXACT else error


def _findings(settings: Settings, results: Results) -> Iterable[Finding]:
    asked = settings["methods"]
    ours = [name for name in asked if name.startswith("CAFE ")]
    reference = [name for name in ours if not name.startswith("CAFE published c=")]

    def exact(unit: str, names: Iterable[str]) -> bool:
        return all(results[unit][name] < EXACT for name in names)

    def shown(unit: str, *names: str) -> str:
        return "; ".join(f"{METHOD_TITLES[name]} {_cell(results[unit][name]):.3g}" for name in names)

    both = ("CAFE published c=1", "CAFE unit, peak c=1")
    rivals = ("deeplift_rescale", "integrated_gradients")
    yield Finding(
        "conflicting features are exact with c = 1 and peak flows, and not with DeepLIFT and Integrated Gradients",
        exact("conflicting", both) and not any(results["conflicting"][name] < EXACT for name in rivals),
        shown("conflicting", *both, *rivals),
    )
    last = ("pertinent negatives", "Boolean AND", "Boolean OR")
    wrong = {unit: [name for name in reference if results[unit][name] >= EXACT] for unit in last}
    yield Finding(
        "Boolean functions and pertinent negatives are exact in every variant with biases in the reference",
        not any(wrong.values()),
        f"{len(reference)} variants and values of c. As published, c = 0.5: "
        + "; ".join(f"{unit} {results[unit]['CAFE published c=0.5']:.3g}" for unit in last),
    )
    right = [
        c for c in CS if exact("conflicting", [f"CAFE unit, peak c={c}"]) and exact("interacting", [f"CAFE unit, peak c={c}"])
    ]
    yield Finding(
        "no c is exact for conflicting and for interacting features",
        not right,
        "; ".join(f"c = {c}: {_cell(results['conflicting'][n]):.3g} and {_cell(results['interacting'][n]):.3g}"
                  for c in CS for n in [f"CAFE unit, peak c={c}"]),
    )  # fmt: skip
    yield Finding(
        "what pushes all classes alike has no score in a contrast with the other classes, and one in a logit",
        exact(CONTRAST, reference) and not any(results[LOGIT][name] < EXACT for name in reference),
        f"{shown(CONTRAST, 'CAFE default c=0.5')} and {shown(LOGIT, 'CAFE default c=0.5')}.",
    )


ALL = [*OURS, *BLOCKS, *RIVALS]
UNIT_STUDY = Study(
    "units",
    "hand-set networks with known truth, after XAI-Units (ours)",
    "nothing",
    {
        "toy": {"methods": [*OURS, *BLOCKS, "deeplift_rescale", "integrated_gradients"], "rows": 8, "networks": 1},
        "quick": {"methods": ALL, "rows": 100, "networks": 2},
        "full": {"methods": ALL, "rows": 500, "networks": 5},
    },
    {"toy": "0.1", "quick": "0.3", "full": "3"},
    tasks,
    report,
)

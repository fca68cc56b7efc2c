"""The paper's two tables on hand-set networks: the GELU unit whose scores explode, and the circuit of a MIMIC-IV network."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ...cafe import CAFE
from .methods import method
from .published_numbers import METHOD_TITLES, SAMPLING, figure_of_paper, paper
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace

CHANCE = ("gradient_shap", "smoothgrad", *SAMPLING)
TITLES = {
    "explosion": "A GELU unit with two conflicting inputs (figure on explanation robustness)",
    "circuit": "The circuit of a MIMIC-IV network (section on a real-world conflict)",
}
# Half of the paper's last digit. The circuit's weights are known to two digits only, which moves RevealCancel by .005.
CLOSE = 0.0051
CLOSE_REVEALCANCEL = 0.011


def explosion() -> tuple[nn.Module, Tensor, Tensor]:
    """GELU(50 x1 - 51 x2) with its input and baseline."""
    layer = nn.Linear(2, 1, bias=False, dtype=torch.float64)
    with torch.no_grad():
        layer.weight.copy_(torch.tensor([[50.0, -51.0]]))
    unit = nn.Sequential(layer, nn.GELU())
    return unit.eval(), torch.full((1, 2), 2.0, dtype=torch.float64), torch.ones(1, 2, dtype=torch.float64)


def circuit() -> tuple[nn.Module, Tensor, Tensor]:
    """The circuit rebuilt from the contributions that the paper shows: SpO2, age and admission are 1, the baseline is 0.

    Top unit ReLU(0.1 - 0.54 age + 0.6 admission), bottom unit ReLU(0.42 SpO2 - 0.27 age - 0.15 admission), output
    -top + bottom - 0.6. The bottom unit has a bias of -1e-9: all the way from the baseline it would be at its kink, where
    rounding decides whether it is open.
    """
    first, last = nn.Linear(3, 2, dtype=torch.float64), nn.Linear(2, 1, dtype=torch.float64)
    with torch.no_grad():
        first.weight.copy_(torch.tensor([[0.0, -0.54, 0.6], [0.42, -0.27, -0.15]], dtype=torch.float64))
        first.bias.copy_(torch.tensor([0.1, -1e-9], dtype=torch.float64))
        last.weight.copy_(torch.tensor([[-1.0, 1.0]]))
        last.bias.copy_(torch.tensor([-0.6], dtype=torch.float64))
    network = nn.Sequential(first, nn.ReLU(), last)
    return network.eval(), torch.ones(1, 3, dtype=torch.float64), torch.zeros(1, 3, dtype=torch.float64)


NETWORKS = {"explosion": explosion, "circuit": circuit}
FEATURES = {"explosion": ("x1", "x2"), "circuit": ("SpO2", "Age", "Admission")}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per table."""
    for name in NETWORKS:

        def run(name: str = name) -> Any:
            return {key: scores_of(name, key, settings["seeds"]) for key in paper()[name]}

        yield Task(name, run)


def scores_of(name: str, key: str, seeds: int) -> dict[str, list[float]]:
    """The scores of one method by column; one per seed where it draws at random."""
    network, x, baseline = NETWORKS[name]()
    kind, _, c = key.partition(" c=")
    if kind == "cafe":
        e = CAFE.published(network, float(c)).explain(x, baselines=baseline, show_progress=False)
        named = {feature: place for place, feature in enumerate(FEATURES[name])}
        found = {f"{feature}+": [e.flat(e.positive)[0, place].item()] for feature, place in named.items()}
        found |= {f"{feature}-": [e.flat(e.negative)[0, place].item()] for feature, place in named.items()}
        return found | {"Bias+": [e.bias_positive.item()], "Bias-": [e.bias_negative.item()]}
    several = [{"seed": seed} for seed in range(seeds)] if key in CHANCE else [{}]
    given = {} if key == "gradient_x_input" or key in CHANCE else {"baselines": baseline}
    drawn = torch.cat([method(key)(network, x, **given, **options).detach() for options in several])
    return dict(zip(FEATURES[name], drawn.T.tolist(), strict=True))


def report(settings: Settings, results: Results) -> Report:
    """Both tables beside the paper's, and whether they are equal up to the paper's digits."""
    tables, findings = [], []
    for name, scores in results.items():
        tables.append(_table(name, scores))
        exact = {key: found for key, found in scores.items() if key not in CHANCE}
        apart = {key: _largest(name, key, found) for key, found in exact.items()}
        worst = max(apart, key=lambda key: apart[key])
        close = all(gap <= (CLOSE_REVEALCANCEL if key == "deeplift_revealcancel" else CLOSE) for key, gap in apart.items())
        numbers = f"Largest difference {apart[worst]:.2g} ({METHOD_TITLES[worst]})."
        findings.append(Finding(f"{name}: the scores of all methods that do not sample are the paper's", close, numbers))
    return Report(tables, findings)


def _largest(name: str, key: str, found: Mapping[str, list[float]]) -> float:
    theirs = {column: figure_of_paper(name, key, column) for column in found}
    return max(abs(values[0] - given) for column, values in found.items() if (given := theirs[column]) is not None)


def _table(name: str, scores: Mapping[str, Mapping[str, list[float]]]) -> Table:
    columns = list(dict.fromkeys(column for found in scores.values() for column in found))
    rows: list[list[Any]] = []
    for key, found in scores.items():
        cells: list[Any] = [METHOD_TITLES[key]]
        for column in columns:
            values = found.get(column)
            cells += [None if values is None else _format(values), figure_of_paper(name, key, column)]
        rows.append(cells)
    header = ["method", *(part for column in columns for part in (column, "paper"))]
    note = "Methods that sample: lowest to highest value over the seeds; the paper shows one draw."
    if name == "circuit":
        note += (
            " The paper shows contributions, not the values of the features, which are taken as 1. SmoothGrad multiplies"
            " absolute gradients with the values; so its negative score of SpO2 says that this value was below 0."
        )
    return Table(name, TITLES[name], header, rows, note)


def _format(values: list[float]) -> str:
    low, high = min(values), max(values)
    return f"{low:.2f}" if len(values) == 1 else f"{low:.2f} to {high:.2f}"


STUDIES = (
    Study(
        "worked-tables",
        "two tables of the paper on hand-set networks (GELU unit, MIMIC-IV circuit)",
        "nothing",
        {"toy": {"seeds": 2}, "quick": {"seeds": 20}, "full": {"seeds": 200}},
        {"toy": "0.1", "quick": "0.1", "full": "0.5"},
        tasks,
        report,
    ),
)

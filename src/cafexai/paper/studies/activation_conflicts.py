"""What the paper's Propositions 4 and 5 on conflicts in ReLU units say of other activations, by brute force on random units.

Three statements hold by argument, and the study looks for counterexamples:

- A strictly increasing function: C counteracts D exactly if their sums have opposite signs, so that all minimal conflicts are
  pairs of single inputs with opposite signs, in active and in inactive units (Proposition 4). There is no Proposition 5.
- GELU falls up to its minimum and rises from there. Where all sums of inputs lie above the minimum, it is strictly increasing.
  Elsewhere inputs of the same sign conflict: the first makes the output fall, the second makes it rise again. What they do and
  undo is at most the depth of the minimum, 0.17.
- GELU lies below ReLU, by at most that depth, so that differences of two values differ by at most the depth. So sets with a
  conflict larger than 0.17 in one of both units are in conflict in the other, with magnitudes that differ by at most 0.17.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from ..._core.extrema import lowest_point
from ...cafe import CAFE
from ...conflicts import inactive_conflicts, minimal_conflicts
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace

PHI: Mapping[str, Any] = {
    "ReLU": torch.relu,
    "Softplus": nn.functional.softplus,
    "ELU": nn.functional.elu,
    "GELU": nn.functional.gelu,
    "SiLU": nn.functional.silu,
}
STATES = ("active", "inactive")
FLOWS = {"peak": "as published", "extrema": 'flows="extrema"'}
EXACT = 1e-9
Pairs = set[tuple[tuple[int, ...], tuple[int, ...]]]


def depth_of(name: str) -> float:
    """How far below 0 the minimum of the function lies."""
    point = lowest_point(PHI[name])
    return 0.0 if point is None else -PHI[name](torch.tensor(point, dtype=torch.float64)).item()


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per activation."""
    for name in settings["activations"]:

        def run(name: str = name) -> Any:
            return search_units(name, settings)

        yield Task(name, run)


def search_units(name: str, settings: Settings) -> dict[str, Any]:
    """All minimal conflicts of random units, and what CAFE with c = 1 shows of them."""
    draw = torch.Generator().manual_seed(settings["seed"])
    rows = settings["scale"] * torch.randn(settings["units"], settings["inputs"], generator=draw, dtype=torch.float64)
    phi, found = PHI[name], {state: dict.fromkeys(COUNTS, 0.0) for state in STATES}

    def unit(x: Tensor) -> Tensor:
        return phi(x.sum(1, keepdim=True))

    sides = {flows: _sides(phi, rows, flows) for flows in FLOWS}
    low = rows.clamp_max(0).sum(1)  # the lowest sum of any inputs
    point = lowest_point(phi)
    for place, row in enumerate(rows):
        value = row.sum().item()
        counts = found["active" if value > 0 else "inactive"]
        conflicts = list(minimal_conflicts(unit, row[None]))
        pairs = {(one.first, one.second) for one in conflicts}
        counts["units"] += 1
        counts["as Proposition 4"] += pairs == opposite_pairs(row)
        counts["as ReLU"] += pairs == relu_pairs(row, value)
        above = point is None or low[place].item() >= point
        counts["units above the minimum"] += above
        counts["as Proposition 4 above the minimum"] += above and pairs == opposite_pairs(row)
        for one in conflicts:
            same = row[list(one.first)].sum().item() * row[list(one.second)].sum().item() > 0
            counts["conflicts"] += 1
            counts["same direction"] += same
            counts["several inputs"] += len(one.first) + len(one.second) > 2
            if same:
                counts["largest of the same direction"] = max(counts["largest of the same direction"], one.magnitude)
            for flows, (positive, negative) in sides.items():
                shown = max(side[place, list(one.second)].sum().item() for side in (positive, negative))
                shown = min(shown, max(side[place, list(one.first)].sum().item() for side in (positive, negative)))
                counts[f"less than the magnitude shown, {flows}"] += shown < one.magnitude - EXACT
    return {"depth": depth_of(name), "counts": found, "against ReLU": compare_with_relu(phi, rows, depth_of(name))}


COUNTS = (
    *("units", "as Proposition 4", "as ReLU", "units above the minimum", "as Proposition 4 above the minimum", "conflicts"),
    *("same direction", "several inputs", "largest of the same direction"),
    *(f"less than the magnitude shown, {flows}" for flows in FLOWS),
)


def _sides(phi: Any, rows: Tensor, flows: str) -> tuple[Tensor, Tensor]:
    """Positive and negative scores of every input of the units."""

    class Unit(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            out: Tensor = phi(x.sum(1, keepdim=True))
            return out

    e = CAFE(Unit(), 1.0, "published", flows=flows).explain(rows, show_progress=False)
    return e.flat(e.positive), e.flat(e.negative)


def opposite_pairs(row: Tensor) -> Pairs:
    """Proposition 4: all pairs of inputs with opposite signs."""
    return {((i,), (j,)) for i, j in itertools.combinations(range(len(row)), 2) if row[i] * row[j] < 0}


def relu_pairs(row: Tensor, value: float) -> Pairs:
    """Propositions 4 and 5: the minimal conflicts of the ReLU unit, the set with the first input in front."""
    if value > 0:
        return opposite_pairs(row)
    covers = inactive_conflicts(row, value)
    both = [(tuple(cover), (positive,)) for cover in covers.covers for positive in covers.positives]
    return {(one, two) if min(one) < min(two) else (two, one) for one, two in both}


def compare_with_relu(phi: Any, rows: Tensor, limit: float) -> dict[str, float]:
    """All pairs of disjoint sets: conflicts beyond a limit in one unit that the other has not, or has with another size."""
    inputs = rows.shape[1]
    worst, missing, count = 0.0, 0, 0
    for kinds in itertools.product(range(3), repeat=inputs):
        first, second = (rows[:, [kind == side for kind in kinds]].sum(1) for side in (1, 2))
        value = rows.sum(1)
        sizes = [_counteraction(function, value, first, second) for function in (phi, torch.relu)]
        beyond = torch.maximum(*sizes) > limit + EXACT
        count += int(beyond.sum())
        missing += int((beyond & (torch.minimum(*sizes) == 0)).sum())
        worst = max(worst, (sizes[0] - sizes[1]).abs()[beyond].max().item() if beyond.any() else 0.0)
    return {"limit": limit, "count": count, "missing": missing, "largest difference": worst}


def _counteraction(phi: Any, value: Tensor, first: Tensor, second: Tensor) -> Tensor:
    """Definition 3 of the paper for units, 0 where the first set does not counteract the second."""
    one, two = phi(value) - phi(value - first), phi(value - first) - phi(value - first - second)
    return torch.where(one * two < 0, torch.minimum(one.abs(), two.abs()), 0)


def report(settings: Settings, results: Results) -> Report:
    """What is left of both propositions, activation by activation."""
    header = ["activation", "units", *COUNTS[:3], *COUNTS[5:]]
    header[1:3] = ["state", "units"]
    rows: list[list[Any]] = []
    for name, result in results.items():
        for state, counts in result["counts"].items():
            units, conflicts = max(counts["units"], 1), max(counts["conflicts"], 1)
            shares = [f"{counts[key] / units:.1%}" for key in COUNTS[1:3]]
            parts = [f"{counts[key] / conflicts:.1%}" for key in COUNTS[6:8]]
            shown = [f"{counts[key] / conflicts:.1%}" for key in COUNTS[9:]]
            size = f"{counts[COUNTS[8]]:.3f}"
            rows.append([name, state, int(counts["units"]), *shares, int(counts["conflicts"]), *parts, size, *shown])
    note = (
        f"Random units of {settings['inputs']} inputs, contributions normal with standard deviation {settings['scale']:g}, "
        "reference 0. As Proposition 4: the minimal conflicts are the pairs of inputs with opposite signs. As ReLU: they are "
        "those of the ReLU unit. Shown: the larger of the positive and negative scores of each side, with CAFE at c = 1."
    )
    table = Table("activation-conflicts", "Minimal conflicts in single units", header, rows, note)
    return Report([table], [finding for name, result in results.items() for finding in _judge(name, result)])


def _judge(name: str, result: Mapping[str, Any]) -> Iterable[Finding]:
    total = {key: sum(counts[key] for counts in result["counts"].values()) for key in COUNTS}
    if name == "ReLU":
        holds = total["as ReLU"] == total["units"]
        yield Finding(
            "Propositions 4 and 5 hold in all ReLU units", holds, f"In {total['as ReLU']:.0f} of {total['units']:.0f}."
        )
        return
    if not result["depth"]:
        claim = f"{name}, strictly increasing: the conclusion of Proposition 4 holds in all units, active or not"
        holds = total["as Proposition 4"] == total["units"]
        yield Finding(claim, holds, f"In {total['as Proposition 4']:.0f} of {total['units']:.0f}.")
        return
    above, right = total["units above the minimum"], total["as Proposition 4 above the minimum"]
    yield Finding(
        f"{name}: the conclusion of Proposition 4 holds where all sums of inputs lie above the minimum",
        right == above if above else None,
        f"In {right:.0f} of {above:.0f} such units; in {total['as Proposition 4']:.0f} of all {total['units']:.0f}.",
    )
    largest = max(counts["largest of the same direction"] for counts in result["counts"].values())
    yield Finding(
        f"{name}: minimal conflicts between inputs of the same direction are no larger than the depth of the minimum",
        largest <= result["depth"] + EXACT,
        f"They are {total['same direction'] / max(total['conflicts'], 1):.1%} of the conflicts, the largest {largest:.3f}; "
        f"depth {result['depth']:.3f}.",
    )
    against = result["against ReLU"]
    yield Finding(
        f"{name}: conflicts of any sets beyond that depth are those of ReLU, to within it",
        not against["missing"] and against["largest difference"] <= against["limit"] + EXACT,
        f"{against['missing']} of {against['count']:.0f} missing in one of both; magnitudes differ by up to "
        f"{against['largest difference']:.3f}, limit {against['limit']:.3f}.",
    )
    peak, extrema = (total[f"less than the magnitude shown, {flows}"] / max(total["conflicts"], 1) for flows in FLOWS)
    yield Finding(
        f'{name}: flows="extrema" shows less than the magnitude for fewer minimal conflicts than the published rule, c = 1',
        extrema < peak,
        f"For {extrema:.1%} of them against {peak:.1%}.",
    )


COMMON = {"activations": list(PHI), "inputs": 5, "scale": 2.0, "seed": 42}
STUDIES = (
    Study(
        "activation-conflicts",
        "properties of conflicts in units that are not ReLUs: what Propositions 4 and 5 say of GELU (the paper's future work)",
        "nothing",
        {"toy": COMMON | {"units": 20}, "quick": COMMON | {"units": 200}, "full": COMMON | {"units": 1000}},
        {"toy": "0.1", "quick": "0.2", "full": "1"},
        tasks,
        report,
    ),
)

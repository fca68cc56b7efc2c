"""A real circuit in conflict: two hidden units of a trained network, one of them inactive because its features cancel."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...cafe import CAFE
from ...conflicts import audit
from ...methods import METHODS, scores_groups
from ..datasets import Dataset
from .circuit_report import report
from .infidelity import prepare
from .methods import ALL, method
from .record import Settings, Study, Task, Workplace, round_numbers


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One circuit per data set."""
    for name in settings["data"]:

        def run(name: str = name) -> Any:
            return dissect(name, settings, place)

        yield Task(name, run)


def dissect(name: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """The circuit with the weightiest conflict in an inactive unit of the first layer, and all scores on it."""
    table, model = prepare(name, settings["seed"], settings, place)
    rows = table.x_test[: settings["rows"]]
    linears = [layer for layer in model.modules() if isinstance(layer, nn.Linear)]
    first, following = linears[:2]
    row, unit, column = _weightiest(first, following, rows)
    x = rows[row]
    # Below the logits the predicted class is explained, below more layers the unit where the inactive one weighs most.
    above = int((model(x[None])[0] if len(linears) == 2 else following.weight[:, unit].abs()).argmax())
    partner = _partner(first, following, x, unit, above)
    circuit = _circuit(first, following, [partner, unit], above)
    feature = next(key for key, columns in table.features.items() if column in columns)
    incoming = x * circuit[0].weight.detach()
    hides = audit(METHODS["gradient_x_input"], circuit, x[None])
    result = {
        "row": row,
        "units": [partner, unit],
        "above": f"logit {above}" if len(linears) == 2 else f"unit {above} of the second layer",
        "feature": feature,
        "weights": circuit[2].weight[0].tolist(),
        "activations": circuit[:2](x[None])[0].tolist(),
        "contributions": [_by_feature(table, incoming[i]) | {"bias": float(circuit[0].bias[i].detach())} for i in range(2)],
        "audit": {"conflicts": hides.conflicts, "hidden": hides.hidden},
        **_scores(table, circuit, x[None], feature, settings["methods"]),
    }
    return result | {"values": table.readable(row)} if settings["show_data"] else _without_values(result)


def _without_values(result: dict[str, Any]) -> dict[str, Any]:
    """Rows of data sets are not ours to pass on: scores with four digits, shares and names stay."""
    return {key: value if key == "shares" else round_numbers(value) for key, value in result.items()}


def _weightiest(first: nn.Linear, following: nn.Linear, rows: Tensor) -> tuple[int, int, int]:
    """Row, unit and column of the largest conflict, times the unit's largest weight above.

    Only units without a positive bias count: such a unit is inactive because features cancel, and at the reference as well.
    """
    best, found = 0.0, None
    for unit in range(first.out_features):
        weight, bias = first.weight[unit].detach(), float(first.bias[unit].detach())
        incoming = rows * weight
        inactive = (incoming.sum(1) + bias < 0) & (bias <= 0)
        against = (-incoming).clamp_min(0).amax(1, keepdim=True)  # the largest that counteracts
        heaviest = following.weight[:, unit].detach().abs().max()
        sizes = torch.minimum(incoming.clamp_min(0), against) * inactive[:, None] * heaviest
        if float(sizes.max()) > best:
            best = float(sizes.max())
            row, column = divmod(int(sizes.argmax()), rows.shape[1])
            found = (row, unit, column)
    if found is None:
        raise ValueError(f"study circuit: features cancel in no inactive unit on {len(rows)} rows. Give more: --set rows=null.")
    return found


def _partner(first: nn.Linear, following: nn.Linear, x: Tensor, unit: int, above: int) -> int:
    """The active unit of the largest effect, if possible one that pushes the other way, as in the paper's circuit."""
    effects = following.weight[above].detach() * first(x).detach().relu()
    other_way = effects * -following.weight[above, unit].detach().sign()
    return int(other_way.argmax()) if bool((other_way > 0).any()) else int(effects.abs().argmax())


def _circuit(first: nn.Linear, following: nn.Linear, units: list[int], above: int) -> Any:
    """The two units, their weights to what is above them, and its bias."""
    circuit = nn.Sequential(nn.Linear(first.in_features, 2), nn.ReLU(), nn.Linear(2, 1)).double()
    parts = (
        first.weight[units],
        first.bias[units],
        following.weight[above : above + 1, units],
        following.bias[above : above + 1],
    )
    for own, given in zip(circuit.parameters(), parts, strict=True):
        own.data = given.detach().double().clone()
    return circuit.eval()


def _by_feature(table: Dataset, columns: Tensor, groups: bool = False) -> dict[str, float]:
    """Scores of columns as scores of features; ``groups``: every column already has the score of its block."""
    return {name: float(columns[own[0]] if groups else columns[list(own)].sum()) for name, own in table.features.items()}


def _scores(table: Dataset, circuit: Any, x: Tensor, feature: str, methods: list[str]) -> dict[str, Any]:
    """Scores of all methods, and the share of the cancelled effect that they show: what the inactive unit adds to them."""
    without = _circuit(circuit[0], circuit[2], [0, 1], 0)
    without[2].weight.data[0, 1] = 0
    incoming = (circuit[0].weight[1] * x[0]).detach()
    effect = float(circuit[2].weight[0, 1].detach() * incoming[list(table.features[feature])].sum())
    scores, shares, apart = {}, {}, {}
    for key in methods:
        groups = scores_groups(method(key))
        with_it, left = (
            _by_feature(table, method(key)(part, x, target=0, feature_groups=table.feature_mask[0])[0].detach(), groups)
            for part in (circuit, without)
        )
        scores[key] = with_it
        shares[key] = (with_it[feature] - left[feature]) / effect
        if key.startswith("cafe c="):
            e = CAFE.published(circuit, float(key.removeprefix("cafe c="))).explain(x, target=0)
            sides = (_by_feature(table, e.positive[0]), _by_feature(table, e.negative[0]))
            apart[key] = {name: [sides[0][name], sides[1][name]] for name in sides[0]}
            apart[key]["bias"] = [float(e.bias_positive), float(e.bias_negative)]
    return {"effect": effect, "scores": scores, "shares": shares, "apart": apart, "output": float(circuit(x).detach())}


# An epoch of the demo is a single batch: 2000 of them are as many steps as a dozen epochs on all of MIMIC-IV.
COMMON = {
    "family": "mlp",
    "seed": 42,
    "mimic_demo": True,
    "demo_epochs": 2000,
    "train_rows": None,
    "epochs": 100,
    "methods": list(ALL),
    "shown": 8,
    "show_data": False,
}
# Not heloc: its terms are not open, and with the public weights of its network the scores of a row tell the row.
CIRCUIT = Study(
    "circuit",
    "a real circuit in conflict (the paper's example from its MIMIC-IV network), all methods on the circuit alone",
    "mimic (the demo, or mimic_demo=false for your own files), adult with OpenXAI's network, titanic",
    {
        "toy": COMMON | {"data": ["titanic"], "rows": 10, "train_rows": 50, "epochs": 1},
        "quick": COMMON | {"data": ["mimic", "titanic", "adult"], "rows": 100},
        "full": COMMON | {"data": ["mimic", "titanic", "adult"], "rows": None},
    },
    {"toy": "0.1", "quick": "0.3", "full": "0.3"},
    tasks,
    report,
)

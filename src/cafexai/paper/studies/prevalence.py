"""How common conflicts are in the networks on real tables (the paper's section on conflict prevalence)."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...conflicts.find_units import local_layers
from ...conflicts.prevalence import INACTIVE, SMALL, prevalence
from .infidelity import prepare
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace
from .variants import TABLES, Variant

FAMILIES = {"mlp": "MLPs", "ft": "FT-Transformers"}
WAYS = {"signed": "with the signs of the activations", "unsigned": "the authors' way"}
PAPER = {"mlp": {"mimic": 0.31, "heloc": 0.80, "mean": 0.49}, "ft": {"heloc": 0.24, "covertype": 0.37, "mean": 0.30}}
NEAR = 0.10  # a share within ten points of the paper's counts as reproduced: the networks are others
BATCH = 1000


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per family, data set and seed; OpenXAI's networks have fixed weights and one seed."""
    for family in settings["families"]:
        for name in settings["data"]:
            fixed = Variant.of(name, family).given
            for seed in settings["seeds"][: 1 if fixed else None]:

                def run(family: str = family, name: str = name, seed: int = seed) -> Any:
                    return measure_network(family, name, seed, settings, place)

                yield Task(f"{family}-{name}-{seed}", run)


def measure_network(family: str, name: str, seed: int, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Both shares over the test rows of one network."""
    own = {"family": family, "mimic_demo": settings["mimic_demo"]} | {
        key: settings[key][family] for key in ("epochs", "demo_epochs", "train_rows")
    }
    table, model = prepare(name, seed, own, place)
    x, y = table.x_test[: settings["rows"]], table.y_test[: settings["rows"]]
    with torch.no_grad():
        output = torch.cat([model(part) for part in x.split(BATCH)])
    right = (output[:, 0] > 0 if output.shape[1] == 1 else output.argmax(1)) == y
    found = prevalence(model, x.split(BATCH))
    return {
        "rows": len(x),
        "accuracy": right.double().mean().item(),
        "signed": found.overall,
        "unsigned": unsigned_prevalence(model, x),
        "by_layer": dict(found.by_layer),
    }


def unsigned_prevalence(model: nn.Module, x: Tensor) -> float:
    """The share as the authors' script counts it: inactive units whose inputs x |w|, with a positive bias, sum to 1e-5 or more.

    This sum stands for the positive and for the negative inputs alike, so units are counted that have one kind only, and units
    are left out whose negative activations outweigh the others.
    """
    inside = units = 0
    for part in x.split(BATCH):
        for layer in local_layers(model, part):
            if layer.activation in INACTIVE:
                inactive = layer.inputs @ layer.weight.T + layer.bias < INACTIVE[layer.activation]
                inputs = layer.inputs @ layer.weight.abs().T + layer.bias.clamp_min(0) >= SMALL
                inside += int((inactive & inputs).sum())
                units += inactive.numel()
    return inside / units


def report(settings: Settings, results: Results) -> Report:
    """A table of both families and ways, and what the paper says about range and mean."""
    shares = {
        (family, name, way): statistics.fmean([run[way] for run in _runs(family, name, results)])
        for family in settings["families"]
        for name in settings["data"]
        for way in (*WAYS, "accuracy")
    }
    return Report(
        [_table(settings, shares)],
        [finding for family in settings["families"] for finding in _findings(family, settings, shares)],
    )


Shares = dict[tuple[str, str, str], float]  # family, data, way


def _runs(family: str, name: str, results: Results) -> list[Any]:
    return [result for key, result in results.items() if key.rsplit("-", 1)[0] == f"{family}-{name}"]


def _mean(family: str, way: str, settings: Settings, shares: Shares) -> float:
    return statistics.fmean([shares[family, name, way] for name in settings["data"]])


def _table(settings: Settings, shares: Shares) -> Table:
    header = ["data"]
    for family in settings["families"]:
        header += [f"{FAMILIES[family]}, {WAYS['signed']}", WAYS["unsigned"], "paper", "difference", "accuracy"]
    rows: list[list[Any]] = []
    for name in [*settings["data"], "mean"]:
        cells: list[Any] = [name]
        for family in settings["families"]:
            ways = [
                _mean(family, w, settings, shares) if name == "mean" else shares[family, name, w] for w in (*WAYS, "accuracy")
            ]
            theirs = PAPER[family].get(name)
            apart = None if theirs is None else f"{ways[1] - theirs:+.1%}"
            cells += [f"{ways[0]:.1%}", f"{ways[1]:.1%}", None if theirs is None else f"{theirs:.0%}", apart, f"{ways[2]:.1%}"]
        rows.append(cells)
    note = (
        "Share of (row, hidden unit) that are inactive (ReLU below 0, GELU below -0.4 before the activation) although positive "
        "and negative inputs arrive. The authors' script ignores the signs of the activations; the paper's figures were made "
        "so, and the difference (in points) is taken to that column. The paper gives lowest, highest and mean only."
    )
    return Table("prevalence", "Units in conflict", header, rows, note)


def _findings(family: str, settings: Settings, shares: Shares) -> Iterable[Finding]:
    theirs = PAPER[family]
    signed, unsigned = (_mean(family, way, settings, shares) for way in WAYS)
    complete = set(settings["data"]) == set(TABLES)
    yield Finding(
        f"{theirs['mean']:.0%} of the units of {FAMILIES[family]} are in conflict on average",
        abs(unsigned - theirs["mean"]) <= NEAR if complete else None,
        f"{unsigned:.1%} the authors' way, {signed:.1%} with signs; judged the authors' way, within ten points.",
    )
    for name, share in theirs.items():
        if name != "mean" and name in settings["data"]:
            ours = shares[family, name, "unsigned"]
            fixed = Variant.of(name, family).given
            demo = name == "mimic" and settings["mimic_demo"]
            smaller = demo or (settings["train_rows"][family] is not None and not fixed)
            why = "our network is that of the open demo." if demo else "our network saw fewer rows than the paper's."
            yield Finding(
                f"{share:.0%} on {name}, {FAMILIES[family]}",
                None if smaller else abs(ours - share) <= NEAR,
                f"{ours:.1%} the authors' way, {shares[family, name, 'signed']:.1%} with signs; "
                + (why if smaller else "within ten points counts."),
            )
    low = min(settings["data"], key=lambda name: shares[family, name, "signed"])
    yield Finding(
        f"conflicts are common in all {FAMILIES[family]}: at least a fifth of the units, with correct signs",
        shares[family, low, "signed"] >= 0.2,
        f"Lowest share {shares[family, low, 'signed']:.1%} ({low}).",
    )


# The recipes of the infidelity studies, so that both studies ask the same networks.
EPOCHS = {"mlp": 100, "ft": 100}
COMMON = {"mimic_demo": True, "families": list(FAMILIES), "demo_epochs": {"mlp": 2000, "ft": 100}}
PREVALENCE = Study(
    "prevalence",
    "share of hidden units in conflict, MLPs and FT-Transformers (section and appendix on conflict prevalence)",
    "compas, heloc, adult, german with OpenXAI's networks; titanic, covertype, mimic",
    {
        "toy": COMMON | {"data": ["titanic"], "rows": 40, "train_rows": {"mlp": 100, "ft": 100}, "epochs": {"mlp": 1, "ft": 1},
                         "demo_epochs": {"mlp": 1, "ft": 1}, "seeds": [42]},
        "quick": COMMON | {"data": list(TABLES), "rows": 2000, "train_rows": {"mlp": None, "ft": 5000}, "epochs": EPOCHS,
                           "seeds": [42]},
        "full": COMMON | {"data": list(TABLES), "rows": None, "train_rows": {"mlp": None, "ft": None}, "epochs": EPOCHS,
                          "seeds": [42, 43, 44, 45, 46]},
    },
    {"toy": "0.1", "quick": "30", "full": "2132 (from its parts)"},
    tasks,
    report,
)  # fmt: skip
STUDIES = (PREVALENCE,)

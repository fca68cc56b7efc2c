"""The audit of every method on trained networks: does it report the conflicts inside their units? (Theorem 1.)"""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from ...conflicts import Audit, audit
from ...errors import CompletenessError
from ...methods import Method
from ...plotting.palette import AUDIT
from .drawing import figure
from .infidelity import prepare
from .methods import ALL, method
from .published_numbers import METHOD_TITLES
from .record import Finding, Report, Results, Settings, Study, Table, Task, Workplace
from .variants import OPENXAI

AWARE = "cafe c=1"
COUNTS = ("conflicts", "underreported", "hidden", "undecided")


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per network and method."""
    for name in settings["data"]:
        for key in settings["methods"]:

            def run(name: str = name, key: str = key) -> Any:
                return audit_network(name, key, settings, place)

            yield Task(f"{name}-{key.replace(' ', '-')}", run)


def audit_network(name: str, key: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Counts of the conflicts in the units of one network on its first test rows."""
    table, model = prepare(name, settings["seed"], settings, place)
    rows = table.x_test[: settings["rows"]]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Captum's, once per unit
        found = _audits(method(key), model, rows)
    counts = {kind: sum(getattr(part, kind) for part in found) for kind in COUNTS}
    return {
        "data": name,
        "method": key,
        "rows": len(rows),
        "rows audited": len(rows) if len(found) == 1 else len(found),
        **counts,
    }


def _audits(run: Method, model: nn.Module, rows: Tensor) -> list[Audit]:
    """The audit of all rows, or, if the engine refuses the scores of one for their rounding, of each row that it does not."""
    try:
        return [audit(run, model, rows)]
    except CompletenessError:
        found = []
        for row in rows.split(1):
            with contextlib.suppress(CompletenessError):
                found.append(audit(run, model, row))
        return found


def report(settings: Settings, results: Results) -> Report:
    """Shares of underreported and hidden conflicts, and Theorem 1."""
    counts = {(result["data"], result["method"]): result for result in results.values()}
    header = ["method", *(part for name in settings["data"] for part in (f"{name} underreported", "hidden", "undecided"))]
    rows = []
    for key in settings["methods"]:
        cells: list[Any] = [METHOD_TITLES[key]]
        for name in settings["data"]:
            found = counts[name, key]
            cells += [_share(found, kind) for kind in ("underreported", "hidden", "undecided")]
        rows.append(cells)
    sizes = ", ".join(
        f"{name} {counts[name, settings['methods'][0]]['conflicts']} in {counts[name, settings['methods'][0]]['rows']} rows"
        for name in settings["data"]
    )
    short = [
        f"{METHOD_TITLES[key]} {found['rows audited']} rows of {name}"
        for (name, key), found in counts.items()
        if found["rows audited"] < found["rows"]
    ]
    left_out = f" Other rows failed the engine's check of rounding: {', '.join(short)} were audited." if short else ""
    note = f"Conflicts (row, ReLU unit, counteracted input): {sizes}. Hidden ones are among the underreported.{left_out}"
    table = Table("awareness", "Conflicts that a method does not report, in ReLU units by themselves", header, rows, note)
    return Report([table], list(_findings(settings, counts)), {"awareness": _picture(settings, counts)})


def _share(found: Any, kind: str) -> str:
    return f"{found[kind] / max(found['conflicts'], 1):.2%}"


def _findings(settings: Settings, counts: dict[tuple[str, str], Any]) -> Iterable[Finding]:
    methods, data = settings["methods"], settings["data"]

    def total(key: str, kind: str) -> int:
        return sum(counts[name, key][kind] for name in data)

    if AWARE in methods:
        missed, undecided, all_of_them = (total(AWARE, kind) for kind in ("underreported", "undecided", "conflicts"))
        yield Finding(
            "Theorem 1: CAFE with c = 1 and a zero reference underreports no conflict of a ReLU unit",
            None if undecided and not missed else missed == 0,
            f"{missed} of {all_of_them} underreported, {undecided} undecided, in {', '.join(data)}.",
        )
    others = [key for key in methods if key != AWARE]
    shares = {key: total(key, "underreported") / max(total(key, "conflicts"), 1) for key in others}
    if shares:
        least = min(shares, key=lambda key: shares[key])
        yield Finding(
            "every other method underreports some conflicts",
            all(share > 0 for share in shares.values()),
            "; ".join(f"{METHOD_TITLES[key]} {share:.1%}" for key, share in shares.items())
            + f". Least: {METHOD_TITLES[least]}.",
        )
    gradients = [key for key in ("gradient_x_input", "lrp", "deeplift_rescale", "integrated_gradients") if key in methods]
    if gradients and "deeplift_revealcancel" in methods:
        hides = total("deeplift_revealcancel", "hidden")
        rest = {key: total(key, "hidden") for key in gradients}
        yield Finding(
            "DeepLIFT RevealCancel surfaces cancelled features that gradient-based methods hide, but only partially",
            hides < min(rest.values()) and total("deeplift_revealcancel", "underreported") > 0,
            f"It hides {hides} conflicts and underreports {total('deeplift_revealcancel', 'underreported')}; hidden by others: "
            + ", ".join(f"{METHOD_TITLES[key]} {count}" for key, count in rest.items())
            + ".",
        )


def _picture(settings: Settings, counts: dict[tuple[str, str], Any]) -> Any:
    """Stacked bars: hidden, otherwise underreported, undecided."""
    data, methods = settings["data"], settings["methods"]
    drawn = figure(3.2 * len(data) + 2.5, 0.34 * len(methods) + 1.6)
    for axes, name in zip(drawn.subplots(1, len(data), sharey=True, squeeze=False)[0], data, strict=True):
        left = [0.0] * len(methods)
        for kind, colour in [(kind, AUDIT[kind]) for kind in ("hidden", "underreported only", "undecided")]:
            widths = []
            for key in methods:
                found = counts[name, key]
                part = {"hidden": found["hidden"], "undecided": found["undecided"]}
                part["underreported only"] = found["underreported"] - found["hidden"]
                widths.append(100 * part[kind] / max(found["conflicts"], 1))
            axes.barh(range(len(methods)), widths, left=left, color=colour, label=kind)
            left = [a + b for a, b in zip(left, widths, strict=True)]
        axes.set_title(name)
        axes.set_xlim(0, 100)
        axes.set_xlabel("% of the conflicts")
    axes = drawn.axes[0]
    axes.set_yticks(range(len(methods)), [METHOD_TITLES[key] for key in methods])
    axes.invert_yaxis()
    drawn.legend(*axes.get_legend_handles_labels(), loc="outside lower center", ncols=3, frameon=False)
    return drawn


# Sampling methods are slow on wide layers: the networks for German (61 inputs) and Titanic (257) are left to the full preset.
COMMON = {
    "family": "mlp",
    "seed": 42,
    "mimic_demo": True,
    "demo_epochs": 2000,
    "train_rows": None,
    "epochs": 100,
    "methods": list(ALL),
}
AWARENESS = Study(
    "awareness",
    "local conflict awareness (Theorem 1): the audit of all methods on trained networks",
    "compas, heloc with OpenXAI's networks, mimic (the demo, or mimic_demo=false); full: adult, german, titanic",
    {
        "toy": COMMON | {"data": ["titanic"], "rows": 4, "train_rows": 50, "epochs": 1, "methods": ["gradient_x_input", AWARE]},
        "quick": COMMON | {"data": ["compas", "heloc", "mimic"], "rows": 20},
        "full": COMMON | {"data": [*OPENXAI, "titanic", "mimic"], "rows": None},
    },
    {"toy": "0.1", "quick": "2", "full": "120 (estimated)"},
    tasks,
    report,
)

"""How well a monitor sees shifts of tables: detection, kind, false alarms, and harm beside alarm."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ..._extras import needs
from ...cafe import CAFE
from ...monitor import Monitor, Signals
from ..datasets import Dataset
from .distributions import auroc
from .infidelity import prepared
from .monitor_report import report
from .monitor_shifts import KINDS, SHIFTS, UNPAIRED, Rows
from .record import Settings, Study, Task, Workplace

Numbers = NDArray[np.float64]
Values = list[dict[str, float]]  # statistics of several windows
TRAINED = {"family": "mlp", "mimic_demo": True, "train_rows": None, "epochs": 100}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """One task per data set, family of networks and variant."""
    for name in settings["data"]:
        for variant in settings["variants"]:

            def run(name: str = name, variant: str = variant) -> Any:
                return measure(name, variant, settings, place)

            yield Task(f"{name}-{variant}", run)


@dataclass(frozen=True)
class Bench:
    """A fitted monitor, and the watched numbers of its reference for other tests."""

    monitor: Monitor
    before: Signals
    classifiers: bool

    def draw(self, signals: Signals, size: int, count: int, seed: int) -> list[Signals]:
        """Windows drawn from explained rows."""
        random, rows = np.random.default_rng(seed), len(signals)
        return [signals.take(random.choice(rows, size, replace=rows < size)) for _ in range(count)]

    def evaluate(self, window: Signals) -> dict[str, float]:
        """Every statistic of a window: those of the monitor, and ordinary ones."""
        found, limits = self.monitor.statistics(window), self.monitor.reference.limits
        values = {"monitor, all": max(value / limits[family] for family, value in found.items())}
        values |= {f"monitor, {family}": value for family, value in found.items()}
        values["PSI of inputs"] = max(map(stability_index, self.before.inputs.T, window.inputs.T))
        values["mean output"] = abs(window.output.mean() - self.before.output.mean())
        return values | (two_samples(self.before, window) if self.classifiers else {})


def stability_index(before: Numbers, now: Numbers) -> float:
    """PSI of one column over tenths of the reference."""
    edges = np.unique(np.quantile(before, np.arange(1, 10) / 10))
    counts = (np.bincount(np.searchsorted(edges, values, "right"), minlength=len(edges) + 1) for values in (before, now))
    p, q = (np.maximum(count / count.sum(), 1e-4) for count in counts)
    return float(((q - p) * np.log(q / p)).sum())


def measure(name: str, variant: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Every statistic on clean and on shifted windows of one network."""
    table, model = prepared(name, 42, TRAINED, place)
    cafe = CAFE(model, variant=variant, feature_names=table.feature_names)
    order = torch.randperm(len(table.x_train), generator=torch.Generator().manual_seed(0))[: settings["rows"]]
    before, after = order.tensor_split(2)
    pool, labels = table.x_train[after], table.y_train[after]
    with torch.no_grad():
        target = None if model(pool[:2]).shape[1] == 1 else 1
    fitted = Monitor.fit(cafe, table.x_train[before], target=target, false_alarms=settings["false_alarms"])
    bench = Bench(fitted, fitted.read(table.x_train[before]), settings["classifiers"])
    rows, usual = describe(table, pool, labels, cafe, target), fitted.read(pool)
    found: dict[str, Any] = {"rows": len(pool), "minimum": fitted.reference.minimum, "shifts": {}, "false alarms": {}}
    for size in [size for size in settings["windows"] if fitted.reference.minimum <= size <= len(pool) // 2]:
        clean = [bench.evaluate(one) for one in bench.draw(usual, size, settings["count"], 0)]
        fresh = [fitted.check(one) for one in bench.draw(usual, size, settings["fresh"], 1)]
        found["false alarms"][str(size)] = [sum(one.kind != "none" for one in fresh), len(fresh)]
        for shift, change in SHIFTS.items():
            try:
                shifted = change(rows)
            except (IndexError, StopIteration):  # the table has no such column
                continue
            result = _judge_shift(bench, fitted.read(shifted), clean, shift, size, settings["count"])
            result["harm"] = None if shift in UNPAIRED else harm(model, pool, shifted, labels)
            found["shifts"].setdefault(shift, {})[str(size)] = result
    return found


def _judge_shift(bench: Bench, signals: Signals, clean: Values, shift: str, size: int, count: int) -> dict[str, Any]:
    """AUROC of every statistic, and the verdicts."""
    moved = bench.draw(signals, size, count, 2)
    values = [bench.evaluate(one) for one in moved]
    verdicts = [bench.monitor.check(one) for one in moved]
    wanted = KINDS.get(shift)
    return {
        "auroc": {key: auroc(_column(clean, key), _column(values, key)) for key in clean[0]},
        "alarms": statistics.fmean(one.kind != "none" for one in verdicts),
        "alerts": statistics.fmean(one.severity == "alert" for one in verdicts),
        "kind": None if wanted is None else statistics.fmean(one.kind == wanted for one in verdicts),
        "output": statistics.fmean(one.output.size for one in verdicts if one.output is not None),
    }


def describe(table: Dataset, x: Tensor, y: Tensor, cafe: CAFE, target: Any) -> Rows:
    """What shifts need to know of the rows."""
    blocks = {columns[0]: tuple(columns) for columns in table.categories.values()}
    inside = {column for columns in blocks.values() for column in columns[1:]}
    features = tuple(blocks.get(column, (column,)) for column in range(x.shape[1]) if column not in inside)
    e = cafe.explain(x[:500], target=target, conflict="net", show_progress=False)
    sizes = [float(e.flat(e.combined)[:, list(columns)].sum(1).abs().mean()) for columns in features]
    important = tuple(sorted(range(len(features)), key=lambda place: -sizes[place]))
    numbers = [columns[0] for columns in features if len(columns) == 1 and len(x[:, columns[0]].unique()) > 2]
    with np.errstate(invalid="ignore", divide="ignore"):
        related = np.abs(np.nan_to_num(np.corrcoef(x[:, numbers].numpy().T)) - np.eye(len(numbers)))
    first, second = np.unravel_index(int(related.argmax()), related.shape)
    pair = (numbers[int(first)], numbers[int(second)])
    return Rows(x, y, features, important, pair, torch.Generator().manual_seed(7))


def two_samples(before: Signals, window: Signals) -> dict[str, float]:
    """How well classifiers tell the window from the reference: cross-validated AUROC, on inputs and on scores."""
    linear, trees = needs("sklearn.linear_model", "sklearn"), needs("sklearn.ensemble", "sklearn")
    selection = needs("sklearn.model_selection", "sklearn")
    size = len(window)
    drawn = before.take(np.random.default_rng(3).choice(len(before), min(size, len(before)), replace=False))
    y = np.r_[np.zeros(len(drawn)), np.ones(size)]
    found = {}
    for what in ("inputs", "scores"):
        x = np.r_[getattr(drawn, what), getattr(window, what)]
        x = (x - x.mean(0)) / np.where(x.std(0) > 0, x.std(0), 1)
        for kind, model in (
            ("linear", linear.LogisticRegression(max_iter=200)),
            ("trees", trees.ExtraTreesClassifier(30, min_samples_leaf=5, random_state=0)),
        ):
            p = selection.cross_val_predict(model, x, y, cv=3, method="predict_proba")[:, 1]
            found[f"{kind} classifier on {what}"] = auroc(torch.from_numpy(p[y == 0]), torch.from_numpy(p[y == 1]))
    return found


def harm(model: nn.Module, x: Tensor, shifted: Tensor, y: Tensor) -> float:
    """The loss of accuracy."""
    right = []
    for rows in (x, shifted):
        with torch.no_grad():
            out = model(rows)
        right.append((((out[:, 0] > 0).long() if out.shape[1] == 1 else out.argmax(1)) == y).double().mean().item())
    return right[0] - right[1]


def _column(values: Values, key: str) -> Tensor:
    return torch.tensor([one[key] for one in values], dtype=torch.float64)


COMMON = {"variants": ["default", "feature"], "false_alarms": 0.01, "classifiers": True}
STUDIES = (
    Study(
        "monitor",
        "which shifts of tables a monitor sees, and whether they matter to the model (ours)",
        "heloc, adult, compas with OpenXAI's networks; titanic, covertype",
        {
            "toy": COMMON | {"data": ["compas"], "variants": ["default"], "rows": 600, "windows": [100], "count": 3,
                             "fresh": 10, "classifiers": False, "false_alarms": 0.2},
            "quick": COMMON | {"data": ["heloc", "adult", "compas"], "rows": 8000, "windows": [500], "count": 20,
                               "fresh": 200},
            "full": COMMON | {"data": ["heloc", "adult", "compas", "covertype", "titanic"], "rows": 20_000,
                              "windows": [200, 500, 1000], "count": 25, "fresh": 200},
        },
        {"toy": "0.1", "quick": "25 (estimated)", "full": "200 (estimated)"},
        tasks,
        report,
    ),
)  # fmt: skip

"""How well a monitor sees shifts of tables: detection, kind, false alarms, and harm beside alarm."""

from __future__ import annotations

import statistics
from collections.abc import Iterable
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...cafe import CAFE
from ...monitor import Monitor, Signals
from ...monitor._statistics import normal_p, smirnov_p
from ..datasets import Dataset
from .distributions import auroc
from .infidelity import prepare
from .monitor_baselines import measure_certainty, ordinary_statistics
from .monitor_report import ALARMS, WITHOUT_MODEL, report
from .monitor_shifts import KINDS, SHIFTS, UNPAIRED, Rows
from .record import Settings, Study, Task, Workplace

Numbers = NDArray[np.float64]
Values = list[dict[str, float]]  # statistics of several windows
TRAINED = {"family": "mlp", "mimic_demo": True, "train_rows": None, "epochs": 100}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """Two tasks per data set and variant: shifts, and false alarms."""
    for variant in settings["variants"]:
        for name in settings["data"]:
            yield Task(f"{name}-{variant}", partial(measure_shifts, name, variant, settings, place))
            yield Task(f"{name}-{variant}-false-alarms", partial(measure_false_alarms, name, variant, settings, place))


@dataclass(frozen=True)
class Subject:
    """A trained network with its rows in random order."""

    table: Dataset
    model: nn.Module
    cafe: CAFE
    target: int | None
    x: Tensor
    y: Tensor

    @classmethod
    def prepare(cls, name: str, variant: str, settings: Settings, place: Workplace) -> Subject:
        """The network of a data set, trained if it is not yet."""
        table, model = prepare(name, 42, TRAINED, place)
        order = torch.randperm(len(table.x_train), generator=torch.Generator().manual_seed(0))[: settings["rows"]]
        x = table.x_train[order]
        with torch.no_grad():
            target = None if model(x[:2]).shape[1] == 1 else 1
        cafe = CAFE(model, variant=variant, feature_names=table.feature_names)
        return cls(table, model, cafe, target, x, table.y_train[order])

    def fit(self, reference: Any, settings: Settings) -> Monitor:
        """A monitor for rows, or for their watched numbers."""
        return Monitor.fit(self.cafe, reference, target=self.target, false_alarms=settings["false_alarms"])

    def read(self, monitor: Monitor, x: Tensor) -> Part:
        """Explained rows."""
        return Part(monitor.read(x), measure_certainty(self.model, x))


@dataclass(frozen=True)
class Part:
    """Explained rows: the watched numbers, and two measures of certainty."""

    signals: Signals
    certainty: Numbers  # (rows, 2): the largest logit, and the energy

    def take(self, places: Any) -> Part:
        """Some of the rows."""
        return Part(self.signals.take(places), self.certainty[places])

    def draw(self, size: int, count: int, seed: int) -> list[Part]:
        """Windows of these rows."""
        random, rows = np.random.default_rng(seed), len(self.signals)
        return [self.take(random.choice(rows, size, replace=rows < size)) for _ in range(count)]


@dataclass(frozen=True)
class Bench:
    """A fitted monitor, and the explained rows of its reference for other tests."""

    monitor: Monitor
    before: Part
    classifiers: bool

    def evaluate(self, window: Part) -> dict[str, float]:
        """Every statistic of a window: those of the monitor, and ordinary ones."""
        found, limits = self.monitor.statistics(window.signals), self.monitor.reference.limits
        shares = {family: value / limits[family] for family, value in found.items()}
        values = {"monitor, all": max(shares.values())}
        values["monitor without the model"] = max(shares[name] for name in WITHOUT_MODEL)
        values |= {f"monitor, {family}": value for family, value in found.items()}
        return values | ordinary_statistics(self.before, window, self.classifiers)


def measure_shifts(name: str, variant: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Every statistic on clean and on shifted windows of one network."""
    subject = Subject.prepare(name, variant, settings, place)
    reference, pool = subject.x.tensor_split(2)
    labels = subject.y[len(reference) :]
    fitted = subject.fit(reference, settings)
    bench = Bench(fitted, subject.read(fitted, reference), settings["classifiers"])
    rows, usual = describe(subject.table, pool, labels, subject.cafe, subject.target), subject.read(fitted, pool)
    found: dict[str, Any] = {"rows": len(pool), "minimum": fitted.reference.minimum, "shifts": {}}
    for size in _allowed_sizes(fitted, len(pool), settings):
        clean = [bench.evaluate(one) for one in usual.draw(size, settings["count"], 0)]
        for shift, change in SHIFTS.items():
            try:
                shifted = change(rows)
            except (IndexError, StopIteration):  # the table has no such column
                continue
            result = _judge_shift(bench, subject.read(fitted, shifted), clean, shift, size, settings["count"])
            result["harm"] = None if shift in UNPAIRED else harm(subject.model, pool, shifted, labels)
            found["shifts"].setdefault(shift, {})[str(size)] = result
    return found


def measure_false_alarms(name: str, variant: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Alarms on windows without a shift that share no row with each other or with their reference.

    Rows are split again, and a monitor is fitted again, as soon as the windows of one split are used up.
    """
    subject = Subject.prepare(name, variant, settings, place)
    half, wanted = len(subject.x) // 2, settings["fresh"]
    fitted = subject.fit(subject.x[:half], settings)
    signals = fitted.read(subject.x)
    counts = {size: dict.fromkeys(ALARMS, 0) | {"windows": 0} for size in _allowed_sizes(fitted, half, settings)}
    random = np.random.default_rng(1)
    while any(count["windows"] < wanted for count in counts.values()):
        order = random.permutation(len(signals))
        monitor, rest = subject.fit(signals.take(order[:half]), settings), order[half:]
        for size, count in counts.items():
            for start in range(0, len(rest) - size + 1, size):
                if count["windows"] < wanted:
                    _count_alarms(count, monitor, signals.take(rest[start : start + size]), settings["false_alarms"])
    return {"false alarms": {str(size): count for size, count in counts.items()}}


def _count_alarms(count: dict[str, int], monitor: Monitor, window: Signals, rate: float) -> None:
    count["windows"] += 1
    smallest = max(monitor.reference.minimum, 1)
    if len(window) < smallest:  # another split may ask for a few rows more
        raise ValueError(f"study monitor: windows of {len(window)} rows are below the minimum of {smallest}.")
    verdict = monitor.check(window)
    found = {family: value for family, (value, _) in verdict.statistics.items()}
    columns = max(value for family, value in found.items() if family not in ("new values", "correlations"))
    plain = min(float(smirnov_p(np.array(columns))), float(normal_p(np.array(found["correlations"]))))
    for name, raised in zip(ALARMS, (verdict.kind != "none", plain < rate, verdict.p < rate), strict=True):
        count[name] += raised


def _allowed_sizes(fitted: Monitor, rows: int, settings: Settings) -> list[int]:
    return [size for size in settings["windows"] if fitted.reference.minimum <= size <= rows // 2]


def _judge_shift(bench: Bench, shifted: Part, clean: Values, shift: str, size: int, count: int) -> dict[str, Any]:
    """AUROC of every statistic, and the verdicts."""
    moved = shifted.draw(size, count, 2)
    values = [bench.evaluate(one) for one in moved]
    verdicts = [bench.monitor.check(one.signals) for one in moved]
    wanted = KINDS.get(shift)
    return {
        "auroc": {key: auroc(_column(clean, key), _column(values, key)) for key in clean[0]},
        "alarms": statistics.fmean(one.kind != "none" for one in verdicts),
        "alerts": statistics.fmean(one.severity == "alert" for one in verdicts),
        "unknown": statistics.fmean(one.harm == "unknown" for one in verdicts),
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

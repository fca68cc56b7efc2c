"""How well a monitor sees shifts of tables: detection, kind, false alarms, and harm beside alarm."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from ...cafe import CAFE
from ...monitor import Monitor, Signals
from ...monitor._judge import judge
from ...monitor._statistics import normal_p, smirnov_p
from ...monitor._window import summarise
from ..datasets import Dataset
from .distributions import auroc
from .infidelity import prepare
from .monitor_digits import WATCHED, Digits
from .monitor_report import ALARMS, RIGHT, WITHOUT_MODEL, report
from .monitor_shifts import KINDS, SHIFTS, UNPAIRED, Rows
from .ordinary_shift_tests import measure_certainty, ordinary_statistics
from .record import Settings, Study, Task, Workplace

Numbers = NDArray[np.float64]
Values = list[dict[str, float]]  # statistics of several windows
TRAINED = {"family": "mlp", "mimic_demo": True, "train_rows": None, "epochs": 100}


def tasks(settings: Settings, place: Workplace) -> Iterable[Task]:
    """A task per network and variant for shifts; per network for kinds, and for some of them one more for false alarms."""
    for name in settings["calm"]:
        yield Task(f"{name}-default-false-alarms", partial(measure_false_alarms, name, settings, place))
    for name in settings["kinds"]:
        yield Task(f"{name}-default-kinds", partial(measure_kinds, name, settings, place))
    for variant, key in (("default", "data"), ("feature", "feature")):
        for name in settings[key]:
            yield Task(f"{name}-{variant}", partial(measure_shifts, name, variant, settings, place))
    if settings["digit_epochs"]:
        yield Task("digits-default", partial(measure_digits, settings, place))


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
        """The network of a data set, trained if it is not yet; "compas-ft" is an FT-Transformer."""
        data, _, family = name.partition("-")
        plan = TRAINED | settings["training"].get(data, {})
        plan |= {"family": family, "epochs": settings["ft_epochs"]} if family else {}
        table, model = prepare(data, 42, plan, place)
        order = torch.randperm(len(table.x_train), generator=torch.Generator().manual_seed(0))[
            : settings["ft_rows" if family else "rows"]
        ]
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

    def evaluate_all(self, windows: list[Part], others: int | None) -> Values:
        """Every statistic of every window. Ordinary ones unless ``others`` is None; classifiers, which are slow, of so many."""
        found = [self.evaluate(one) for one in windows]
        if others is not None:
            for place, (values, one) in enumerate(zip(found, windows, strict=True)):
                values |= ordinary_statistics(self.before, one, place < others)
        return found

    def evaluate(self, window: Part) -> dict[str, float]:
        """Every statistic of the monitor."""
        found, limits = self.monitor.statistics(window.signals), self.monitor.reference.limits
        shares = {family: value / limits[family] for family, value in found.items()}
        values = {"monitor, all": max(shares.values())}
        values["monitor without the model"] = max(shares[name] for name in WITHOUT_MODEL)
        values |= {f"monitor, {family}": value for family, value in found.items()}
        return values


def measure_shifts(name: str, variant: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Every statistic on clean and on shifted windows of one network."""
    subject = Subject.prepare(name, variant, settings, place)
    reference, pool = subject.x.tensor_split(2)
    labels = subject.y[len(reference) :]
    rows = describe(subject.table, pool, labels, subject.cafe, subject.target)
    shifts = {shift: partial(_apply, shift, rows) for shift in SHIFTS}
    return _measure(subject, shifts, settings, settings["classifiers"] if variant == "default" else None)


def measure_digits(settings: Settings, place: Workplace) -> dict[str, Any]:
    """The same for latent features of the paper's stacked digits."""
    digits = Digits.prepare(settings, place)
    cafe = CAFE(digits.classifier, feature_names=[f"latent {feature}" for feature in range(digits.x.shape[1])])
    subject = Subject(digits.table, digits.classifier, cafe, WATCHED, digits.x, digits.y)
    half = len(digits.x) - len(digits.x) // 2
    shifts = {shift: partial(x.__getitem__, slice(half, None)) for shift, x in digits.shifted.items()}
    return _measure(subject, shifts, settings, settings["classifiers"])


def _measure(
    subject: Subject, shifts: Mapping[str, Callable[[], Tensor | None]], settings: Settings, others: int | None
) -> dict[str, Any]:
    """The first half of the rows is the reference; the others are clean, or shifted."""
    reference, pool = subject.x.tensor_split(2)
    labels = subject.y[len(reference) :]
    fitted = subject.fit(reference, settings)
    bench, usual = Bench(fitted, subject.read(fitted, reference)), subject.read(fitted, pool)
    found: dict[str, Any] = {"rows": len(pool), "minimum": fitted.reference.minimum, "shifts": {}}
    for size in _allowed_sizes(fitted, len(pool), settings["windows"]):
        clean = bench.evaluate_all(usual.draw(size, settings["count"], 0), others)
        for shift, change in shifts.items():
            if (shifted := change()) is None:
                continue
            part = subject.read(fitted, shifted)
            result = _judge_shift(bench, part, clean, shift, size, settings["count"], others)
            paired = shift not in UNPAIRED
            result |= measure_harm(subject, pool, shifted, labels) if paired else {"harm": None, "auc": None}
            result["needed"] = count_needed_rows(fitted, part, settings)
            found["shifts"].setdefault(shift, {})[str(size)] = result
    return found


def measure_false_alarms(name: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Alarms on windows without a shift that share no row with each other or with their reference.

    Rows are split again, and a monitor is fitted again, as soon as the windows of one split are used up.
    """
    subject = Subject.prepare(name, "default", settings, place)
    half, wanted = len(subject.x) // 2, settings["fresh"]
    fitted = subject.fit(subject.x[:half], settings)
    signals = fitted.read(subject.x)
    counts = {
        size: dict.fromkeys(ALARMS, 0) | {"windows": 0} for size in _allowed_sizes(fitted, half, settings["calm_windows"])
    }
    random = np.random.default_rng(1)
    while any(count["windows"] < wanted for count in counts.values()):
        order = random.permutation(len(signals))
        monitor, rest = subject.fit(signals.take(order[:half]), settings), order[half:]
        for size, count in counts.items():
            for start in range(0, len(rest) - size + 1, size):
                if count["windows"] < wanted:
                    _count_alarms(count, monitor, signals.take(rest[start : start + size]), settings["false_alarms"])
    return {"false alarms": {str(size): count for size, count in counts.items()}}


def measure_kinds(name: str, settings: Settings, place: Workplace) -> dict[str, Any]:
    """Verdicts on one window per seed, size and shift at full strength.

    A seed splits the rows into reference and pool anew, and decides which rows change, and how.
    """
    subject = Subject.prepare(name, "default", settings, place)
    half = len(subject.x) // 2
    fitted = subject.fit(subject.x[:half], settings)
    signals = fitted.read(subject.x)
    sizes = _allowed_sizes(fitted, len(subject.x) - half, settings["kind_rows"])
    found: dict[str, dict[str, list[str]]] = {str(size): {} for size in sizes}
    related = []
    for seed in range(settings["kind_seeds"]):
        order = torch.randperm(len(subject.x), generator=torch.Generator().manual_seed(100 + seed))
        monitor, rest = subject.fit(signals.take(order[:half].numpy()), settings), order[half:]
        rows = describe(subject.table, subject.x[rest], subject.y[rest], subject.cafe, subject.target, seed)
        related.append(abs(float(torch.corrcoef(rows.x[:, list(rows.pair)].T)[0, 1])))
        for shift in KINDS:
            if (shifted := _apply(shift, rows)) is not None:
                part = monitor.read(shifted[: max(*sizes, monitor.reference.minimum)])
                for size in sizes:
                    verdict = monitor.check(part.take(slice(0, max(size, monitor.reference.minimum))))
                    found[str(size)].setdefault(shift, []).append(verdict.kind)
    return {"kinds": found, "correlation": statistics.fmean(related)}


def _apply(shift: str, rows: Rows) -> Tensor | None:
    """Shifted rows; None if the table has no such column."""
    try:
        return SHIFTS[shift](rows)
    except (IndexError, StopIteration):
        return None


def _count_alarms(count: dict[str, int], monitor: Monitor, window: Signals, rate: float) -> None:
    count["windows"] += 1
    fitted = monitor.reference
    verdict = judge(fitted, summarise(fitted.bins, fitted.ranks, window))  # another split may ask for a few rows more
    found = {family: value for family, (value, _) in verdict.statistics.items()}
    columns = max(value for family, value in found.items() if family not in ("new values", "correlations"))
    plain = min(float(smirnov_p(np.array(columns))), float(normal_p(np.array(found["correlations"]))))
    for name, raised in zip(ALARMS, (verdict.kind != "none", plain < rate, verdict.p < rate), strict=True):
        count[name] += raised


def _allowed_sizes(fitted: Monitor, rows: int, sizes: list[int]) -> list[int]:
    """Sizes of windows that there are rows for; a table with few rows has smaller ones."""
    smallest = fitted.reference.minimum
    return [size for size in sizes if smallest <= size <= rows // 2] or [max(smallest, rows // 200 * 50)]


def count_needed_rows(monitor: Monitor, shifted: Part, settings: Settings) -> int | None:
    """The smallest of some sizes at which nine of ten windows raise an alarm; None if there is none."""
    for size in settings["sizes"]:
        if monitor.reference.minimum <= size <= len(shifted.signals):
            windows = shifted.draw(size, 10, 5)
            if statistics.fmean(monitor.check(one.signals).kind != "none" for one in windows) >= RIGHT:
                return int(size)
    return None


def _judge_shift(
    bench: Bench, shifted: Part, clean: Values, shift: str, size: int, count: int, others: int | None
) -> dict[str, Any]:
    """AUROC of every statistic, and the verdicts."""
    moved = shifted.draw(size, count, 2)
    values = bench.evaluate_all(moved, others)
    verdicts = [bench.monitor.check(one.signals) for one in moved]
    wanted = KINDS.get(shift)
    sizes = [one.output.size for one in verdicts if one.output is not None]
    return {
        "auroc": {key: auroc(_column(clean, key), _column(values, key)) for key in clean[0]},
        "alarms": statistics.fmean(one.kind != "none" for one in verdicts),
        "alerts": statistics.fmean(one.severity == "alert" for one in verdicts),
        "unknown": statistics.fmean(one.harm == "unknown" for one in verdicts),
        "kind": None if wanted is None else statistics.fmean(one.kind == wanted for one in verdicts),
        "output": statistics.fmean(sizes) if sizes else None,
    }


def describe(table: Dataset, x: Tensor, y: Tensor, cafe: CAFE, target: Any, seed: int = 7) -> Rows:
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
    return Rows(x, y, features, important, pair, torch.Generator().manual_seed(seed))


def measure_harm(subject: Subject, x: Tensor, shifted: Tensor, y: Tensor) -> dict[str, float]:
    """The losses of accuracy, and of AUC of the watched output."""
    right, area = [], []
    for rows in (x, shifted):
        with torch.no_grad():
            out = subject.model(rows)
        right.append((((out[:, 0] > 0).long() if out.shape[1] == 1 else out.argmax(1)) == y).double().mean().item())
        watched, one = out[:, subject.target or 0], y == (1 if subject.target is None else subject.target)
        area.append(auroc(watched[~one], watched[one]))
    return {"harm": right[0] - right[1], "auc": area[0] - area[1]}


def _column(values: Values, key: str) -> Tensor:
    return torch.tensor([one[key] for one in values if key in one], dtype=torch.float64)


# "feature": networks of which scores by feature netting are watched, too. Networks of one hidden layer have the same by both.
COMMON = {"feature": [], "false_alarms": 0.01, "ft_epochs": 20, "ft_rows": 6000, "sizes": [100, 200, 400, 800, 1600],
          "kind_seeds": 10, "kind_rows": [500, 1000], "training": {"covertype": {"train_rows": 60_000, "epochs": 15}},
          "digit_rows": None, "digit_epochs": 10}  # fmt: skip
STUDIES = (
    Study(
        "monitor",
        "which shifts of tables a monitor sees, and whether they matter to the model (ours)",
        "heloc, adult, compas with OpenXAI's networks; titanic; covertype",
        {
            "toy": COMMON | {"data": ["compas"], "calm": ["compas"], "rows": 600, "windows": [100],
                             "kinds": ["compas"], "kind_seeds": 2, "digit_epochs": 0, "kind_rows": [100],
                             "calm_windows": [100], "count": 3, "fresh": 10, "classifiers": 0, "false_alarms": 0.2,
                             "sizes": [100]},
            "quick": COMMON | {"data": ["compas", "heloc", "adult", "titanic"], "digit_epochs": 0,
                               "kinds": ["compas", "heloc", "adult", "titanic"],
                               "calm": ["compas", "heloc", "adult"],
                               "feature": ["titanic"], "rows": 8000, "ft_rows": 3000, "ft_epochs": 8, "windows": [500],
                               "calm_windows": [200], "count": 12, "fresh": 200, "classifiers": 6},
            "full": COMMON | {"data": ["heloc", "adult", "compas", "covertype", "titanic", "compas-ft", "adult-ft"],
                              "kinds": ["heloc", "adult", "compas", "covertype", "titanic", "compas-ft", "adult-ft"],
                              "calm": ["heloc", "adult", "compas"], "rows": 20_000, "windows": [200, 500, 1000],
                              "feature": ["titanic", "covertype"], "calm_windows": [200, 500, 1000],
                              "count": 25, "fresh": 200, "classifiers": 25},
        },
        {"toy": "0.1", "quick": "4", "full": "300 (estimated)"},
        tasks,
        report,
    ),
)  # fmt: skip

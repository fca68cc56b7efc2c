"""What a full preset costs on one core, from its parts: one epoch of every kind of network, and the scores of one of each.

    python benchmarks/study_costs.py [STUDY ...]

writes studies/costs.json, which the page of the paper reads. Of an epoch with more than ``BATCHES`` batches these are trained,
and the time is multiplied. Where many rows or images are scored, some are, and twice as many: from both follows what all take.
Parts that are there already are not measured again.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from cafexai.paper.models import training
from cafexai.paper.studies import STUDIES
from cafexai.paper.studies.infidelity import SLOW
from cafexai.paper.studies.record import Settings, Study, Workplace

TARGET = Path(__file__).parent.parent / "studies" / "costs.json"
MEASURED = ("shift-images", "shift-clothes", "depth-blocks", "depth-ft", "infidelity-ft", "prevalence")
EPOCHS = ("epochs", "demo_epochs")
BATCHES = 10  # of one epoch
SOME = {  # settings with fewer rows or images, and how many times as many there are
    "shift-images": ({"explained": 85, "netted": 17}, 60),
    "shift-clothes": ({"explained": 25}, 40),
    "depth-ft": ({"rows": 25}, 20),
    "infidelity-ft": ({"rows": 40, "unit_rows": 2, "limits": {key: rows // 10 for key, rows in SLOW.items()}}, 10),
}


def short(settings: Settings) -> dict[str, Any]:
    """The same settings with one seed and one epoch."""
    return {**settings, "seeds": settings["seeds"][:1]} | {key: _once(settings[key]) for key in EPOCHS if key in settings}


def _once(epochs: Any) -> Any:
    return dict.fromkeys(epochs, 1) if isinstance(epochs, Mapping) else 1


def kind(key: str) -> str:
    """A task without its seed."""
    return key.rpartition("-")[0]


def epochs_of(settings: Settings, task: str) -> int:
    """How long the network of a kind of task is trained."""
    demo = "mimic" in task and "demo_epochs" in settings
    epochs: Any = settings["demo_epochs" if demo else "epochs"]
    return int(epochs[task.partition("-")[0]] if isinstance(epochs, Mapping) else epochs)


def measure(study: Study, place: Workplace, done: Mapping[str, Any]) -> Iterator[tuple[str, dict[str, float]]]:
    """Processor seconds of an epoch and of the rest, for every kind of task that is not done."""
    full = study.presets["full"]
    count = Counter(kind(task.key) for task in study.tasks(full, place))
    some, times = SOME.get(study.name, ({}, 1))
    sizes = [some, _twice(some)][: 1 + bool(some)]
    with counted_seconds() as spent, few_batches() as seen:
        for tasks in zip(*(study.tasks({**short(full), **size}, place) for size in sizes), strict=True):
            if (name := kind(tasks[0].key)) in done:
                continue
            spent.clear()
            rest = []
            for task in tasks:  # the second one finds the network
                before, start = sum(spent), time.process_time()
                task.run()
                rest.append(time.process_time() - start - (sum(spent) - before))
            if rest[-1] < rest[0]:
                raise ArithmeticError(f"{name}: twice as much took less time, {rest}. Start again; what is done is kept.")
            numbers = {
                "epoch": seen.whole(sum(spent)) if spent else 0.0,
                "rest": rest[0] + (rest[-1] - rest[0]) * (times - 1),
                "epochs": epochs_of(full, name) if spent else 0,
            }
            yield name, {key: round(value, 3) for key, value in numbers.items()} | {"networks": count[name]}


def _twice(size: Any) -> Any:
    return {key: _twice(value) for key, value in size.items()} if isinstance(size, Mapping) else 2 * size


class counted_seconds:  # noqa: N801  # used like a function
    """Collects the processor seconds of every training inside of it."""

    def __enter__(self) -> list[float]:
        spent: list[float] = []
        self.before: Callable[..., Any] = training._run

        def timed(*values: Any) -> Any:
            start = time.process_time()
            try:
                return self.before(*values)
            finally:
                spent.append(time.process_time() - start)

        training._run = timed
        return spent

    def __exit__(self, *_: object) -> None:
        training._run = self.before


@dataclass
class Epoch:
    """What an epoch that ends early leaves out."""

    times: float = 1.0  # as many batches
    cutting: float = 0.0  # seconds for cutting the rows into batches: all of them are cut

    def whole(self, trained: float) -> float:
        """The seconds of the whole epoch."""
        return self.cutting + self.times * (trained - self.cutting)


@contextlib.contextmanager
def few_batches() -> Iterator[Epoch]:
    """Lets every epoch end after a few batches."""
    seen = Epoch()
    before = training.batches

    def few(*values: Any) -> Callable[[int], list[Any]]:
        start = time.process_time()
        rows = before(*values)
        seen.cutting = time.process_time() - start

        def of_epoch(epoch: int) -> list[Any]:
            every = rows(epoch)
            seen.times = max(1.0, len(every) / BATCHES)
            return every[:BATCHES]

        return of_epoch

    training.batches = few
    try:
        yield seen
    finally:
        training.batches = before


def minutes(parts: Mapping[str, Mapping[str, float]]) -> float:
    """The whole preset: every network is trained for all its epochs and scored once."""
    seconds = (part["networks"] * (part["epochs"] * part["epoch"] + part["rest"]) for part in parts.values())
    return round(sum(seconds) / 60, 1)


def main() -> None:
    reader = argparse.ArgumentParser(description=__doc__)
    reader.add_argument("studies", nargs="*", default=MEASURED)
    asked = reader.parse_args().studies
    torch.set_num_threads(1)
    costs = json.loads(TARGET.read_text()) if TARGET.exists() else {}
    for name in asked:
        parts = costs.setdefault(name, {"minutes": None, "parts": {}})["parts"]
        with tempfile.TemporaryDirectory() as models:
            next(iter(STUDIES[name].tasks(STUDIES[name].presets["toy"], Workplace(Path(models), None, False)))).run()  # warm
            for task, numbers in measure(STUDIES[name], Workplace(Path(models), None, False), parts):
                parts[task] = numbers
                TARGET.write_text(json.dumps(costs, indent=1) + "\n")
                print(name, task, numbers, flush=True)
        costs[name]["minutes"] = minutes(parts)
        TARGET.write_text(json.dumps(costs, indent=1) + "\n")


if __name__ == "__main__":
    main()

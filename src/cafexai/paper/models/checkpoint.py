"""Trainings on disk: tensors as safetensors, everything else as JSON in their header, under a name made from the config."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn


@dataclass
class Progress:
    """Where a training stands after an epoch: weights now, the best so far, the optimiser, and the history."""

    epoch: int = 0
    losses: list[Any] = field(default_factory=list)
    validation: list[Any] = field(default_factory=list)
    first: list[float] = field(default_factory=list)
    best_epoch: Any = None
    model: dict[str, Tensor] = field(default_factory=dict)
    best: dict[str, Tensor] = field(default_factory=dict)
    optimizer: dict[str, Tensor] = field(default_factory=dict)


@dataclass
class Tally:
    """How many networks were trained, and how many were found in the store."""

    trained: int = 0
    found: int = 0

    def add(self, other: Tally) -> None:
        """Count what another tally counted too."""
        self.trained += other.trained
        self.found += other.found


_TALLY: ContextVar[Tally | None] = ContextVar("tally", default=None)


@contextlib.contextmanager
def count_trainings() -> Iterator[Tally]:
    """Count the networks that are trained or found inside this context."""
    tally = Tally()
    token = _TALLY.set(tally)
    try:
        yield tally
    finally:
        _TALLY.reset(token)


def tell_tally(name: str, networks: int) -> None:
    """Count networks under "trained" or "found", if anybody counts."""
    tally = _TALLY.get()
    if tally is not None:
        setattr(tally, name, getattr(tally, name) + networks)


PARTS = ("model", "best", "optimizer")
HISTORY = ("epoch", "losses", "validation", "first", "best_epoch")


def safetensors() -> Any:
    """The module that reads and writes tensors."""
    try:
        import safetensors.torch
    except ModuleNotFoundError:
        raise ModuleNotFoundError("Checkpoints need safetensors: pip install 'cafexai[io]'.") from None
    return safetensors.torch


def config_key(config: Mapping[str, Any], models: Iterable[nn.Module], tensors: Iterable[Tensor]) -> str:
    """A name for a training: the same only for the same settings, architecture, initial weights and data."""
    total = hashlib.sha256(json.dumps(config, sort_keys=True).encode())
    for model in models:
        total.update(repr(model).encode())
        for name, value in model.state_dict().items():
            total.update(name.encode() + _bytes(value))
    for tensor in tensors:
        total.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode() + _bytes(tensor))
    return total.hexdigest()[:24]


def _bytes(tensor: Tensor) -> bytes:
    return np.ascontiguousarray(tensor.detach().cpu().numpy()).tobytes()


@dataclass(frozen=True)
class Store:
    """The two files of one training: ``KEY.safetensors`` when it is finished, ``KEY.part.safetensors`` before."""

    folder: Path
    key: str
    config: Mapping[str, Any]

    def path(self, finished: bool) -> Path:
        """Where it is written."""
        return self.folder / (f"{self.key}.safetensors" if finished else f"{self.key}.part.safetensors")

    @contextlib.contextmanager
    def alone(self) -> Iterator[None]:
        """Another process that wants the same training waits until this one has ended, whatever ended it."""
        from filelock import FileLock  # torch needs it too

        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / f".{self.key}.lock"
        with FileLock(path):
            yield
            with contextlib.suppress(OSError):  # Windows keeps a file that others have open
                path.unlink()

    def save(self, progress: Progress, finished: bool) -> None:
        """Write at once or not at all: an interruption leaves the last complete file."""
        parts = ("model",) if finished else PARTS
        tensors = {
            f"{part}.{name}": value.detach().clone().contiguous()
            for part in parts
            for name, value in getattr(progress, part).items()
        }
        history = {name: getattr(progress, name) for name in HISTORY}
        versions = {"torch": str(torch.__version__), "python": platform.python_version(), "machine": platform.machine()}
        metadata = {"history": json.dumps(history), "config": json.dumps(dict(self.config)), "versions": json.dumps(versions)}
        self.folder.mkdir(parents=True, exist_ok=True)
        target = self.path(finished)
        part = target.with_suffix(f".{os.getpid()}.tmp")
        files = safetensors()
        from safetensors import SafetensorError

        try:
            files.save_file(tensors, part, metadata)
        except SafetensorError as problem:  # a full disk, for one: to callers an error of files like any other
            part.unlink(missing_ok=True)
            raise OSError(f"train(..., folder={str(self.folder)!r}): {part.name} could not be written: {problem}") from problem
        part.replace(target)
        if finished:
            self.path(False).unlink(missing_ok=True)

    def load(self, finished: bool) -> Progress | None:
        """The progress on disk, if there is any."""
        path = self.path(finished)
        if not path.exists():
            return None
        safetensors()
        from safetensors import safe_open

        progress = Progress()
        with safe_open(path, "pt") as file:
            for name, value in json.loads(file.metadata()["history"]).items():
                setattr(progress, name, value)
            for name in file.keys():  # noqa: SIM118  # not a dictionary
                part, _, rest = name.partition(".")
                getattr(progress, part)[rest] = file.get_tensor(name)
        return progress


def optimizer_tensors(optimizer: torch.optim.Optimizer) -> dict[str, Tensor]:
    """State of an optimiser by name: 0.exp_avg, 0.step, ..."""
    states = optimizer.state_dict()["state"]
    return {f"{i}.{name}": value for i, state in states.items() for name, value in state.items()}


def restore_optimizer(optimizer: torch.optim.Optimizer, tensors: Mapping[str, Tensor]) -> None:
    """The reverse."""
    states: dict[int, dict[str, Tensor]] = {}
    for name, value in tensors.items():
        index, _, rest = name.partition(".")
        states.setdefault(int(index), {})[rest] = value
    optimizer.load_state_dict({"state": states, "param_groups": optimizer.state_dict()["param_groups"]})

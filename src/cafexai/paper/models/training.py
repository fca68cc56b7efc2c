"""Training as in the paper: AdamW, rows in their order, seeds; interrupted, it goes on where it stopped."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..._extras import progress as bar
from .checkpoint import Progress, Store, config_key, optimizer_tensors, restore_optimizer, tell_tally

Pair = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Recipe:
    """How to train.

    Args:
        epochs: Passes over the rows.
        batch: Rows per step.
        lr: The learning rate.
        loss: "cross_entropy", "bce" (one logit) or "mse".
        seed: Decides the order of the rows and dropout.
        shuffle: Draw a new order for every epoch.
        best: Keep the epoch that is best on validation instead of the last one.
        weight_decay: The weight decay of AdamW.
    """

    epochs: int
    batch: int = 256
    lr: float = 1e-3
    loss: str = "cross_entropy"
    seed: int = 42
    shuffle: bool = False
    best: bool = False
    weight_decay: float = 0.01

    def __post_init__(self) -> None:
        if self.loss not in LOSSES or self.epochs < 1 or self.batch < 1 or not self.lr > 0:
            raise ValueError(f"{self}: epochs, batch and lr must be above 0. Allowed values of loss: {', '.join(LOSSES)}.")


@dataclass(frozen=True)
class Training:
    """A trained model and its history.

    Args:
        model: The model, in eval mode.
        losses: One loss per epoch.
        validation: One loss on validation per epoch.
        epoch: The epoch that was kept.
        key: The name on disk.
        recipe: How it was trained.
    """

    model: nn.Module
    losses: tuple[float, ...]
    validation: tuple[float, ...]
    epoch: int
    key: str
    recipe: Recipe


class Diverged(ArithmeticError):
    """The loss became infinite, not a number, or far larger than at the start."""


def _bce(output: Tensor, y: Tensor) -> Tensor:
    return F.binary_cross_entropy_with_logits(output.reshape(y.shape), y.to(output.dtype))


def _mse(output: Tensor, y: Tensor) -> Tensor:
    return F.mse_loss(output, y.reshape(output.shape))  # (rows,) and (rows, 1) would broadcast to a square


LOSSES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"cross_entropy": F.cross_entropy, "bce": _bce, "mse": _mse}
WORSE = 1e3  # an epoch so many times worse than the untrained model is a divergence
PAUSE = 1.0  # seconds between two checkpoints, so that short epochs are not spent on writing


def train(
    model: nn.Module,
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    *,
    validation: Pair | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> Training:
    """Train the model in place.

    With a ``folder``, the result is kept there under a hash of settings, model and data. The same call then loads it. An
    interrupted one continues from its last checkpoint to the same final weights. One in another process waits for this one.

    Args:
        model: The model.
        x: Inputs, (rows, ...).
        y: Labels.
        recipe: How to train.
        validation: Inputs and labels for validation.
        folder: Where results and checkpoints are kept; None keeps none.
        progress: Show a progress bar. None shows it on a terminal.

    Returns:
        The model in eval mode, with its history.

    Raises:
        Diverged: The loss became infinite, not a number, or far larger than at the start.

    Example:
        >>> from cafexai.models import Recipe, mlp, train
        >>> x = torch.rand(32, 2)
        >>> train(mlp(2, 4, 1), x, x.sum(1, keepdim=True), Recipe(2, loss="mse"), progress=False).epoch
        2
    """
    _check(model, x, y, recipe, validation)
    config = {"recipe": asdict(recipe), "model": type(model).__name__}
    data = (x, y, *(validation or ()))
    store = None if folder is None else Store(Path(folder), config_key(config, [model], data), config)

    def epochs(state: Progress) -> Iterator[None]:
        optimizer = adamw(model.parameters(), recipe)
        if state.epoch:
            model.load_state_dict(state.model)
            restore_optimizer(optimizer, state.optimizer)
        return _epochs(model, optimizer, x, y, recipe, validation, state)

    return _finish(model, train_once(epochs, recipe, store, progress), recipe, store)


def train_once(
    epochs: Callable[[Progress], Iterator[None]], recipe: Recipe, store: Store | None, progress: bool | None, networks: int = 1
) -> Progress:
    """A finished training from disk, or else one that is begun or continued; another process at the same is waited for."""
    if store is None:
        return _run(epochs, Progress(), recipe, None, progress)
    done = store.load(finished=True)
    if done is None:
        with store.alone():
            done = store.load(finished=True)
            if done is None:
                done = _run(epochs, store.load(finished=False) or Progress(), recipe, store, progress)
                tell_tally("trained", networks)
                return done
    tell_tally("found", networks)
    return done


def _run(
    epochs: Callable[[Progress], Iterator[None]], state: Progress, recipe: Recipe, store: Store | None, progress: bool | None
) -> Progress:
    """Go through the epochs with a bar and checkpoints; the weights to keep are in ``model`` of what is returned."""
    saved = time.monotonic()
    for _ in bar(epochs(state), "training", "epoch", progress, total=recipe.epochs, start=state.epoch):
        if store is not None and time.monotonic() - saved > PAUSE and state.epoch < recipe.epochs:
            store.save(state, finished=False)
            saved = time.monotonic()
    if recipe.best:
        state.model = state.best
    if store is not None:
        store.save(state, finished=True)
    return state


def _epochs(
    model: nn.Module, optimizer: Any, x: Tensor, y: Tensor, recipe: Recipe, validation: Pair | None, state: Progress
) -> Iterator[None]:
    """One step of the iterator is one epoch; ``state`` says where the training stands."""
    loss_of = LOSSES[recipe.loss]
    rows = batches(x, y, recipe)
    with threads(model, recipe.batch), torch.random.fork_rng(devices=[]):
        for epoch in range(state.epoch, recipe.epochs):
            torch.manual_seed(epoch_seed(recipe, epoch))
            model.train()
            total = 0.0
            for inputs, labels in rows(epoch):
                optimizer.zero_grad()
                loss = loss_of(model(inputs), labels)
                loss.backward()
                optimizer.step()
                value = loss.item()
                watch([value], epoch, recipe, state)
                total += value * len(inputs)
            state.losses.append(total / len(x))
            state.epoch = epoch + 1
            state.model = dict(model.state_dict())
            state.optimizer = optimizer_tensors(optimizer)
            if validation is not None:
                value = evaluate(model, *validation, recipe.loss)
                if not state.validation or value < min(state.validation):
                    state.best_epoch = epoch + 1
                    state.best = {name: tensor.clone() for name, tensor in model.state_dict().items()}
                state.validation.append(value)
            yield


def evaluate(model: nn.Module, x: Tensor, y: Tensor, loss: str = "cross_entropy") -> float:
    """The loss over all rows, in eval mode.

    Args:
        model: The model.
        x: Inputs, (rows, ...).
        y: Labels.
        loss: "cross_entropy", "bce" or "mse".

    Returns:
        The mean loss.

    Example:
        >>> import torch
        >>> from cafexai import models
        >>> models.evaluate(torch.nn.Linear(2, 2), torch.rand(8, 2), torch.randint(0, 2, (8,))) > 0
        True
    """
    model.eval()
    with torch.no_grad():
        parts = zip(x.split(4096), y.split(4096), strict=True)
        return sum(LOSSES[loss](model(a), b).item() * len(a) for a, b in parts) / len(x)


def batches(x: Tensor, y: Tensor, recipe: Recipe, dim: int = 0) -> Callable[[int], list[Pair]]:
    """The batches of an epoch: the rows in their order, or in the order of the seed and the epoch."""

    def cut(a: Tensor, b: Tensor) -> list[Pair]:
        pairs = zip(a.split(recipe.batch, dim), b.split(recipe.batch, dim), strict=True)
        return [(inputs.contiguous(), labels.contiguous()) for inputs, labels in pairs]

    def shuffled(epoch: int) -> list[Pair]:
        order = torch.randperm(x.shape[dim], generator=torch.Generator().manual_seed(epoch_seed(recipe, epoch)))
        return cut(x.index_select(dim, order.to(x.device)), y.index_select(dim, order.to(y.device)))

    if recipe.shuffle:
        return shuffled
    ordered = cut(x, y)
    return lambda epoch: ordered


def epoch_seed(recipe: Recipe, epoch: int) -> int:
    """Every epoch starts from its own seed, so that a resumed training draws what an uninterrupted one does."""
    return recipe.seed * 1_000_003 + epoch


def watch(values: list[float], epoch: int, recipe: Recipe, state: Progress) -> None:
    """Stop at once when a loss is lost: compared with the first loss of each network, that of the first batch."""
    if not state.first:
        state.first = list(values)
    for member, (value, start) in enumerate(zip(values, state.first, strict=True)):
        if not value <= WORSE * max(start, 1e-3):  # also when either is not a number
            which = f" of network {member}" if len(values) > 1 else ""
            raise Diverged(
                f"{recipe}: the loss{which} is {value:.3g} in epoch {epoch + 1}, it was {start:.3g} at first. Lower lr, scale "
                "the inputs, or look for values that are not finite in them."
            )


def adamw(parameters: Iterable[Any], recipe: Recipe) -> torch.optim.AdamW:
    """AdamW, fused into one kernel where this version of torch has it."""
    parameters = list(parameters)
    try:
        return torch.optim.AdamW(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay, fused=True)
    except RuntimeError:
        return torch.optim.AdamW(parameters, lr=recipe.lr, weight_decay=recipe.weight_decay)


@contextlib.contextmanager
def threads(model: nn.Module, batch: int) -> Iterator[None]:
    """One thread for networks so small that several would only wait for each other."""
    before = torch.get_num_threads()
    convolutional = any(isinstance(module, nn.Conv1d | nn.Conv2d | nn.Conv3d) for module in model.modules())
    if not convolutional and batch * sum(p.numel() for p in model.parameters()) < 3e7:
        torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


def _check(model: nn.Module, x: Tensor, y: Tensor, recipe: Recipe, validation: Pair | None) -> None:
    if len(x) != len(y) or len(x) == 0:
        raise ValueError(f"train(model, x, y): {len(x)} rows of x and {len(y)} of y; give one label per row, at least one.")
    dtype = next(model.parameters()).dtype
    if x.is_floating_point() and x.dtype != dtype:
        raise ValueError(f"train(model, x, y): the model is {dtype} and x {x.dtype}; convert one, e.g. dataset.to({dtype}).")
    if recipe.best and validation is None:
        raise ValueError("train(..., Recipe(best=True)): give validation=(x, y) to choose the best epoch by.")


def _finish(model: nn.Module, state: Progress, recipe: Recipe, store: Store | None) -> Training:
    model.load_state_dict(state.model)
    kept = state.best_epoch if recipe.best else recipe.epochs
    key = "" if store is None else store.key
    return Training(model.eval(), tuple(state.losses), tuple(state.validation), kept, key, recipe)

"""Many small networks of one shape, trained as one: each layer is a batched matrix product over all networks.

The networks never meet, and AdamW works number by number, so each gets the weights that ``train`` would give it, up to
rounding. The gradients are written out, because for such small products autograd would cost more than the arithmetic;
``benchmarks/group_training.py`` measures it.
"""

from __future__ import annotations

import itertools
import math
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .checkpoint import Progress, Store, config_key
from .training import Pair, Recipe, Training, batches, threads, train_once, watch


def train_group(
    models: Sequence[nn.Module],
    x: Tensor,
    y: Tensor,
    recipe: Recipe,
    *,
    validation: Pair | None = None,
    folder: str | os.PathLike[str] | None = None,
    progress: bool | None = None,
) -> list[Training]:
    """``train`` for many perceptrons of one shape (Linear with ReLU or GELU between) at once.

    Args:
        models: The networks.
        x: Inputs: (networks, rows, ...), a set for each network, or (rows, ...) for all.
        y: Labels, likewise.
        recipe: How to train.
        validation: Inputs and labels for validation.
        folder: See ``train``.
        progress: See ``train``.

    Returns:
        One training per network.

    Raises:
        Diverged: The loss of a network became infinite, not a number, or far larger than at the start.
    """
    plan = _plan(models)
    x, y = _stack(models, x, y, plan.widths[0])
    validation = None if validation is None else _stack(models, *validation, plan.widths[0])
    if recipe.best and validation is None:
        raise ValueError("train_group(..., Recipe(best=True)): give validation=(x, y) to choose the best epochs by.")
    config = {"recipe": asdict(recipe), "model": f"{len(models)} networks"}
    data = (x, y, *(validation or ()))
    store = None if folder is None else Store(Path(folder), config_key(config, models, data), config)

    def epochs(state: Progress) -> Iterator[None]:
        return _epochs(models, plan, x, y, recipe, validation, state)

    return _finish(models, plan, train_once(epochs, recipe, store, progress, len(models)), recipe, store)


# A function that writes its values, and its slope times what comes from above; both know the sum before the activation.
Activation = tuple[Callable[[Tensor, Tensor], object], Callable[[Tensor, Tensor], Tensor]]
ACTIVATIONS: dict[type[nn.Module], Activation] = {
    nn.ReLU: (
        lambda sums, out: torch.clamp_min(sums, 0, out=out),
        lambda slope, sums: torch.ops.aten.threshold_backward(slope, sums, 0),
    ),
    nn.GELU: (
        lambda sums, out: out.copy_(F.gelu(sums)),  # gelu writes no strided out
        lambda slope, sums: torch.ops.aten.gelu_backward(slope, sums),
    ),
}


@dataclass(frozen=True)
class Plan:
    """Widths, activations after the hidden layers, and the names of the linear layers."""

    widths: tuple[int, ...]
    activations: tuple[Activation, ...]
    names: tuple[str, ...]
    room: dict[tuple[int, int], list[Tensor]] = field(default_factory=dict)


def _plan(models: Sequence[nn.Module]) -> Plan:
    """The common shape of the networks, or an error that names the one that differs."""
    if not models:
        raise ValueError("train_group([]): give at least one network.")
    first = models[0]
    layers = list(first) if isinstance(first, nn.Sequential) else []
    linear: list[Any] = layers[::2]
    between = layers[1::2]
    known = all(type(layer) in ACTIVATIONS and getattr(layer, "approximate", "none") == "none" for layer in between)
    whole = all(isinstance(layer, nn.Linear) and layer.bias is not None for layer in linear)
    if not layers or len(layers) % 2 == 0 or not known or not whole:
        raise ValueError(
            f"train_group: {first} is not a plain perceptron, an nn.Sequential of Linear layers with biases and ReLU or GELU "
            "between them; train such networks one by one with train()."
        )
    for i, model in enumerate(models):
        if repr(model) != repr(first):
            raise ValueError(f"train_group: network {i} is {model}, network 0 is {first}; all must have one shape.")
    widths = (linear[0].in_features, *(layer.out_features for layer in linear))
    names = tuple(str(2 * i) for i in range(len(linear)))
    return Plan(widths, tuple(ACTIVATIONS[type(layer)] for layer in between), names)


def _stack(models: Sequence[nn.Module], x: Tensor, y: Tensor, inputs: int) -> Pair:
    """(networks, rows, inputs) and the labels beside them."""
    if x.ndim == 2:
        x = x.expand(len(models), *x.shape)
        y = y.expand(len(models), *y.shape)
    dtype = next(models[0].parameters()).dtype
    if x.ndim != 3 or x.shape[0] != len(models) or x.shape[2] != inputs or x.shape[:2] != y.shape[:2] or x.dtype != dtype:
        raise ValueError(
            f"train_group: x is {tuple(x.shape)} of {x.dtype}, y {tuple(y.shape)}; expected ({len(models)}, rows, {inputs}) or "
            f"(rows, {inputs}) of {dtype}, and labels for the same networks and rows."
        )
    return x, y


class _Flat:
    """All parameters in one vector, so that the optimiser has few kernels to start, and a view of it for each layer.

    A view is (networks, out, in + 1): the bias is the last column, and every input ends with a row of ones.
    """

    def __init__(self, plan: Plan, members: int, like: Tensor) -> None:
        shapes = [(members, b, a + 1) for a, b in itertools.pairwise(plan.widths)]
        sizes = [torch.Size(shape).numel() for shape in shapes]
        self.vector = torch.zeros(sum(sizes), dtype=like.dtype, device=like.device)
        self.layers = [part.view(shape) for part, shape in zip(self.vector.split(sizes), shapes, strict=True)]


def _epochs(
    models: Sequence[nn.Module], plan: Plan, x: Tensor, y: Tensor, recipe: Recipe, validation: Pair | None, state: Progress
) -> Iterator[None]:
    """One step of the iterator is one epoch of all networks."""
    like = next(models[0].parameters())
    weights, gradients, best, mean, square = (_Flat(plan, len(models), like) for _ in range(5))
    for name, layer in zip(plan.names, weights.layers, strict=True):
        layer[..., :-1] = torch.stack([model.get_parameter(f"{name}.weight").detach() for model in models])
        layer[..., -1] = torch.stack([model.get_parameter(f"{name}.bias").detach() for model in models])
    if state.epoch:
        weights.vector.copy_(state.model["flat"])
        best.vector.copy_(state.best.get("flat", weights.vector))
        mean.vector.copy_(state.optimizer["mean"])
        square.vector.copy_(state.optimizer["square"])
    state.model, state.best = {"flat": weights.vector}, {"flat": best.vector}
    state.optimizer = {"mean": mean.vector, "square": square.vector}
    rows = batches(_columns(x), y.transpose(1, -1), recipe, dim=-1)
    checked = None if validation is None else (_columns(validation[0]), validation[1].transpose(1, -1))
    steps = state.epoch * math.ceil(x.shape[1] / recipe.batch)
    with threads(models[0], recipe.batch), torch.no_grad():
        for epoch in range(state.epoch, recipe.epochs):
            total = torch.zeros(len(models), dtype=like.dtype, device=like.device)
            for inputs, labels in rows(epoch):
                loss = _step(plan, weights, gradients, inputs, labels, recipe.loss)
                steps += 1
                _adamw(weights.vector, gradients.vector, mean.vector, square.vector, steps, recipe)
                total += loss * inputs.shape[2]
                if not state.first:
                    watch(loss.tolist(), epoch, recipe, state)
            losses = (total / x.shape[1]).tolist()
            watch(losses, epoch, recipe, state)
            state.losses.append(losses)
            state.epoch = epoch + 1
            if checked is not None:
                _keep_best(plan, weights, best, checked, recipe, state)
            yield


def _columns(x: Tensor) -> Tensor:
    """(networks, rows, inputs) to (networks, inputs + 1, rows), the last row being ones: products are fastest so."""
    return F.pad(x.transpose(1, 2), (0, 0, 0, 1), value=1.0)


def _forward(plan: Plan, layers: list[Tensor], x: Tensor) -> tuple[Tensor, list[Tensor], list[Tensor]]:
    """Outputs, what went into each layer, and the sums before each activation."""
    inputs, sums = [x, *_hidden_buffers(plan, x)], []
    for i, (function, _) in enumerate(plan.activations):
        sums.append(torch.bmm(layers[i], inputs[i]))
        function(sums[i], inputs[i + 1][:, :-1])
    return torch.bmm(layers[-1], inputs[-1]), inputs, sums


def _hidden_buffers(plan: Plan, x: Tensor) -> list[Tensor]:
    """Room for what enters the layers after the first, with its row of ones; made once for each number of rows."""
    key = (len(x), x.shape[2])
    if key not in plan.room:
        plan.room[key] = [x.new_ones(len(x), width + 1, x.shape[2]) for width in plan.widths[1:-1]]
    return plan.room[key]


def _step(plan: Plan, weights: _Flat, gradients: _Flat, x: Tensor, y: Tensor, kind: str) -> Tensor:
    """Loss of each network on one batch; its gradients are written into ``gradients``."""
    output, inputs, sums = _forward(plan, weights.layers, x)
    loss, slope = _loss(output, y, kind)
    for i in reversed(range(len(weights.layers))):
        torch.bmm(slope, inputs[i].transpose(1, 2), out=gradients.layers[i])
        if i:
            slope = torch.bmm(weights.layers[i][..., :-1].transpose(1, 2), slope)
            slope = plan.activations[i - 1][1](slope, sums[i - 1])
    return loss


def _adamw(weights: Tensor, gradients: Tensor, mean: Tensor, square: Tensor, step: int, recipe: Recipe) -> None:
    """One step of AdamW with torch's defaults (Loshchilov and Hutter 2019)."""
    weights.mul_(1 - recipe.lr * recipe.weight_decay)
    mean.lerp_(gradients, 1 - 0.9)
    square.mul_(0.999).addcmul_(gradients, gradients, value=1 - 0.999)
    size = square.sqrt().div_(math.sqrt(1 - 0.999**step)).add_(1e-8)
    weights.addcdiv_(mean, size, value=-recipe.lr / (1 - 0.9**step))


def _loss(output: Tensor, y: Tensor, kind: str) -> Pair:
    """Mean loss of each network over its rows, and its slope at the outputs, (networks, outputs, rows)."""
    rows = output.shape[2]
    if kind == "mse":
        gap = output - y.reshape(output.shape)
        return gap.square().mean((1, 2)), gap * (2 / (rows * output.shape[1]))
    if kind == "bce":
        target = y.reshape(output.shape).to(output.dtype)
        loss = F.binary_cross_entropy_with_logits(output, target, reduction="none")
        return loss.mean((1, 2)), (output.sigmoid() - target) / rows
    likelihood, chosen = output.log_softmax(1), y[:, None]
    slope = likelihood.exp().scatter_add(1, chosen, torch.full_like(chosen, -1, dtype=output.dtype))
    return -likelihood.gather(1, chosen).mean((1, 2)), slope / rows


def _keep_best(plan: Plan, weights: _Flat, best: _Flat, validation: Pair, recipe: Recipe, state: Progress) -> None:
    """Copy the weights of every network that has never been as good on validation."""
    values = _loss(_forward(plan, weights.layers, validation[0])[0], validation[1], recipe.loss)[0].tolist()
    lowest = [min(column) for column in zip(*state.validation, strict=True)] or [math.inf] * len(values)
    better = [value < low for value, low in zip(values, lowest, strict=True)]
    for kept, now in zip(best.layers, weights.layers, strict=True):
        kept[better] = now[better]
    before = state.best_epoch or [0] * len(values)
    state.best_epoch = [state.epoch if new else old for new, old in zip(better, before, strict=True)]
    state.validation.append(values)


def _finish(models: Sequence[nn.Module], plan: Plan, state: Progress, recipe: Recipe, store: Store | None) -> list[Training]:
    flat = _Flat(plan, len(models), next(models[0].parameters()))
    flat.vector.copy_(state.model["flat"])
    results = []
    for i, model in enumerate(models):
        values: dict[str, Any] = {}
        for name, layer in zip(plan.names, flat.layers, strict=True):
            values |= {f"{name}.weight": layer[i, :, :-1], f"{name}.bias": layer[i, :, -1]}
        model.load_state_dict(values)
        losses, validation = (tuple(row[i] for row in rows) for rows in (state.losses, state.validation))
        kept = state.best_epoch[i] if recipe.best else recipe.epochs
        results.append(Training(model.eval(), losses, validation, kept, "" if store is None else store.key, recipe))
    return results

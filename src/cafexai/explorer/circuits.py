"""Hidden units in which inputs cancel, with what these are: real circuits of the model, for one row."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from .._carriers.path import PathScores
from .._core.run import Run, Settings
from .._engine.model import Subject
from .._engine.module_paths import module_paths
from .._engine.output import select_output
from .._inputs.background import Background
from .._inputs.convert import convert_inputs
from ..conflicts.find_units import LocalLayer, Recorder
from ..explanation import Explanation
from ..plotting.row_lines import number
from .requests import Choice, Refused
from .rows import Edits
from .session import Session

UNITS, INPUTS = 6, 6  # that are shown
LARGEST = 4_000_000  # units times places of a layer that is looked at


@dataclass(frozen=True)
class Held:
    """One layer: what pushes its units up and down, and what each of them counts for the output. All (places, units)."""

    layer: LocalLayer
    up: Tensor
    down: Tensor
    effect: Tensor  # of the output, for one more of what the unit passes on
    width: int = 0  # of a map of places, if they are one

    @property
    def cancelled(self) -> Tensor:
        """What cancels among the inputs of each unit, as much as it counts for the output."""
        return torch.minimum(self.up, self.down) * self.effect.abs()


def units_view(session: Session, place: int, choice: Choice, edits: Edits) -> dict[str, Any]:
    """Layers by the influence that cancelled in their units, and the units that hold most of it, with their inputs."""
    aimed = session.fix_target(place, choice)
    e = session.explain([place], aimed, edits) if edits else session.of_row(place, choice)
    try:
        held, against = _find_held(session, e, place, aimed, edits)
    except (ValueError, TypeError, RuntimeError, AttributeError) as error:
        return {"layers": [], "units": [], "refused": f"The layers of this model cannot be taken apart: {error}"}
    layers = [
        {
            "name": one.layer.name,
            "cancelled": (total := one.cancelled.sum().item()),
            "told": number(total),
            "units": one.up.numel(),
        }
        for one in held
    ]
    found = []
    for order, one in enumerate(held):
        sizes = one.cancelled.flatten()
        for unit in sizes.topk(min(UNITS, len(sizes))).indices.tolist():
            found.append((sizes[unit].item(), order, *divmod(unit, one.up.shape[1])))
    found.sort(key=lambda entry: -entry[0])
    names = _feature_names(session, place, edits)
    units = [_unit(held, order, at, unit, names) for size, order, at, unit in found[:UNITS] if size > 0]
    return {"target": e.target_name(), "against": against, "layers": layers, "units": units}


def _unit(held: list[Held], order: int, at: int, unit: int, names: list[str]) -> dict[str, Any]:
    one, several = held[order], len(held[order].up) > 1
    layer = one.layer
    assert layer.reference is not None
    parts = layer.weight[unit] * (layer.inputs[at] - layer.reference[at])
    value = (layer.weight[unit] * layer.inputs[at]).sum() + layer.bias[unit]
    if order == 0 and len(names) == len(parts):
        inputs = names
    else:
        before = held[order - 1].layer.name if order and held[order - 1].up.shape[1] == len(parts) else ""
        inputs = [f"unit {i} of {before}" if before else f"input {i}" for i in range(len(parts))]
    strongest = [i for i in parts.abs().argsort(descending=True)[:INPUTS].tolist() if parts[i] != 0]
    return {
        "layer": layer.name,
        "unit": str(unit) if not several else f"{unit} at {divmod(at, one.width) if one.width else at}",
        "up": number(one.up[at, unit].item()),
        "down": number(one.down[at, unit].item()),
        "cancelled": number(min(one.up[at, unit].item(), one.down[at, unit].item())),
        "effect": number(one.effect[at, unit].item()),
        "counts": number(one.cancelled[at, unit].item()),
        "value": number(value.item()),
        "active": value.item() > 0 if "relu" in layer.activation else None,
        "activation": layer.activation,
        "inputs": [{"name": inputs[i], "exact": parts[i].item(), "told": number(parts[i].item())} for i in strongest],
    }


def _find_held(session: Session, e: Explanation, place: int, choice: Choice, edits: Edits) -> tuple[list[Held], str]:
    """All layers of units that a forward pass meets, with the slope of the explained output at what each passes on.

    Of several baselines one is taken, whose name is returned, too.
    """
    inputs, baseline = session.apply_edits(place, choice, edits)
    ready = convert_inputs(inputs, None, session.tokenizer, None, None, session.takes_raw)
    if ready.extra is not None:
        raise Refused("it takes further arguments beside its inputs.")
    given = session.prepare_inputs(inputs)
    against = ""
    if isinstance(baseline, Background):
        start, against = session.middle_reference(e, choice)
    else:
        start = session.reference(given, baseline)
    at_row, output = _run(session, given.tensors, True)
    at_start, _ = _run(session, start, False)
    if [layer.name for layer, _ in at_row] != [layer.name for layer, _ in at_start]:
        raise Refused("it takes another way at the baseline.")
    chosen = output[0] if output.ndim == 1 else output[0, choice.target or 0]
    if choice.against is not None:
        chosen = chosen - output[0, choice.against]
    slopes = torch.autograd.grad(chosen, [passed for _, passed in at_row], allow_unused=True)
    found = []
    for (layer, passed), (other, _), slope in zip(at_row, at_start, slopes, strict=True):
        if slope is None or layer.inputs.shape[0] * len(layer.weight) > LARGEST:
            continue
        delta = layer.inputs - other.inputs
        up, down = (_one_way(layer.weight * sign, delta) for sign in (1, -1))
        effect = slope.double().movedim(1, -1) if slope.ndim == 4 else slope.double()
        effect = effect.reshape(-1, len(layer.weight))
        if effect.shape == up.shape and passed is not None:
            kept = LocalLayer(layer.name, layer.inputs, layer.weight, layer.bias, layer.activation, other.inputs)
            found.append(Held(kept, up, down, effect, slope.shape[3] if slope.ndim == 4 else 0))
    return found, against


def _one_way(weight: Tensor, delta: Tensor) -> Tensor:
    """The sum of all inputs that push a unit up."""
    return delta.clamp_min(0) @ weight.clamp_min(0).T + delta.clamp_max(0) @ weight.clamp_max(0).T


class _Passing(Recorder):
    """Remembers also what the activations pass on."""

    def __init__(self, run: Run, biases: bool) -> None:
        super().__init__(run, biases)
        self.passed: list[Tensor] = []

    def __torch_function__(self, func: Callable[..., Any], types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = len(self.layers)
        result = super().__torch_function__(func, types, args, kwargs)
        if len(self.layers) > before:
            self.passed.append(result)
        return result


def _run(session: Session, tensors: tuple[Tensor, ...], biases: bool) -> tuple[list[tuple[LocalLayer, Tensor]], Tensor]:
    """One pass: every layer with what it passed on, and the output; without biases for the reference."""
    subject = Subject(session.cafe.model)
    run = Run(len(tensors[0]), Settings(PathScores))
    recorder = _Passing(run, biases)
    own = tuple(tensor.clone().requires_grad_(tensor.is_floating_point()) for tensor in tensors)
    with torch.enable_grad(), subject.guard_state(), recorder, module_paths(run, subject.names):
        output = select_output(subject.model(*own), session.output)
    return list(zip(recorder.layers, recorder.passed, strict=True)), output


def _feature_names(session: Session, place: int, edits: Edits) -> list[str]:
    given = session.prepare_inputs(session.rows.inputs([place], edits)[0])
    if given.grouping is not None and session.cafe.schema is not None:
        return [
            f"{column.name}={label}" if label else column.name
            for column in session.cafe.schema.columns
            for label in (column.labels if column.kind == "one-hot" else ("",))
        ]
    return list(given.names or [f"x{i}" for i in range(given.tensors[0][0].numel())])

"""Explanations as files: tensors by flat names, the rest as JSON; checked when they are read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from .._core.tolerance import tolerance
from .conflict import from_sides

if TYPE_CHECKING:
    from .explanation import Explanation

BY_NAME = ("bias_by_layer", "cut")  # mappings that hold one tensor per name
LEFT_OUT = (  # where None
    *("display", "sides", "conflict_rank", "conflict_pairs", "final", "model_at_baseline", "class_names"),
    *("probability", "against", "if_missing", "blocks", "lost", "row_names", "baseline_display", "at_baseline"),
    "target_names",
)
BEFORE = "Conflict comes from net scores: the file was written before conflict was measured."
FORMAT, UNCHECKED = 2, 1  # of files; those of version 0.1 have no checksum


def pack(explanation: Explanation) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """The tensors by name, and the rest in a form for JSON."""
    tensors: dict[str, Tensor] = {}
    described: dict[str, Any] = {}
    for name, value in explanation.flat_fields().items():
        if value is None and name in LEFT_OUT:
            continue
        if isinstance(value, Tensor):
            tensors[name] = value
        elif isinstance(value, tuple) and value and isinstance(value[0], Tensor):
            tensors.update({f"{name}.{i}": part for i, part in enumerate(value)})
        elif name in BY_NAME:
            described[name] = list(value)
            tensors.update({f"{name}.{i}": numbers for i, numbers in enumerate(value.values())})
        else:
            described[name] = dict(value) if isinstance(value, Mapping) else value
    return tensors, described


def unpack(kind: type[Explanation], tensors: dict[str, Tensor], described: dict[str, Any], call: str) -> Explanation:
    """The inverse of ``pack``; refused if the values are no explanation."""
    try:
        explanation = kind.of(**_rebuild(dict(tensors), dict(described)))
        wrong = find_fault(explanation)
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
        raise ValueError(f"{call}: what the file holds is no explanation ({error!r}).") from error
    if explanation.conflict_info is None:
        explanation = explanation.replace(notes=(*dict.fromkeys((*explanation.notes, BEFORE)),))
    if wrong:
        raise ValueError(f"{call}: {wrong}. The file is damaged, or was not written by save; explain the rows again.")
    return explanation


def _rebuild(tensors: dict[str, Tensor], described: dict[str, Any]) -> dict[str, Any]:
    """The values by their flat names."""
    values: dict[str, Any] = described
    for entry in BY_NAME:
        names = described.get(entry, ())
        values[entry] = {name: tensors.pop(f"{entry}.{i}") for i, name in enumerate(names)}
    for name in sorted(tensors, key=lambda n: (n.split(".")[0], int(n.split(".")[1]) if "." in n else 0)):
        head = name.split(".")[0]
        values[head] = (*values.get(head, ()), tensors[name]) if "." in name else tensors[name]
    if values["tokens"] is not None:
        values["tokens"] = tuple(tuple(row) for row in values["tokens"])
        if values["settings"].get("grouped") and values.get("feature_names") is not None:
            values["tokens"] = None  # of groups of tokens, which once were kept
    for name in ("feature_names", "frozen", "notes", "class_names", "row_names", "target_names"):
        values[name] = None if values.get(name) is None else tuple(values[name])
    values["categories"] = {name: tuple(words) for name, words in values.get("categories", {}).items()}
    return values


def _is_index_like(against: Tensor, target: Tensor) -> bool:
    """One index per row, or several side by side."""
    rows, dimensions = target.shape
    return against.ndim == 2 and len(against) == rows and against.shape[1] in range(dimensions, 10**6, max(dimensions, 1))


def find_fault(e: Explanation) -> str | None:
    """What contradicts the definition of an explanation: shapes, signs, or sums; None if nothing does."""
    rows, biases = len(e), list(e.bias_by_layer.values())
    per_row = [e.output, e.baseline_output, e.checks.completeness_error]
    fit = e.refinement
    more = (
        (e.checks.model_at_baseline, e.probability)
        if fit is None
        else (e.checks.model_at_baseline, e.probability, fit.combined_error, fit.refined_error)
    )
    per_row += [one for one in more if one is not None]
    per_row += [e.conflict, e.conflict_left]
    scores = [e.parts(part) for part in (e.positive, e.negative, e.combined)]
    about = [*e.parts(e.inputs), *e.parts(e.baselines), e.target]
    extra = [] if fit is None else [e.parts(part) for part in (fit.correction, fit.absent, fit.correction_error)]
    extra += [e.parts(part) for part in (e.if_missing, e.blocks) if part is not None]
    shapes = [[part.shape for part in parts] for parts in (*scores, *extra)]
    if (
        any(one.shape != (rows,) for one in per_row)
        or any(one.shape != (rows, 3) for one in biases)
        or any(one.shape != (rows,) for one in e.checks.cut.values())
        or any(len(part) != rows for part in (*scores[0], *about))
        or shapes != [shapes[0]] * len(shapes)
        or (not e.grouped and shapes[0] != [part.shape for part in e.parts(e.inputs)])
        or len(e.parts(e.inputs)) != len(e.parts(e.baselines))
        or (e.features.display is not None and e.features.display.shape != e.parts(e.positive)[0].shape)
        or any(
            one is not None and one.shape != e.flat(e.positive).shape
            for one in (e.features.baseline_display, e.features.at_baseline)
        )
        or any(names is not None and len(names) != rows for names in (e.row_names, e.target_names))
        or (e.against is not None and not _is_index_like(e.against, e.target))
        or (e.features.names is not None and len(e.features.names) != e.flat(e.positive).shape[1])
        or (e.features.tokens is not None and len(e.features.tokens) != rows)
        or (e.features.tokens is not None and any(len(row) != e.flat(e.positive).shape[1] for row in e.features.tokens))
        or (e.conflict_pairs is not None and len(e.conflict_pairs) != rows)
        or any((part is None) != (e.if_missing is None) for part in (e.blocks, e.checks.lost))
        or (e.checks.lost is not None and e.checks.lost.shape != (rows, 2))
    ):
        return "the shapes of its numbers do not fit each other"
    if e.sides is not None and (e.sides.ndim != 3 or e.sides.shape[::2] != (rows, 4) or not bool(e.sides.isfinite().all())):
        return "its sides are not four numbers for each row and baseline"
    if not all(part.isfinite().all() for part in (*per_row, *biases, *(p for parts in (*scores, *extra) for p in parts))):
        return "some of its numbers are not finite"
    up, down, net = (
        torch.cat([e.flat(parts), *(layer[:, [side]] for layer in biases)], 1).double() for side, parts in enumerate(scores)
    )
    rounding = max(tolerance(part.dtype) for part in (e.output, *scores[2]))
    if bool((up < 0).any() or (down < 0).any()):
        return "some of its positive or negative scores are below 0"
    if bool(((up - down - net).abs() > rounding * (up + down)).any()):
        return "combined is not positive - negative"
    if e.sides is not None:
        sizes, said = from_sides(e.sides), e.sides.abs().amax((1, 2))
        if bool(((sizes.conflict - e.conflict).abs() > rounding * said).any()):
            return "its conflict does not follow from its sides"
    missed = net.sum(1) - (e.output - e.baseline_output).double() - e.checks.completeness_error.double()
    size = net.abs().sum(1) + e.output.abs() + e.baseline_output.abs()
    moved = torch.zeros_like(net) if fit is None else e.flat(fit.correction).double()
    if bool((moved.sum(1).abs() > rounding * (moved.abs().sum(1) + size)).any()):
        return "its correction changes the sum of its scores"
    if e.if_missing is not None and not e.frozen:
        apart = e.if_missing_error.abs().amax(1).double()
        if bool((apart > rounding * (e.flat(e.if_missing).abs().sum(1) + size)).any()):
            return "if_missing does not add up to what is lost without each block"
    return "its scores do not add up to its output" if bool((missed.abs() > rounding * size).any()) else None

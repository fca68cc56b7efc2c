"""From the shares of single batches and baselines to one explanation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

import torch
from torch import Tensor

from .._core.backward import Outcome, Passed
from .._core.completeness import too_large
from .._core.tolerance import all_finite
from .._inputs.groups import Grouping, places, values_of_groups
from .._inputs.prepare import Inputs
from .._inputs.words import Words
from ..explanation import Explanation, Tensors
from ..explanation.conflict import NET, ConflictInfo, from_sides
from .output import each_class


@dataclass
class Piece:
    """The explanation of some rows against one baseline."""

    positive: list[Tensor]
    negative: list[Tensor]
    combined: list[Tensor]
    inputs: list[Tensor]
    baselines: list[Tensor]
    bias_by_layer: dict[str, Tensor]
    output: Tensor
    baseline_output: Tensor
    completeness_error: Tensor
    target: Tensor
    output_error: float
    frozen: list[str]
    final: str | None
    notes: tuple[str, ...]
    pairs: Tensor | None = None  # (rows, features + 1, features + 1)
    against: Tensor | None = None  # like target
    probability: Tensor | None = None  # (rows,)
    class_names: tuple[str, ...] | None = None  # of the outputs
    cut: list[Tensor] | None = None  # which elements of the inputs reached what was cut off, if anything may have been
    net_conflict: ConflictInfo | None = None  # from net scores
    sides: Tensor | None = None  # (rows, baselines, 4): r, p, q, y, where the conflict was measured
    evaluations: int = 0  # of the model per row, for that
    measured_notes: tuple[str, ...] = ()  # told if the conflict of all rows was measured
    chain: bool = False  # the model is a plain chain of layers


def pieces(passed: Passed, every_class: bool) -> list[Piece]:
    """The explanation of the target, or of each class: one forward pass serves them all."""
    if not every_class:
        return [_piece(passed)]
    *others, last = each_class(passed)
    return [*(_piece(one, keep=True) for one in others), _piece(last)]


def _piece(passed: Passed, keep: bool = False) -> Piece:
    chosen = passed.chosen
    outcome = passed.run.settings.carrier.outcome(passed, keep)
    if not all(map(all_finite, (*outcome.positive, *outcome.negative))):  # their sums may be finite all the same
        raise too_large(passed.run.settings, chosen.delta.dtype)
    return Piece(
        positive=outcome.positive,
        negative=outcome.negative,
        combined=outcome.net,
        inputs=passed.inputs,
        baselines=passed.baselines,
        bias_by_layer=dict(outcome.biases),
        output=chosen.value,
        baseline_output=torch.zeros_like(chosen.value) if chosen.reference is None else chosen.reference.detach(),
        completeness_error=outcome.lack,
        target=passed.target,
        output_error=passed.output_error,
        frozen=[f"{key.operation} in {key.path or 'the model'} ({n}x)" for key, n in passed.run.frozen.items()],
        final=passed.final,
        notes=passed.notes + outcome.notes,
        pairs=outcome.pairs,
        against=passed.against,
        probability=_probability(passed),
        class_names=passed.class_names,
        cut=_join_cut(passed, outcome),
        chain=passed.run.steps is not None,
    )


def _probability(passed: Passed) -> Tensor | None:
    """Of the explained class, also where another one is subtracted from it."""
    whole = passed.probabilities
    if whole is None:
        return None
    picks = (torch.arange(len(whole), device=whole.device), *passed.target.to(whole.device).unbind(1)[: whole.ndim - 1])
    return whole.detach()[picks].to(passed.chosen.delta.dtype)


def _join_cut(passed: Passed, outcome: Outcome) -> list[Tensor] | None:
    """None if the model neither compares nor detaches values, nor makes integers of them."""
    if not outcome.cut and not any(key.kind in ("comparison", "choice") for key in passed.run.frozen):
        return None
    return outcome.cut or [torch.zeros(x.shape, dtype=torch.bool, device=x.device) for x in passed.inputs]


def average_baselines(parts: list[Piece]) -> Piece:
    """The mean over baselines."""
    first, count = parts[0], len(parts)
    if count == 1:
        return first
    for name in ("positive", "negative", "combined"):
        setattr(first, name, [sum(same) / count for same in zip(*(getattr(p, name) for p in parts), strict=True)])
    first.baselines = [_average_baseline(same) for same in zip(*(p.baselines for p in parts), strict=True)]
    for name in ("baseline_output", "completeness_error"):
        setattr(first, name, sum(getattr(p, name) for p in parts) / count)
    if first.pairs is not None:
        first.pairs = torch.stack([p.pairs for p in parts if p.pairs is not None]).mean(0)
    first.bias_by_layer = {layer: torch.stack([p.bias_by_layer[layer] for p in parts]).mean(0) for layer in first.bias_by_layer}
    if first.net_conflict is not None:
        known = [p.net_conflict for p in parts if p.net_conflict is not None]
        first.net_conflict = ConflictInfo(
            torch.stack([one.conflict for one in known]).mean(0), torch.stack([one.left for one in known]).mean(0)
        )
    sides = [p.sides for p in parts if p.sides is not None]
    first.sides = torch.cat(sides, 1) if len(sides) == count else None
    first.evaluations = max(p.evaluations for p in parts)
    first.notes = tuple(dict.fromkeys(note for p in parts for note in p.notes))
    first.output_error = max(p.output_error for p in parts)
    if first.cut is not None:
        first.cut = [torch.stack(same).any(0) for same in zip(*(p.cut or first.cut for p in parts), strict=True)]
    return first


def _average_baseline(same: tuple[Tensor, ...]) -> Tensor:
    """The mean of several baselines of one input; of codes the most frequent one."""
    return sum(same[1:], same[0]) / len(same) if same[0].is_floating_point() else torch.stack(same).mode(0).values


def join_batches(parts: list[Piece], given: Inputs, settings: dict[str, Any]) -> Explanation:
    """The batches of rows one below the other; they are given up one by one, so that nothing large is there twice."""
    single = not given.is_tuple or settings["layer"] is not None

    def joined(name: str) -> Tensors:
        columns = tuple([torch.cat(column) for column in zip(*map(attrgetter(name), parts), strict=True)])
        for p in parts:
            setattr(p, name, [])
        return columns[0] if single else columns

    def column(name: str) -> Tensor:
        return torch.cat(list(map(attrgetter(name), parts)))

    layers = dict.fromkeys(layer for p in parts for layer in p.bias_by_layer)
    frozen = tuple(dict.fromkeys(line for p in parts for line in p.frozen))
    nothing = [p.output.new_zeros(p.output.shape[0], 3) for p in parts]
    return Explanation.of(
        positive=joined("positive"),
        negative=joined("negative"),
        combined=joined("combined"),
        bias_by_layer={
            layer: torch.cat([p.bias_by_layer.get(layer, zero) for p, zero in zip(parts, nothing, strict=True)])
            for layer in layers
        },
        output=column("output"),
        baseline_output=column("baseline_output"),
        model_at_baseline=None if frozen or settings["biases"] == "scores" else column("baseline_output"),
        completeness_error=column("completeness_error"),
        output_error=max(p.output_error for p in parts),
        target=column("target"),
        against=None if parts[0].against is None else column("against"),
        probability=None if parts[0].probability is None else column("probability"),
        class_names=parts[0].class_names,
        conflict_info=_conflict_info(parts),
        inputs=joined("inputs"),
        baselines=joined("baselines"),
        feature_names=given.names if settings["layer"] is None else None,
        tokens=given.tokens if settings["layer"] is None else None,
        display=given.display if settings["layer"] is None and given.grouping is None else None,
        categories=given.categories if settings["layer"] is None and given.grouping is None else {},
        baseline_display=given.baseline_values if settings["layer"] is None and given.grouping is None else None,
        row_names=given.row_names,
        conflict_pairs=None if parts[0].pairs is None else column("pairs"),
        frozen=frozen,
        final=parts[0].final,
        notes=tuple(dict.fromkeys((*(note for p in parts for note in p.notes), *_measured_notes(parts, settings)))),
        settings=settings,
    )


def _measured_notes(parts: list[Piece], settings: dict[str, Any]) -> tuple[str, ...]:
    """How the conflict was measured, if it was in every part."""
    if any(p.sides is None for p in parts):
        return ()
    each = "per row and baseline" if settings["baselines"] > 1 else "per row"
    count = max(p.evaluations for p in parts)
    return (f"Conflict is measured: {count} more evaluations of the model {each}.", *parts[0].measured_notes)


def _conflict_info(parts: list[Piece]) -> ConflictInfo | None:
    """The conflict of all rows: measured if it is in every part."""
    sides = [p.sides for p in parts if p.sides is not None]
    if len(sides) == len(parts):
        return from_sides(torch.cat(sides))
    known = [p.net_conflict for p in parts if p.net_conflict is not None]
    if len(known) < len(parts):
        return None
    return ConflictInfo(torch.cat([one.conflict for one in known]), torch.cat([one.left for one in known]), NET)


def sum_groups(explanation: Explanation, groups: Any) -> Explanation:
    """The explanation with (rows, groups) scores: positive and negative are summed separately, so both stay complete.

    ``{"sex": [3, 4]}`` (indices or names; other features stay alone), or integer masks shaped like one row, or one per row.
    """
    parts = explanation.parts(explanation.positive)
    index, names = places(groups, [part.shape[1:] for part in parts], explanation.names)
    known = explanation.features.baseline_display
    if isinstance(groups, Grouping):
        values, categories, known = groups.values, groups.categories, groups.baselines
    else:
        shown = None if explanation.features.tokens is not None else explanation.flat(explanation.shown)
        own, words = explanation.names(), explanation.features.categories
        values, categories = values_of_groups(index, names, own, shown, words)
        if known is None and shown is not None and explanation.features.display is None:
            known = explanation.flat(explanation.baselines)
        known, _ = values_of_groups(index, names, own, known, words)
    index = index.to(explanation.output.device)

    def summed(scores: Tensors) -> Tensor:
        flat = explanation.flat(scores)
        return _add_up(flat, index, len(names))

    return explanation.replace(
        **_sums(explanation, summed),
        feature_names=names,
        tokens=None,
        display=values,
        categories=categories,
        baseline_display=known,
        at_baseline=_whole_groups(explanation.at_baseline, index, len(names)),
        settings={**explanation.meta.settings, "grouped": True},
    )


def _whole_groups(same: Tensor | None, index: Tensor, count: int) -> Tensor | None:
    """Which groups are as in the baseline in all of their elements."""
    if same is None:
        return None
    return _add_up((~same).int(), index, count) == 0


def _add_up(flat: Tensor, index: Tensor, count: int) -> Tensor:
    """(rows, elements) summed by group; ``index`` is (elements,), or (rows, elements) where rows differ."""
    sums = flat.new_zeros(len(flat), count)
    return sums.index_add_(1, index, flat) if index.ndim == 1 else sums.scatter_add_(1, index, flat)


def _sums(explanation: Explanation, summed: Callable[[Tensors], Tensor]) -> dict[str, Tensor]:
    """All scores, summed; the elements of a feature are in one block."""
    scores = {name: getattr(explanation, name) for name in ("positive", "negative", "combined", "if_missing")}
    sums = {name: summed(values) for name, values in scores.items() if values is not None}
    if explanation.blocks is not None:
        inside = explanation.parts(explanation.blocks)
        sums["blocks"] = summed(tuple(part.to(explanation.output) for part in inside)) > 0
    return sums


def by_word(explanation: Explanation, words: Words) -> Explanation:
    """The explanation with (rows, words) scores: those of the tokens of a word summed, positive and negative separately."""
    index = words.index.to(explanation.output.device)
    rows, count = len(index), len(words.names[0])

    def summed(scores: Tensors) -> Tensor:
        flat = explanation.flat(scores)
        return _add_up(flat, index, count)

    pairs = explanation.conflict_pairs
    if pairs is not None:  # of the biases, which come last, there is one
        last = torch.cat([index, torch.full_like(index[:, :1], count)], 1)
        ups = pairs.new_zeros(rows, count + 1, pairs.shape[2]).scatter_add_(1, last[:, :, None].expand_as(pairs), pairs)
        pairs = ups.new_zeros(rows, count + 1, count + 1).scatter_add_(2, last[:, None].expand_as(ups), ups)
    return explanation.replace(
        **_sums(explanation, summed),
        tokens=words.names,
        conflict_pairs=pairs,
        at_baseline=None,
        settings={**explanation.meta.settings, "grouped": True},
    )

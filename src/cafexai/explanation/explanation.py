"""The result: plain detached tensors that add up to the output."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from torch import Tensor

from .._files import read_file, write_file
from .._inputs.groups import is_index
from ..errors import warn
from .conflict import ConflictFields, ConflictInfo
from .features import FeatureFields
from .files import FORMAT, UNCHECKED, pack, unpack
from .parts import KINDS, PLACES, Checks, FeatureInfo, Meta, Refinement, Tensors
from .views import Views

REQUIRED = ("checks", "features", "meta")  # parts that every explanation has
NAMES = ("row_names", "target_names")  # one name per row
PER_ROW = ("bias_by_layer", "cut")  # mappings that hold one tensor per name


@dataclass(frozen=True)
class Explanation(ConflictFields, FeatureFields, Views):
    """Scores of one output for each row: ``baseline_output + bias + sum of combined = output``. ``CAFE.explain`` makes it.

    Args:
        positive: What pushed the output up, >= 0: shaped like the explained input (a tuple for several), or (rows, groups)
            with feature groups.
        negative: What pushed the output down, >= 0, of the same shape.
        combined: positive - negative; also as ``net``.
        bias_by_layer: Layer -> (rows, 3): positive, negative and net score of its constants.
        output: The explained output, (rows,).
        baseline_output: The output at the baseline (computed without biases if biases have scores of their own), (rows,).
        target: Which output is explained, (rows, dimensions of the output).
        inputs: The explained inputs.
        baselines: What they are compared with.
        checks: How exactly the scores sum to the output.
        features: Names, values and categories of the features.
        meta: How the explanation was made.
        refinement: Corrections, with ``CAFE.refine``.
        against: The output that was subtracted, like target, with ``explain(..., against=...)``.
        probability: The probability of the explained class, (rows,), if the scores sum to its logit.
        conflict_info: The conflict of every row; None if ``conflict`` is computed from net scores.
        if_missing: The share of each feature in what is lost without its block, like combined, with
            ``CAFE.explain_blocks``.
        blocks: True for features in the first block, like combined, with ``CAFE.explain_blocks``.
        conflict_pairs: (rows, features + 1, features + 1): up, down; with ``explain(..., pairs=True)``.
        row_names: The labels of the rows, as the index of a frame has them.
        target_names: What is explained in each row in words, for outputs that are tokens.
        job: What was asked, for ``CAFE.refine``; it is not saved and holds no model.

    Example:
        >>> import torch
        >>> from cafexai import CAFE
        >>> e = CAFE(torch.nn.Linear(2, 1)).explain(torch.ones(3, 2))
        >>> bool(torch.isclose(e.baseline_output + e.bias + e.combined.sum(1), e.output).all())
        True
    """

    positive: Tensors
    negative: Tensors
    combined: Tensors
    bias_by_layer: Mapping[str, Tensor]
    output: Tensor
    baseline_output: Tensor
    target: Tensor
    inputs: Tensors
    baselines: Tensors
    checks: Checks
    features: FeatureInfo = field(default_factory=FeatureInfo)
    meta: Meta = field(default_factory=Meta)
    refinement: Refinement | None = None
    against: Tensor | None = None
    probability: Tensor | None = None
    conflict_info: ConflictInfo | None = None
    if_missing: Tensors | None = None
    blocks: Tensors | None = None
    conflict_pairs: Tensor | None = None
    row_names: tuple[str, ...] | None = None
    target_names: tuple[str, ...] | None = None
    job: Any = field(default=None, repr=False, compare=False)

    @classmethod
    def of(cls, **values: Any) -> Explanation:
        """Make an explanation from values by their flat names.

        Args:
            **values: Fields of the explanation. Those of ``features``, ``checks``, ``meta`` and ``refinement`` find their
                part.

        Returns:
            The explanation.
        """
        parts: dict[str, dict[str, Any]] = {part: {} for part in REQUIRED}
        for name in [name for name in values if name in PLACES]:
            value, (part, own) = values.pop(name), PLACES[name]
            if part in REQUIRED or value is not None:
                parts.setdefault(part, {})[own] = value
        return cls(**values, **{part: KINDS[part](**own) for part, own in parts.items()})

    def replace(self, **changes: Any) -> Explanation:
        """Another explanation with some values changed.

        Args:
            **changes: New values, by their flat names.

        Returns:
            The changed explanation.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> e.replace(row_names=("ann", "bob"))["bob"].names()
            ('age', 'dose')
        """
        for name in [name for name in changes if name in PLACES]:
            part, own = PLACES[name]
            base = changes.get(part, getattr(self, part))
            changes[part] = dataclasses.replace(base, **{own: changes.pop(name)})
        return dataclasses.replace(self, **changes)

    def __getattr__(self, name: str) -> Any:
        """Attributes of version 0.1, which now are in a part."""
        if name not in PLACES:
            raise AttributeError(f"{type(self).__name__!r} object has no attribute {name!r}")
        part, own = PLACES[name]
        warn(f"explanation.{name} is deprecated and goes in 0.3. Write explanation.{part}.{own} instead.", DeprecationWarning)
        holder = getattr(self, part)
        return None if holder is None else getattr(holder, own)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "job": None}

    def __len__(self) -> int:
        return len(self.output)

    def __repr__(self) -> str:
        shape = tuple(tuple(p.shape) for p in self.parts(self.positive))
        return (
            f"Explanation(rows={len(self)}, scores={shape[0] if len(shape) == 1 else shape}, c={self.meta.settings.get('c')}, "
            f"completeness_error={self.checks.completeness_error.abs().max().item() if len(self) else 0:.2g})"
        )

    def __getitem__(self, rows: int | str | slice | Tensor | np.ndarray | list[int] | list[bool] | list[str]) -> Explanation:
        """The explanation of some rows, by position, slice, positions, a mask, or by their names.

        An integer is always a position, also if the rows have integers as names: ``e["17"]`` is the row that is called 17.
        The row dimension is kept.
        """
        rows = self._places(rows)

        def pick(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value[rows]
            if isinstance(value, tuple) and value and all(isinstance(v, Tensor) for v in value):
                return tuple(v[rows] for v in value)
            return value

        values = {name: pick(value) for name, value in self.flat_fields().items()}
        if self.features.tokens is not None:
            values["tokens"] = tuple(self.features.tokens[place] for place in torch.arange(len(self))[rows].tolist())
        for name in NAMES:
            if values[name] is not None:
                places = range(len(self))[rows] if isinstance(rows, slice) else torch.arange(len(self))[rows].tolist()
                values[name] = tuple(values[name][place] for place in places)
        for name in PER_ROW:
            values[name] = {layer: pick(numbers) for layer, numbers in values[name].items()}
        return Explanation.of(**values, job=None if self.job is None else self.job.take(rows))

    def flat_fields(self) -> dict[str, Any]:
        """All values by their flat names.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> sorted(e.flat_fields())[:3]
            ['against', 'at_baseline', 'baseline_display']
        """
        values = {one.name: getattr(self, one.name) for one in dataclasses.fields(self) if one.name not in (*KINDS, "job")}
        for name, (part, own) in PLACES.items():
            holder = getattr(self, part)
            if holder is not None:
                values[name] = getattr(holder, own)
        return values

    def _places(self, rows: Any) -> slice | Tensor:
        """Rows as tensors take them."""
        if isinstance(rows, slice):
            return rows
        if isinstance(rows, str):
            place = self.position(rows)
            return slice(place, place + 1)
        if is_index(rows):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"explanation[{rows}]: there are {len(self)} rows.")
            return slice(int(rows), int(rows) + 1 or None)
        if isinstance(rows, list) and rows and self.row_names is not None and all(isinstance(row, str) for row in rows):
            return torch.tensor([self.position(row) for row in rows])
        index = torch.zeros(())
        if isinstance(rows, (np.ndarray, Tensor)) or (isinstance(rows, list) and not {bool} < set(map(type, rows))):
            with contextlib.suppress(TypeError, ValueError, RuntimeError):
                index = torch.as_tensor(rows).cpu()
        if index.shape == (0,) or index.dtype == torch.uint8:  # an empty list; bytes would be a mask
            index = index.long()
        if index.ndim != 1 or index.is_floating_point() or (index.dtype == torch.bool and len(index) != len(self)):
            raise TypeError(
                f"explanation[{rows!r}]: it has {len(self)} rows, which are taken by an integer, a slice, a list or tensor of "
                "integers, a mask with true or false for each of them, or names. Scores of features are in e.positive, "
                "e.negative, e.combined and, by name, in e.to_frame()."
            )
        if index.dtype != torch.bool and bool(((index < -len(self)) | (index >= len(self))).any()):
            raise IndexError(f"explanation[{rows!r}]: there are {len(self)} rows.")
        return index

    @staticmethod
    def parts(tensors: Tensors) -> tuple[Tensor, ...]:
        """One tensor per input.

        Args:
            tensors: Scores or values: a tensor, or a tuple for several inputs.

        Returns:
            A tuple.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> [part.shape for part in e.parts(e.positive)]
            [torch.Size([2, 2])]
        """
        return tensors if isinstance(tensors, tuple) else (tensors,)

    def flat(self, tensors: Tensors) -> Tensor:
        """Scores or values of all features of a row side by side.

        Args:
            tensors: Scores or values, such as ``e.positive``.

        Returns:
            (rows, features).

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> e = CAFE(torch.nn.Linear(2, 1)).explain(torch.ones(3, 2))
            >>> e.flat(e.positive).shape
            torch.Size([3, 2])
        """
        return torch.cat([part.reshape(len(self), part.shape[1:].numel()) for part in self.parts(tensors)], 1)

    @property
    def bias_positive(self) -> Tensor:
        """What all constants of the model pushed up. (rows,)"""
        return self._bias(0)

    @property
    def bias_negative(self) -> Tensor:
        """What all constants of the model pushed down. (rows,)"""
        return self._bias(1)

    @property
    def bias(self) -> Tensor:
        """The net share of the constants. (rows,)"""
        return self._bias(2)

    def _bias(self, column: int) -> Tensor:
        return sum((scores[:, column] for scores in self.bias_by_layer.values()), torch.zeros_like(self.output))

    @property
    def net(self) -> Tensors:
        """positive - negative; the same as ``combined``."""
        return self.combined

    @property
    def completeness_error(self) -> Tensor:
        """Sum of all scores minus (output - baseline_output). (rows,)"""
        return self.checks.completeness_error

    @property
    def notes(self) -> tuple[str, ...]:
        """Remarks on how the explanation was made."""
        return self.meta.notes

    @property
    def frozen(self) -> tuple[str, ...]:
        """What was treated as a constant, and where."""
        return self.meta.frozen

    @property
    def class_names(self) -> tuple[str, ...] | None:
        """Names of the outputs."""
        return self.meta.class_names

    @property
    def refined(self) -> Tensors:
        """combined + correction, which sum to the output as well. Shaped like combined.

        Raises:
            ValueError: The explanation was not refined.
        """
        if self.refinement is None:
            raise ValueError("explanation.refined: not computed. Call e = cafe.refine(e, 20) first.")
        pairs = zip(self.parts(self.combined), self.parts(self.refinement.correction), strict=True)
        sums = tuple(net + more for net, more in pairs)
        return sums if isinstance(self.combined, tuple) else sums[0]

    @property
    def if_missing_error(self) -> Tensor:
        """The sum of ``if_missing`` in each of the two blocks minus what the model loses without that block. (rows, 2)

        Raises:
            ValueError: The explanation is not one in blocks.
        """
        if self.if_missing is None or self.blocks is None or self.checks.lost is None:
            raise ValueError("explanation.if_missing_error: not computed. Call cafe.explain_blocks(x) instead of explain.")
        scores, inside = self.flat(self.if_missing), self.flat(self.blocks)
        return torch.stack([(scores * part).sum(1) for part in (inside, ~inside)], 1) - self.checks.lost

    @property
    def frozen_part(self) -> Tensor:
        """The output of the model at the baseline minus ``baseline_output``: the effect of what is frozen. (rows,)

        Raises:
            ValueError: It is not known: biases have scores of their own, or codes have no baseline.
        """
        if self.checks.model_at_baseline is None:
            raise ValueError('frozen_part: not known. It needs biases="reference" and, for codes, a baseline.')
        return self.checks.model_at_baseline - self.baseline_output

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file with all numbers, settings and a checksum; needs safetensors.

        The file is complete or not there at all. A file of this name is replaced; through a symbolic link, the file behind it.

        Args:
            path: The file; its name ends in .safetensors.

        Raises:
            ValueError: The file cannot be written there.

        Example:
            >>> import torch
            >>> from cafexai import CAFE
            >>> model = torch.nn.Linear(2, 1)
            >>> model.weight.data, model.bias.data = torch.tensor([[2.0, -1.0]]), torch.zeros(1)
            >>> e = CAFE(model, feature_names=["age", "dose"]).explain(torch.tensor([[1.0, 2.0], [3.0, 0.0]]))
            >>> e.save("scores.safetensors")
            >>> type(e).load("scores.safetensors").net.equal(e.net)
            True
        """
        tensors, described = pack(self)
        write_file(path, "Explanation", tensors, {"format": FORMAT, **described})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Explanation:
        """Read what ``save`` wrote.

        Args:
            path: The file.

        Returns:
            The explanation.

        Raises:
            ValueError: The file was changed, or shapes, signs or sums are not right.

        Example:
            >>> import torch
            >>> from cafexai import CAFE, Explanation
            >>> CAFE(torch.nn.Linear(2, 1)).explain(torch.ones(3, 2)).save("e.safetensors")
            >>> len(Explanation.load("e.safetensors"))
            3
        """
        return unpack(cls, *read_file(path, "Explanation", FORMAT, UNCHECKED), f"Explanation.load({os.fspath(path)!r})")

"""The result: plain detached tensors that add up to the output."""

from __future__ import annotations

import contextlib
import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ._core.tolerance import tolerance
from ._files import read_file, write_file
from ._inputs.groups import default_names, is_index

if TYPE_CHECKING:
    from pathlib import Path

    import pandas
    from typing_extensions import Unpack

    from .plotting.picture import Picture
    from .reporting import ReportOptions
    from .reporting.text_ledger import Ledger

Tensors = Tensor | tuple[Tensor, ...]
BY_NAME = ("bias_by_layer", "cut")  # fields that hold tensors by name
LEFT_OUT = ("display", "conflict_pairs", "final", "model_at_baseline", "class_names", "probability", "against")  # where None
REFINED = ("correction", "absent", "correction_error", "combined_error", "refined_error")  # there with explain(..., refine=...)
FORMAT, UNCHECKED = 2, 1  # of files; those of version 0.1 have no checksum


@dataclass(frozen=True)
class Explanation:
    """Scores of one output for each row: baseline_output + bias + the sum of combined = output.

    ``positive``, ``negative`` >= 0 and ``combined`` = positive - negative are shaped like the explained input (a tuple
    for several), or (rows, groups) with feature groups.
    """

    positive: Tensors
    negative: Tensors
    combined: Tensors
    bias_by_layer: Mapping[str, Tensor]  # layer -> (rows, 3): positive, negative and net score of its constants
    output: Tensor  # (rows,)
    baseline_output: (
        Tensor  # (rows,): what scores start from: the output at the baseline, of the bias-free model if biases have scores
    )
    completeness_error: Tensor  # (rows,): combined + bias from the ledger - (output - baseline_output)
    output_error: float  # the largest |engine - model(chunk)|, over the chunks of rows; model(x) where there is one
    target: Tensor  # (rows, dimensions of the output)
    inputs: Tensors
    baselines: Tensors
    feature_names: tuple[str, ...] | None = None
    tokens: tuple[tuple[str, ...], ...] | None = None  # for token ids: the words of each row
    display: Tensor | None = None  # the inputs in the units of the user, where a preprocessing step changed them
    categories: Mapping[str, tuple[str, ...]] = field(default_factory=dict)  # feature -> what its codes in ``shown`` mean
    class_names: tuple[str, ...] | None = None  # of the outputs
    probability: Tensor | None = None  # (rows,): of the explained class, where its logit is what the scores add up to
    against: Tensor | None = None  # like target: the output that was subtracted, with explain(..., against=...)
    conflict_pairs: Tensor | None = None  # (rows, features + 1, features + 1): up, down; with explain(..., pairs=True)
    model_at_baseline: Tensor | None = None  # (rows,): with biases="reference", the output of the model itself at the baseline
    correction: Tensors | None = None  # like combined, sum 0: what evaluations at perturbed rows add to combined
    absent: Tensors | None = None  # like combined: for features at their baseline, the change per unit; no part of the sum
    correction_error: Tensors | None = None  # like combined: standard errors of correction and absent
    combined_error: Tensor | None = None  # (rows,): root mean square of what combined misses at the perturbed rows
    refined_error: Tensor | None = None  # (rows,): what refined + absent misses there, held out of the fit
    final: str | None = None  # "sigmoid" or "softmax": the one at the end that was left out, the scores being about its logit
    frozen: tuple[str, ...] = ()  # what was taken as a constant, and where
    cut: Mapping[str, Tensor] = field(
        default_factory=dict
    )  # feature whose influence the model cuts off -> what it does, (rows,)
    notes: tuple[str, ...] = ()
    settings: Mapping[str, Any] = field(default_factory=dict)  # c, netting, layer, version

    def __len__(self) -> int:
        return len(self.output)

    def __repr__(self) -> str:
        shape = tuple(tuple(p.shape) for p in self._each(self.positive))
        return (
            f"Explanation(rows={len(self)}, scores={shape[0] if len(shape) == 1 else shape}, c={self.settings.get('c')}, "
            f"completeness_error={self.completeness_error.abs().max().item() if len(self) else 0:.2g})"
        )

    def __getitem__(self, rows: int | slice | Tensor | np.ndarray | list[int] | list[bool]) -> Explanation:
        """The explanation of some rows, by index, slice, indices or a mask; an integer keeps the row dimension."""
        rows = self._places(rows)

        def pick(value: Any) -> Any:
            if isinstance(value, Tensor):
                return value[rows]
            if isinstance(value, tuple) and value and all(isinstance(v, Tensor) for v in value):
                return tuple(v[rows] for v in value)
            return value

        changed = {f.name: pick(getattr(self, f.name)) for f in dataclasses.fields(self)}
        if self.tokens is not None:
            changed["tokens"] = tuple(self.tokens[place] for place in torch.arange(len(self))[rows].tolist())
        for field_name in BY_NAME:
            changed[field_name] = {name: pick(numbers) for name, numbers in getattr(self, field_name).items()}
        return Explanation(**changed)

    def _places(self, rows: Any) -> slice | Tensor:
        """Rows as tensors take them."""
        if isinstance(rows, slice):
            return rows
        if is_index(rows):
            if not -len(self) <= rows < len(self):
                raise IndexError(f"explanation[{rows}]: there are {len(self)} rows.")
            return slice(int(rows), int(rows) + 1 or None)
        index = torch.zeros(())
        if isinstance(rows, (np.ndarray, Tensor)) or (isinstance(rows, list) and not {bool} < set(map(type, rows))):
            with contextlib.suppress(TypeError, ValueError, RuntimeError):
                index = torch.as_tensor(rows).cpu()
        if index.shape == (0,) or index.dtype == torch.uint8:  # an empty list; bytes would be a mask
            index = index.long()
        if index.ndim != 1 or index.is_floating_point() or (index.dtype == torch.bool and len(index) != len(self)):
            raise TypeError(
                f"explanation[{rows!r}]: it has {len(self)} rows, which are taken by an integer, a slice, a list or tensor of "
                "integers, or a mask with true or false for each of them. Scores of features are in e.positive, e.negative, "
                "e.combined and, by name, in e.to_frame()."
            )
        if index.dtype != torch.bool and bool(((index < -len(self)) | (index >= len(self))).any()):
            raise IndexError(f"explanation[{rows!r}]: there are {len(self)} rows.")
        return index

    @staticmethod
    def _each(tensors: Tensors) -> tuple[Tensor, ...]:
        return tensors if isinstance(tensors, tuple) else (tensors,)

    def _flat(self, tensors: Tensors) -> Tensor:
        """All features of a row side by side."""
        return torch.cat([part.reshape(len(self), part.shape[1:].numel()) for part in self._each(tensors)], 1)

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
    def refined(self) -> Tensors:
        """combined + correction: these, too, add up to the output. Shaped like combined."""
        if self.correction is None:
            raise ValueError("refined: ask for it: explain(..., refine=20).")
        pairs = zip(self._each(self.combined), self._each(self.correction), strict=True)
        sums = tuple(net + more for net, more in pairs)
        return sums if isinstance(self.combined, tuple) else sums[0]

    @property
    def frozen_part(self) -> Tensor:
        """model_at_baseline - baseline_output: what freezing attention and norms at the row has moved the start by. (rows,)"""
        if self.model_at_baseline is None:
            raise ValueError('frozen_part: ask for it: CAFE(model, biases="reference"); codes need a baseline for it.')
        return self.model_at_baseline - self.baseline_output

    @property
    def conflict(self) -> Tensor:
        """s_conf = min(sum of positive, sum of negative) over the features. (rows,)"""
        return torch.minimum(self._flat(self.positive).sum(1), self._flat(self.negative).sum(1))

    def pairs(self, row: int = 0, most: int = 10) -> list[tuple[str, str, float]]:
        """The strongest conflicts between two features, or a feature and the biases: (pushed up, pushed down, amount).

        The amount is what they cancelled of each other over all units, in units of the output (docs/netting.md).
        """
        if self.conflict_pairs is None:
            raise ValueError('pairs(): ask for them: CAFE(model, netting="feature").explain(x, pairs=True).')
        names, amounts = (*self[row].names(), "(bias)"), self[row].conflict_pairs
        assert amounts is not None
        values, order = amounts[0].flatten().sort(descending=True, stable=True)
        found = zip(values[:most].tolist(), order[:most].tolist(), strict=True)
        return [(names[place // len(names)], names[place % len(names)], value) for value, place in found if value > 0]

    @property
    def grouped(self) -> bool:
        """Scores are those of groups of features, which have no single value."""
        return bool(self.settings.get("grouped"))

    @property
    def shown(self) -> Tensors:
        """The values of the features, in the units of the user."""
        return self.inputs if self.display is None else self.display

    def names(self, row: int = 0) -> tuple[str, ...]:
        """A name for every feature; for tokens, the words of one row."""
        if self.tokens is not None:
            return self.tokens[row]
        if self.feature_names is not None:
            return self.feature_names
        return default_names([part.shape[1:] for part in self._each(self.positive)])

    @property
    def kind(self) -> str:
        """What a row is: "text" (words), "image" (channels, height, width), or "table"."""
        if self.tokens is not None:
            return "text"
        parts = self._each(self.positive)
        return "image" if len(parts) == 1 and parts[0].ndim == 4 and min(parts[0].shape[1], parts[0].shape[3]) <= 4 else "table"

    def target_name(self, row: int = 0) -> str:
        """The explained number in words: "output 1", "logit of 'cat' rather than 'dog'", "unit (0, 3) of layer 'head'"."""
        layer, seen_at = self.settings.get("target_layer"), self.settings.get("layer")
        names = self.class_names if layer is None else None
        parts = [self.target] if self.against is None else [self.target, self.against]
        called = [_called(index[row].tolist(), names) for index in parts]
        kind = "unit" if layer is not None else "output" if names is None else "logit"
        words = [kind if names is None else f"{kind} of", " rather than ".join(called)] if called[0] else [kind]
        words += [f"of layer {layer!r}"] * (layer is not None) + [f"seen at layer {seen_at!r}"] * (seen_at is not None)
        return " ".join(words)

    def values(self, row: int = 0) -> list[str | float | None] | None:
        """The value of every feature as people know it: a number, a category, None if it is missing; None for groups."""
        if self.tokens is not None or (self.grouped and self.display is None):
            return None
        found: list[str | float | None] = []
        numbers = self[row]._flat(self[row].shown)[0].tolist()
        for name, number in zip(self.names(row), numbers, strict=True):
            known = self.categories.get(name)
            code = None if number != number else number
            found.append(known[int(number)] if known is not None and code is not None else code)
        return found

    def to_frame(self) -> pandas.DataFrame:
        """A long table: one line per row and feature, and one for the bias; needs pandas."""
        from .adapters.exports import long_table

        return long_table(self)

    def top(self, row: int = 0, most: int = 3) -> pandas.DataFrame:
        """The features with most influence on one row, as a small table; needs pandas."""
        from .adapters.exports import top

        return top(self, row, most)

    def to_shap(self, scores: str = "combined") -> Any:
        """A shap.Explanation of the combined scores; base value = baseline output + bias, so that plots end at the output.

        "positive" and "negative" give what pushed up and down, biases and baseline output in the base values, so that the
        first minus the second is the output. Several inputs stand side by side; pictures have their channels last.
        """
        from .adapters.exports import for_shap

        return for_shap(self, scores)

    def to_shapash(self) -> Any:
        """A compiled SmartExplainer of shapash with the combined scores of a table."""
        from .adapters.exports import for_shapash

        return for_shapash(self)

    def to_explainerdashboard(self, y: Any = None) -> Any:
        """A RegressionExplainer for ExplainerDashboard with the combined scores of a table; ``y`` are the true values."""
        from .adapters.exports import for_explainerdashboard

        return for_explainerdashboard(self, y)

    def ledger(self, row: int = 0, most: int = 12) -> Ledger:
        """One prediction as a table of text: features, bias, conflict, output; a notebook shows a table."""
        from .reporting.text_ledger import ledger

        return ledger(self[row], most)

    def plot(self, row: int = 0, most: int = 12, beside: Any = None) -> Picture:
        """One row as a picture: bars of a table, maps of an image, words of a text; needs matplotlib.

        ``most`` features of a table are shown. ``beside``, for images: scores of another method, or another explanation.
        """
        from .plotting.dispatch import picture_of

        return picture_of(self, row, most, beside)

    def summary(self, most: int = 12) -> Picture:
        """All rows as a picture: mean scores, nets of each row, conflicts, the rows with most of them; needs matplotlib."""
        from .plotting.summary import summary

        return summary(self, most)

    def plot_pairs(self, row: int = 0, most: int = 8) -> Picture:
        """Who fights whom in one row, with explain(..., pairs=True): a heatmap and a network; needs matplotlib."""
        from .plotting.pairs import pairs

        return pairs(self[row], most)

    def plot_biases(self, row: int = 0, most: int = 12) -> Picture:
        """What the constants of each layer did to one row; needs matplotlib."""
        from .plotting.table_plot import biases

        return biases(self[row], most)

    def _repr_html_(self) -> str:
        from .reporting.notebook import explanation_page

        return explanation_page(self)

    def report(self, path: str | os.PathLike[str], **options: Unpack[ReportOptions]) -> Path:
        """Write a report that can be sent: one HTML file for somebody without Python. Options: ``show.report.write_report``."""
        from .reporting import write_report

        return write_report(self, path, **options)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a safetensors file with all numbers, settings and a checksum; needs safetensors.

        It is there as a whole or not at all. A file of this name is replaced, through a symbolic link the file behind it.
        """
        tensors, described = self.packed()
        write_file(path, "Explanation", tensors, {"format": FORMAT, **described})

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Explanation:
        """Read what ``save`` wrote; refused if the file was changed, or if shapes, signs or sums are not right."""
        return cls.unpacked(*read_file(path, "Explanation", FORMAT, UNCHECKED), f"Explanation.load({os.fspath(path)!r})")

    def packed(self) -> tuple[dict[str, Tensor], dict[str, Any]]:
        """The tensors by name, and the rest in a form for JSON."""
        tensors: dict[str, Tensor] = {}
        described: dict[str, Any] = {}
        for entry in dataclasses.fields(self):
            value = getattr(self, entry.name)
            if value is None and entry.name in (*LEFT_OUT, *REFINED):
                continue
            if isinstance(value, Tensor):
                tensors[entry.name] = value
            elif isinstance(value, tuple) and value and isinstance(value[0], Tensor):
                tensors.update({f"{entry.name}.{i}": part for i, part in enumerate(value)})
            elif entry.name in BY_NAME:
                described[entry.name] = list(value)
                tensors.update({f"{entry.name}.{i}": numbers for i, numbers in enumerate(value.values())})
            else:
                described[entry.name] = dict(value) if isinstance(value, Mapping) else value
        return tensors, described

    @classmethod
    def unpacked(cls, tensors: dict[str, Tensor], described: dict[str, Any], call: str) -> Explanation:
        """The inverse of ``packed``, if it is an explanation."""
        try:
            explanation = cls._rebuilt(dict(tensors), dict(described))
            wrong = explanation._fault()
        except (KeyError, TypeError, ValueError, AttributeError, IndexError, RuntimeError) as error:
            raise ValueError(f"{call}: what the file holds is no explanation ({error!r}).") from error
        if wrong:
            raise ValueError(f"{call}: {wrong}. The file is damaged, or was not written by save; explain the rows again.")
        return explanation

    @classmethod
    def _rebuilt(cls, tensors: dict[str, Tensor], described: dict[str, Any]) -> Explanation:
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
        for name in ("feature_names", "frozen", "notes", "class_names"):
            values[name] = None if values.get(name) is None else tuple(values[name])
        values["categories"] = {name: tuple(words) for name, words in values.get("categories", {}).items()}
        return cls(**values)

    def _fault(self) -> str | None:
        """What contradicts the definition of an explanation: shapes, signs, or sums; None if nothing does."""
        rows, biases = len(self), list(self.bias_by_layer.values())
        per_row = [self.output, self.baseline_output, self.completeness_error]
        more = (self.model_at_baseline, self.combined_error, self.refined_error, self.probability)
        per_row += [one for one in more if one is not None]
        scores = [self._each(part) for part in (self.positive, self.negative, self.combined)]
        about = [*self._each(self.inputs), *self._each(self.baselines), self.target]
        extra = [self._each(part) for part in (self.correction, self.absent, self.correction_error) if part is not None]
        shapes = [[part.shape for part in parts] for parts in (*scores, *extra)]
        if (
            any(one.shape != (rows,) for one in per_row)
            or any(one.shape != (rows, 3) for one in biases)
            or any(one.shape != (rows,) for one in self.cut.values())
            or any(len(part) != rows for part in (*scores[0], *about))
            or shapes != [shapes[0]] * len(shapes)
            or (not self.grouped and shapes[0] != [part.shape for part in self._each(self.inputs)])
            or len(self._each(self.inputs)) != len(self._each(self.baselines))
            or (self.display is not None and self.display.shape != self._each(self.positive)[0].shape)
            or (self.against is not None and self.against.shape != self.target.shape)
            or (self.feature_names is not None and len(self.feature_names) != self._flat(self.positive).shape[1])
            or (self.tokens is not None and len(self.tokens) != rows)
            or (self.tokens is not None and any(len(row) != self._flat(self.positive).shape[1] for row in self.tokens))
            or (self.conflict_pairs is not None and len(self.conflict_pairs) != rows)
        ):
            return "the shapes of its numbers do not fit each other"
        if not all(part.isfinite().all() for part in (*per_row, *biases, *(p for parts in (*scores, *extra) for p in parts))):
            return "some of its numbers are not finite"
        up, down, net = (
            torch.cat([self._flat(parts), *(layer[:, [side]] for layer in biases)], 1).double()
            for side, parts in enumerate(scores)
        )
        rounding = max(tolerance(part.dtype) for part in (self.output, *scores[2]))
        if bool((up < 0).any() or (down < 0).any()):
            return "some of its positive or negative scores are below 0"
        if bool(((up - down - net).abs() > rounding * (up + down)).any()):
            return "combined is not positive - negative"
        missed = net.sum(1) - (self.output - self.baseline_output).double() - self.completeness_error.double()
        size = net.abs().sum(1) + self.output.abs() + self.baseline_output.abs()
        moved = torch.zeros_like(net) if self.correction is None else self._flat(self.correction).double()
        if bool((moved.sum(1).abs() > rounding * (moved.abs().sum(1) + size)).any()):
            return "its correction changes the sum of its scores"
        return "its scores do not add up to its output" if bool((missed.abs() > rounding * size).any()) else None


def _called(index: list[int], names: tuple[str, ...] | None) -> str:
    """One output by its name, or by its place."""
    if names is not None and len(index) <= 1:
        return repr(names[index[0] if index else 0])
    return "" if not index else str(index[0] if len(index) == 1 else tuple(index))

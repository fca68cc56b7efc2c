"""The one record that every loader returns, and the scaler that leads back to the original units."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from torch import Tensor


@dataclass(frozen=True)
class Scaler:
    """``transform(x) = (x - center) / scale``, column by column (or channel by channel), and its inverse.

    Args:
        center: One number per column (or channel).
        scale: One number per column (or channel).
    """

    center: Tensor
    scale: Tensor

    def transform(self, x: Tensor) -> Tensor:
        """Original units to the units of the model.

        Args:
            x: Rows in original units.

        Returns:
            Rows in the units of the model.
        """
        return ((x.double() - self.center) / self.scale).to(x.dtype)

    def inverse(self, x: Tensor) -> Tensor:
        """The units of the model to original units: 45 years and not 0.31.

        Args:
            x: Rows in the units of the model.

        Returns:
            Rows in original units: 45 years and not 0.31.
        """
        return (x.double() * self.scale + self.center).to(x.dtype)


@dataclass(frozen=True)
class Dataset:
    """Scaled inputs and labels of one data set, with what is needed to explain and to report them.

    Args:
        name: The name of the data set.
        x_train: Inputs for training.
        y_train: Their labels.
        x_test: Inputs for testing.
        y_test: Their labels.
        citation: What to cite.
        terms: The terms of use.
        feature_names: One name per column.
        categories: The columns of each categorical feature: one column is a code, more are a one-hot block. All other
            columns are numbers.
        class_names: One name per class.
        scaler: How inputs were scaled.
        test_scaler: How test inputs were scaled; it differs from ``scaler`` only if each split was scaled by itself.
        x_valid: Inputs for validation.
        y_valid: Their labels.
        shifts: Further test sets by name.
        truth_train: The true attributions for training rows, if they are known.
        truth_valid: The same for validation.
        truth_test: The same for testing.
        weights: The weights of the rule that made the labels.
        notes: Remarks on the data.

    Example:
        >>> from cafexai import datasets
        >>> data = datasets.synthetic_shift(rows=100)
        >>> data.x_test.ndim
        2
    """

    name: str
    x_train: Tensor
    y_train: Tensor
    x_test: Tensor
    y_test: Tensor
    citation: str
    terms: str
    feature_names: tuple[str, ...] = ()
    categories: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    class_names: tuple[str, ...] = ()
    scaler: Scaler | None = None
    test_scaler: Scaler | None = None
    x_valid: Tensor | None = None
    y_valid: Tensor | None = None
    shifts: Mapping[str, tuple[Tensor, Tensor]] = field(default_factory=dict)
    truth_train: Tensor | None = None
    truth_valid: Tensor | None = None
    truth_test: Tensor | None = None
    weights: Tensor | None = None
    notes: tuple[str, ...] = ()

    @property
    def numbers(self) -> tuple[int, ...]:
        """Columns that are no category."""
        taken = {column for columns in self.categories.values() for column in columns}
        return tuple(i for i in range(len(self.feature_names)) if i not in taken)

    @property
    def features(self) -> dict[str, tuple[int, ...]]:
        """Columns of every feature, in the order of the columns: a one-hot block is one feature."""
        numbers = {self.feature_names[i]: (i,) for i in self.numbers}
        return dict(sorted((numbers | dict(self.categories)).items(), key=lambda item: item[1]))

    @property
    def layout(self) -> tuple[int, ...]:
        """Number of columns of each feature: what ``FTTransformer`` is built from."""
        return tuple(len(columns) for columns in self.features.values())

    @property
    def feature_mask(self) -> Tensor:
        """The feature that each column belongs to, (1, columns): Captum's word."""
        return torch.repeat_interleave(torch.tensor(self.layout))[None]

    def original(self, split: str = "test") -> Tensor:
        """Inputs of a split ("train", "valid", "test" or a shift) in original units.

        Args:
            split: "train", "valid", "test" or the name of a shift.

        Returns:
            The inputs of the split in original units.

        Raises:
            ValueError: There is no such split.

        Example:
            >>> from cafexai import datasets
            >>> datasets.synthetic_shift(rows=100).original("test").ndim
            2
        """
        return self._inverse(self.inputs(split), split)

    def _inverse(self, x: Tensor, split: str) -> Tensor:
        scaler = self.test_scaler if split == "test" and self.test_scaler is not None else self.scaler
        return x if scaler is None else scaler.inverse(x)

    def inputs(self, split: str) -> Tensor:
        """Inputs of "train", "valid", "test" or a shift.

        Args:
            split: "train", "valid", "test" or the name of a shift.

        Returns:
            The inputs of the split in the units of the model.

        Raises:
            ValueError: There is no such split.
        """
        known = {"train": self.x_train, "test": self.x_test} | {name: x for name, (x, _) in self.shifts.items()}
        if self.x_valid is not None:
            known["valid"] = self.x_valid
        if split not in known:
            raise ValueError(f"{self.name} has no split {split!r}: Allowed values: {', '.join(known)}.")
        return known[split]

    def readable(self, row: int, split: str = "test") -> dict[str, str]:
        """One row as a reviewer reads it: ``{"Age": "45", "Sex": "female"}``.

        Args:
            row: The position of the row.
            split: "train", "valid", "test" or the name of a shift.

        Returns:
            Feature -> value in words: ``{"Age": "45", "Sex": "female"}``.

        Example:
            >>> from cafexai import datasets
            >>> sorted(datasets.synthetic_shift(rows=100).readable(0))
            ['A', 'B', 'noise']
        """
        values = self._inverse(self.inputs(split)[row], split)
        return {name: self._reading(name, columns, values) for name, columns in self.features.items()}

    def _reading(self, name: str, columns: tuple[int, ...], values: Tensor) -> str:
        if len(columns) == 1:
            number = round(values[columns[0]].item(), 4)  # float32 does not come back to the last digit
            return f"{number:.6g}"
        block = values[list(columns)]
        return self.feature_names[columns[int(block.argmax())]].removeprefix(f"{name}_") if block.any() else "unknown"

    def to(self, dtype: torch.dtype) -> Dataset:
        """The same with inputs, truth and real-valued labels in another precision.

        Args:
            dtype: The precision.

        Returns:
            The data set with inputs, truth and real-valued labels in that precision.

        Example:
            >>> import torch
            >>> from cafexai import datasets
            >>> datasets.synthetic_shift(rows=100).to(torch.float64).x_test.dtype
            torch.float64
        """

        def cast(value: object) -> object:
            if isinstance(value, Tensor):
                return value.to(dtype) if value.is_floating_point() else value
            return {k: tuple(map(cast, v)) for k, v in value.items()} if isinstance(value, Mapping) else value

        names = "x_train y_train x_test y_test x_valid y_valid truth_train truth_valid truth_test weights shifts".split()
        return replace(self, **{name: cast(getattr(self, name)) for name in names})  # type: ignore[arg-type]

    def __repr__(self) -> str:
        shape = " x ".join(map(str, self.x_train.shape[1:]))
        return f"Dataset({self.name}: {len(self.x_train)} train, {len(self.x_test)} test, {shape} inputs)"


def min_max(x: np.ndarray) -> Scaler:
    """Every column to [0, 1]; a constant column to 0."""
    low, high = x.min(0), x.max(0)
    return Scaler(_column(low), _column(np.where(high > low, high - low, 1)))


def robust(x: np.ndarray, columns: int | None = None) -> Scaler:
    """Median to 0, the range of the 10 % and 90 % quantiles to 1, in the first ``columns``; the others stay as they are."""
    center, scale = np.zeros(x.shape[1]), np.ones(x.shape[1])
    part = x[:, :columns]
    low, middle, high = np.percentile(part, (10, 50, 90), axis=0)
    center[:columns] = middle
    scale[:columns] = np.where(high > low, high - low, 1)
    return Scaler(_column(center), _column(scale))


def split(rows: int, test: float, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows for training and for testing, as scikit-learn's ``train_test_split`` draws them."""
    order = np.random.RandomState(seed).permutation(rows)
    n = int(np.ceil(rows * test))
    return order[n:], order[:n]


def _column(values: np.ndarray) -> Tensor:
    return torch.from_numpy(np.asarray(values, dtype=np.float64))

"""What a monitor watches of every row: inputs, positive, negative and net scores of every feature, output, conflict, s_conf."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from .._extras import needs
from ..explanation import Explanation
from ._bins import Numbers

KINDS = ("input", "positive", "negative", "net")  # one column per feature each
LAST = ("output", "conflict", "s_conf")  # one column each
OUTPUT, CONFLICT = -3, -2  # their columns


@dataclass(frozen=True)
class Signals:
    """The watched numbers of some rows; ``monitor.read(rows)`` makes them.

    Args:
        features: Names of the features.
        values: (rows, 4 features + 3): inputs, positive, negative and net scores of all features, then output, conflict and
            s_conf. NaN is a missing input, or a score of a row that could not be scored; infinity is a category never seen;
            minus infinity is a number that is not finite.
        labels: (rows, 2): whether the prediction is right, and whether the true class is the watched one; NaN without label.
    """

    features: tuple[str, ...]
    values: Numbers
    labels: Numbers | None = None

    def __len__(self) -> int:
        return len(self.values)

    @property
    def inputs(self) -> Numbers:
        """The values of the features, (rows, features)."""
        return self.values[:, : len(self.features)]

    @property
    def scores(self) -> Numbers:
        """Positive, negative and net scores, (rows, 3 features)."""
        return self.values[:, len(self.features) : 4 * len(self.features)]

    @property
    def nets(self) -> Numbers:
        """The net scores, (rows, features)."""
        return self.values[:, 3 * len(self.features) : 4 * len(self.features)]

    @property
    def output(self) -> Numbers:
        """The watched output, (rows,)."""
        return self.values[:, OUTPUT]

    def take(self, places: Any) -> Signals:
        """Some of the rows.

        Args:
            places: Their positions, or a slice.

        Returns:
            These rows.
        """
        return Signals(self.features, self.values[places], None if self.labels is None else self.labels[places])

    def to_frame(self) -> Any:
        """A data frame for other tools, with columns such as "input age", "net age" and "output".

        Returns:
            One line per row.

        Example:
            >>> list(Signals(("a",), np.zeros((2, 7))).to_frame())
            ['input a', 'positive a', 'negative a', 'net a', 'output', 'conflict', 's_conf']
        """
        names = [f"{kind} {feature}".strip() for kind, feature in name_columns(self.features)]
        return needs("pandas", "tabular").DataFrame(self.values, columns=names)

    @classmethod
    def join(cls, parts: Sequence[Signals]) -> Signals:
        """Rows of several parts, one behind the other.

        Args:
            parts: At least one.

        Returns:
            All rows.
        """
        known = [part.labels for part in parts if part.labels is not None]
        labels = np.concatenate(known) if len(known) == len(parts) else None
        return cls(parts[0].features, np.concatenate([part.values for part in parts]), labels)


def name_columns(features: tuple[str, ...]) -> list[tuple[str, str]]:
    """(kind, feature) of every column; those of ``LAST`` have no feature."""
    return [*((kind, feature) for kind in KINDS for feature in features), *((kind, "") for kind in LAST)]


def read_explanation(e: Explanation, call: str) -> Signals:
    """The watched numbers of an explanation; ``call`` is named in errors.

    Raises:
        ValueError: It explains texts or images, its groups have no values of their own, or its rows have different targets.
    """
    if e.kind != "table":
        raise ValueError(f"{call}: a monitor watches tables, and this explanation is of {e.kind}s.")
    if e.grouped and e.features.display is None:
        raise ValueError(f"{call}: the groups of this explanation have no values of their own. Drop feature_groups=.")
    if len(e) and bool((e.target != e.target[:1]).any()):
        raise ValueError(f"{call}: rows are explained for different outputs. Give target=, the output to watch.")
    parts = [e.flat(part) for part in (e.shown, e.positive, e.negative, e.combined)]
    columns = [*parts, e.output[:, None], e.conflict[:, None], e.s_conf[:, None]]
    values = np.concatenate([part.detach().cpu().double().numpy() for part in columns], 1)
    return Signals(tuple(e.names()), values)

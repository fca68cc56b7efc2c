"""What a monitor watches of every row: inputs, positive, negative and net scores of every feature, output and conflict."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from ..explanation import Explanation
from ._bins import Numbers

KINDS = ("input", "positive", "negative", "net")  # one column per feature each
LAST = ("output", "conflict")  # one column each


@dataclass(frozen=True)
class Signals:
    """The watched numbers of some rows, (rows, 4 features + 2): four columns per feature by kind, then output and conflict."""

    features: tuple[str, ...]
    values: Numbers

    @property
    def inputs(self) -> Numbers:
        """The values of the features, (rows, features); NaN is missing."""
        return self.values[:, : len(self.features)]

    @property
    def nets(self) -> Numbers:
        """The net scores, (rows, features)."""
        return self.values[:, 3 * len(self.features) : 4 * len(self.features)]

    @property
    def output(self) -> Numbers:
        """The explained output, (rows,)."""
        return self.values[:, -2]


def name_columns(features: tuple[str, ...]) -> list[tuple[str, str]]:
    """(kind, feature) of every column; output and conflict have no feature."""
    return [*((kind, feature) for kind in KINDS for feature in features), *((kind, "") for kind in LAST)]


def read_signals(e: Explanation, call: str) -> Signals:
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
    columns = [*parts, e.output[:, None], e.conflict[:, None]]
    values = np.concatenate([part.detach().cpu().double().numpy() for part in columns], 1)
    return Signals(tuple(e.names()), values)

"""Rows as they come in JSON, and their scores as they go out."""

from __future__ import annotations

import functools
import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from .._core import kernels
from .._engine.request import Request, without_background
from .._extras import needs
from .._inputs.table_values import number_of
from ..batch._bad_rows import explained_apart
from ..batch._fingerprint import Fingerprints
from ..batch._workers import one_thread
from ..cafe import CAFE
from ..explanation import Explanation

if TYPE_CHECKING:
    from .watch import Watch

logger = logging.getLogger("cafexai.serve")
Row = Mapping[str, Any] | Sequence[Any]
Result = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """What a request asks of its rows; None leaves it to the server.

    Args:
        target: The output to explain: its index, the name of a class, or a tuple of indices.
        against: Explain the difference between the target and this output.
        top: Answer with so many features only: those with the largest net scores, up or down.
    """

    target: int | str | tuple[int, ...] | None = None
    against: int | str | tuple[int, ...] | None = None
    top: int | None = None

    def request(self, usual: Request) -> Request:
        """The options of ``explain``."""
        given = {name: value for name in ("target", "against") if (value := getattr(self, name)) is not None}
        return usual.replace(**given)


class Answerer:
    """Explains rows together; a row that cannot be explained gets the reason, the others their scores."""

    def __init__(
        self,
        cafe: CAFE,
        columns: Sequence[str] | None = None,
        request: Request | None = None,
        deterministic: bool = False,
        watch: Watch | None = None,
    ) -> None:
        asked = without_background(request or Request(), cafe.background, cafe.tokenizer)
        self.cafe, self._request = cafe, asked.replace(show_progress=False)
        self._deterministic, self.watch = deterministic, watch
        self.raw = hasattr(type(cafe.model), "from_raw")
        known = cafe.schema.names if cafe.schema is not None else columns or cafe.feature_names
        self.columns = None if known is None else tuple(known)
        self.fingerprint = Fingerprints.of(cafe, self._request, self.columns).as_dict()

    @property
    def version(self) -> str:
        """The model and what is asked of it, as a short word."""
        return self.fingerprint["id"][:12]

    def __call__(self, rows: Sequence[Row], asked: Sequence[Asked] | None = None) -> list[Result]:
        """One result for each row, in their order: {"output": ...} or {"error": ...}.

        ``asked`` says for each row what is asked of it; rows of which the same is asked are explained together.
        """
        results: list[Result] = [{} for _ in rows]
        bad: dict[int, str] = {}
        for one, places in self._alike(rows, asked or [Asked()] * len(rows), bad).items():
            some, kept = self._as_inputs([rows[place] for place in places], places, bad)
            explain = functools.partial(self._explain, one[0].request(self._request))
            for explanation, where in explained_apart(explain, some, kept, bad) if len(kept) else ():
                for place, result in zip(where.tolist(), _results(explanation, one[0].top), strict=True):
                    results[place] = result
        for place, reason in bad.items():
            results[place] = {"error": reason}
        if self.watch is not None:
            usual = [place for place, one in enumerate(asked or [Asked()] * len(rows)) if one == Asked()]
            try:
                self.watch.see([rows[place] for place in usual], [results[place] for place in usual])
            except Exception:  # answers do not depend on it
                logger.exception("monitor: %d rows could not be counted", len(usual))
        return results

    def _explain(self, request: Request, rows: Any) -> Explanation:
        plain = isinstance(rows, np.ndarray) and self.columns is not None and self.cafe.feature_names is None
        cafe = self.cafe.replace(feature_names=self.columns) if plain else self.cafe
        if self._deterministic:
            with kernels.use_kernels("never"), one_thread():
                return cafe.explain(rows, **vars(request.replace(batch_size=1)))
        return cafe.explain(rows, **vars(request))

    def _alike(self, rows: Sequence[Row], asked: Sequence[Asked], bad: dict[int, str]) -> dict[Any, list[int]]:
        """Places of rows that can be put into one table, by what is asked of them and their columns."""
        groups: dict[Any, list[int]] = {}
        for place, row in enumerate(rows):
            if isinstance(row, Mapping):
                if self.columns is None and not self.raw:
                    bad[place] = (
                        "the names of the columns are not known here: give the numbers as a list, or start with --columns"
                    )
                    continue
                missing = [name for name in self.columns or () if name not in row]
                odd = [name for name in row if self.columns is not None and name not in self.columns]
                if missing or odd:
                    what = f"there is no {missing[0]!r}" if missing else f"{odd[0]!r} is no column of the model"
                    bad[place] = f"{what}; the columns are {', '.join(map(repr, (self.columns or ())[:20]))}"
                    continue
                key: Any = tuple(self.columns or row)
            elif self.columns is not None and len(row) != len(self.columns):
                bad[place] = f"{len(row)} values; there are {len(self.columns)} columns"
                continue
            else:
                key = self.columns or len(row)
            groups.setdefault((asked[place], key), []).append(place)
        return groups

    def _as_inputs(self, rows: list[Row], places: list[int], bad: dict[int, str]) -> tuple[Any, np.ndarray]:
        """In the form that the model takes, without rows that are told in ``bad``."""
        names = self.columns or (tuple(rows[0]) if isinstance(rows[0], Mapping) else None)
        cells = [[row[name] for name in names] if isinstance(row, Mapping) and names else list(row) for row in rows]
        if self.cafe.schema is not None or (self.raw and names is not None):
            frame = needs("pandas", "serve").DataFrame(cells, columns=list(names or ()))
            wrong = self.cafe.schema.check(frame, self.cafe.allow_nan) if self.cafe.schema is not None else {}
            bad |= {places[place]: reason for place, reason in wrong.items()}
            kept = [place for place in range(len(rows)) if place not in wrong]
            return frame.iloc[kept].reset_index(drop=True), np.array([places[place] for place in kept], dtype=np.int64)
        good = []
        for place, row in zip(places, cells, strict=True):
            numbers, reason = _as_numbers(row, names, self.cafe.allow_nan)
            if reason is not None:
                bad[place] = reason
            else:
                good.append((place, numbers))
        matrix = np.array([row for _, row in good], dtype=np.float64)
        return matrix, np.array([place for place, _ in good], dtype=np.int64)


def _as_numbers(row: Sequence[Any], names: Sequence[str] | None, allow_nan: bool) -> tuple[list[float], str | None]:
    """The values of a row as a network takes them, or why it cannot have them."""
    found = []
    for place, cell in enumerate(row):
        value, reason = number_of(cell)
        if reason is not None and not (allow_nan and math.isnan(value)):
            return [], f"{repr(names[place]) if names is not None else f'value {place}'} {reason}"
        found.append(value)
    return found, None if found else "there are no values"


def _results(explanation: Explanation, top: int | None) -> list[Result]:
    """Plain numbers and words of all rows, with the scores of all features, or of the ``top`` with the largest net."""
    names = explanation.names()
    scores = [explanation.flat(part).tolist() for part in (explanation.positive, explanation.negative, explanation.combined)]
    single = {
        "output": explanation.output,
        "baseline_output": explanation.baseline_output,
        "bias_positive": explanation.bias_positive,
        "bias_negative": explanation.bias_negative,
        "bias": explanation.bias,
        "conflict": explanation.conflict,
        "conflict_share": explanation.conflict_share,
        "s_conf": explanation.s_conf,
        "probability": explanation.probability,
    }
    lists = {name: value.tolist() for name, value in single.items() if value is not None}
    targets = explanation.target.reshape(len(explanation), -1).tolist()
    found = []
    for row, target in enumerate(targets):
        features = [
            {"name": name, "positive": positive, "negative": negative, "net": net}
            for name, positive, negative, net in zip(names, *(part[row] for part in scores), strict=True)
        ]
        if top is not None:
            features = sorted(features, key=lambda one: -abs(one["net"]))[:top]
        about: dict[str, Any] = {name: values[row] for name, values in lists.items()}
        about["conflict_kind"] = explanation.conflict_kind
        about["target"] = target[0] if len(target) == 1 else target
        if explanation.class_names and len(target) <= 1:
            about["target_name"] = explanation.class_names[target[0] if target else 0]
        found.append({**about, "features": features})
    return found

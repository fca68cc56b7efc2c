"""A model of scikit-learn behind its preprocessing steps: scores of the columns before them."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .._extras import needs
from .._inputs import list_names
from .._inputs.column_sources import sources
from .._inputs.groups import Grouping
from .._inputs.prepare import FromRaw, are_frames
from .._inputs.table_values import NOT_KNOWN, column_of, read_dates, read_values, typical_value, word
from .combine_steps import numbers
from .layers import Network, names_of
from .zero import invert_zero

DECISION = "decision function"  # what classifiers without probabilities give


class SklearnModel(nn.Module):
    """The layers of a fitted model, and the steps that stand before it in its pipeline. ``from_sklearn`` makes it.

    Args:
        network: The layers and the steps.
        encoded: Scores are about the transformed features, not about the original columns.
    """

    def __init__(self, network: Network, encoded: bool = False) -> None:
        super().__init__()
        for name, layer in network.layers.named_children():
            self.add_module(name, layer)
        self._layers = (network.layers,)  # in a tuple: its parts are registered already
        self.steps, self.count, self.known = network.steps, network.width, network.columns
        classes = network.classes
        self.class_names = tuple(map(word, classes))
        self.probability = network.probability
        self.output_kind = "logit" if network.probability is not None else DECISION
        self.explanation_notes = _about_output(network)
        self.labels: dict[int, tuple[str, ...]] = {}
        self.sources: list[frozenset[int]] = []  # for each feature the columns of the raw data that it is made of
        steps = self.steps
        self.raw_names = None if steps is None else names_of(steps)
        width = None if steps is None or encoded else getattr(steps, "n_features_in_", None)
        if width is not None:
            self.raw_names = self.raw_names or [f"x{i}" for i in range(width)]
            self.sources = sources(steps, [frozenset([i]) for i in range(width)], self.count, self.labels)

    @property
    def original_columns(self) -> bool:
        """Scores and baselines are about the columns before the steps."""
        return bool(self.sources)

    @property
    def network(self) -> nn.Module:
        """The layers alone: rows are transformed already."""
        return self._layers[0].eval()

    def forward(self, x: Tensor) -> Tensor:
        """The outputs of the model.

        Args:
            x: Transformed features, (rows, features).

        Returns:
            (rows, outputs).
        """
        return self._layers[0].forward(x)  # not called: its parts are known by their names in this module

    def from_raw(self, inputs: Any, feature_names: Sequence[str] | None = None, call: str = "explain(...)") -> FromRaw:
        """Transform raw rows to the input of ``forward``.

        Args:
            inputs: The rows that ``estimator.predict`` takes.
            feature_names: Names of the features; None takes those that the model knows.
            call: A name for the call in messages.

        Returns:
            The transformed rows, with names and values of the features as people know them.

        Raises:
            ValueError: The steps do not take these rows.
        """
        given = None if feature_names is None else list(map(str, feature_names))
        raw = inputs.detach().cpu().numpy() if isinstance(inputs, Tensor) else inputs
        dates: tuple[str, ...] = ()
        ready = raw
        if self.steps is not None:
            ready, raw, dates = self._transform(raw, call)
        self._check_columns(_columns(ready))
        features = numbers(ready)
        if features.ndim != 2 or features.shape[1] != self.count:
            raise ValueError(
                f"explain(...): the model takes (rows, {self.count}) and was given {features.shape}. "
                "Pass the rows that estimator.predict takes."
            )
        if self.steps is None:
            return FromRaw(features, given or _columns(raw) or self.known)
        made = _columns(ready) or names_of(self.steps, "get_feature_names_out")
        if not self.original_columns:
            return FromRaw(features, given or made)
        found = self._as_known(raw, features, made, given)
        return found._replace(notes=(*found.notes, *self._unused(raw), *self._unknown(raw), *_read_as_dates(dates)))

    def _transform(self, raw: Any, call: str) -> tuple[Any, Any, tuple[str, ...]]:
        """The rows behind the steps, the rows, and the columns of texts that had to be read as dates."""
        own = (ValueError, TypeError, KeyError, AttributeError)
        try:
            return self.steps.transform(raw), raw, ()
        except own as error:
            if hasattr(raw, "iloc"):
                dated, names = read_dates(raw)
                if names:
                    with contextlib.suppress(*own):
                        return self.steps.transform(dated), dated, names
            known = "" if self.raw_names is None else f", with the columns {', '.join(map(repr, self.raw_names[:20]))}"
            reason = self._other_columns(raw) or str(error).strip().splitlines()[0]
            raise ValueError(
                f"{call}: the pipeline does not take these rows ({reason}). Pass what pipeline.predict takes{known}."
            ) from error

    def _other_columns(self, raw: Any) -> str:
        """Which columns are missing, and which are too many."""
        given, known = _columns(raw), names_of(self.steps)
        return "" if given is None or known is None else _difference(given, known)

    def _unused(self, raw: Any) -> list[str]:
        """A note on columns of the rows that no feature is made of: the pipeline drops them, or does not know them."""
        assert self.raw_names is not None
        used = {self.raw_names[place] for columns in self.sources for place in columns}
        names = [name for name in _columns(raw) or self.raw_names if name not in used]
        return [f"Not used by the pipeline: {list_names(names, 5)}."] * bool(names)

    def _unknown(self, raw: Any) -> list[str]:
        """Notes on categories that the encoders have not seen."""
        assert self.raw_names is not None
        notes = []
        for key, labels in self.labels.items():
            cells = column_of(raw, key, self.raw_names[key])
            _, words = read_values(cells, labels)
            if new := words[len(labels) :]:
                count = sum(word(cell) in new for cell in cells.tolist())
                notes.append(
                    f"Unknown to the encoder of {self.raw_names[key]}: {list_names(new, 5)} ({count} row{'s' * (count > 1)}); "
                    "the model gets what the encoder makes of unknown categories."
                )
        return notes

    def _as_known(self, raw: Any, features: np.ndarray, made: list[str] | None, given: list[str] | None) -> FromRaw:
        """One feature per column of the raw data; what mixes columns stays as the perceptron gets it."""
        assert self.raw_names is not None
        keys = [min(columns) if len(columns) == 1 else -1 - place for place, columns in enumerate(self.sources)]
        order = list(dict.fromkeys(keys))  # columns, and for what mixes them -1 - its place
        mixed = [-1 - key for key in order if key < 0]
        if len(mixed) == self.count:
            return FromRaw(features, given or made, notes=_note_mixed(made or []))
        names = given if given is not None and len(given) == len(self.raw_names) else self.raw_names
        own = [f"feature {place}" for place in range(self.count)] if made is None else _without_prefixes(made)
        shown = [names[key] if key >= 0 else own[-1 - key] for key in order]
        if given is not None and names is not given:
            if len(given) != len(order):
                raise ValueError(
                    f"explain(..., feature_names=...): {len(given)} names for {len(order)} features. Give one for each column "
                    f"of the raw data: {', '.join(map(repr, self.raw_names[:20]))}."
                )
            shown = given
        values = np.zeros((len(features), len(order)))
        categories: dict[str, tuple[str, ...]] = {}
        for place, (key, name) in enumerate(zip(order, shown, strict=True)):
            cells = features[:, -1 - key] if key < 0 else column_of(raw, key, self.raw_names[key])
            values[:, place], words = read_values(cells, self.labels.get(key, ()))
            if words:
                categories[name] = words
        index = torch.tensor([order.index(key) for key in keys])
        notes = _note_mixed([own[place] for place in mixed])
        if len(order) == self.count:
            return FromRaw(features, shown, torch.from_numpy(values), categories, None, notes)
        grouping = Grouping(index, tuple(shown), torch.from_numpy(values), categories)
        return FromRaw(features, made, None, {}, grouping, notes)

    def rows(self, given: Any, call: str) -> np.ndarray:
        """Transform rows of original values in any form.

        Args:
            given: (columns,), (rows, columns), or a stack of the latter.
            call: A name for the call in messages.

        Returns:
            The transformed rows.

        Raises:
            ValueError: The columns are not those of the model.
        """
        assert self.raw_names is not None
        if isinstance(given, (tuple, list)) and len(given) == 1 and np.ndim(given[0]):
            given = given[0]
        if isinstance(given, Mapping):
            given = needs("pandas", "tabular").DataFrame([dict(given)])
        if hasattr(given, "to_frame") and hasattr(given, "index"):  # a series of one value per column
            given = given.to_frame().T.infer_objects()
        if _columns(given) is not None:
            return self.from_raw(given, call=call).ready
        if are_frames(given):  # columns by name, and of their kinds
            whole = needs("pandas", "tabular").concat(list(given), ignore_index=True)
            return self.from_raw(whole, call=call).ready.reshape(len(given), -1, self.count)
        plain = given.detach().cpu().numpy() if isinstance(given, Tensor) else given
        array = plain if isinstance(plain, np.ndarray) else np.array(plain, dtype=object)
        width = len(self.raw_names)
        if array.ndim == 0 or array.shape[-1] != width:
            raise ValueError(
                f"{call}: give values of the {width} original columns, {', '.join(map(repr, self.raw_names[:20]))}; this is "
                f"{f'of shape {array.shape}' if array.ndim else repr(given)}. None is the zero of what the model gets; "
                "from_sklearn(pipeline, encoded=True) takes baselines in these features."
            )
        flat: Any = array.reshape(-1, width)
        if hasattr(self.steps, "feature_names_in_"):
            flat = needs("pandas", "tabular").DataFrame(flat, columns=self.raw_names).infer_objects()
        return self.from_raw(flat, call=call).ready.reshape(*array.shape[:-1], self.count)

    def known_cells(self, given: Any) -> np.ndarray | None:
        """Baselines in original values, in the order in which ``from_raw`` shows features.

        Args:
            given: Rows of original values.

        Returns:
            (..., rows, features), NaN for features that are made of several columns. None if no column is shown as such.
        """
        assert self.raw_names is not None
        if isinstance(given, Mapping):
            given = [[given[name] for name in self.raw_names]] if set(self.raw_names) <= set(given) else None
        elif hasattr(given, "to_frame") and hasattr(given, "index"):
            given = given.to_frame().T
        if given is None:
            return None
        if hasattr(given, "columns"):
            cells = self._cells_of(given)
        elif are_frames(given):
            cells = np.stack([self._cells_of(one) for one in given])
        else:
            plain = given.detach().cpu().numpy() if isinstance(given, Tensor) else given
            cells = np.array(plain, dtype=object)
        cells = cells if cells.ndim > 1 else cells[None]
        order = self._shown_order()
        if all(key < 0 for key in order):
            return None
        made = np.full((*cells.shape[:-1], len(order)), np.nan, dtype=object)
        for place, key in enumerate(order):
            if key >= 0:
                made[..., place] = cells[..., key]
        return made

    def _cells_of(self, frame: Any) -> np.ndarray:
        assert self.raw_names is not None
        return np.stack([column_of(frame, place, name) for place, name in enumerate(self.raw_names)], -1)

    def zero_row(self) -> np.ndarray | None:
        """The original values of the baseline zero: what the steps turn into 0.

        Returns:
            (1, columns), with a mark for no category, and for what cannot be told. None if that is so of all that is shown.
        """
        assert self.raw_names is not None
        found = invert_zero(self.steps, len(self.raw_names), self.count)
        known = any(found[key] is not NOT_KNOWN for key in self._shown_order() if key >= 0)
        return found[None] if known else None

    def unknown_zeros(self) -> list[str]:
        """The columns of which it cannot be told what zero is.

        Returns:
            Their names.
        """
        assert self.raw_names is not None
        found = invert_zero(self.steps, len(self.raw_names), self.count)
        return [self.raw_names[key] for key in self._shown_order() if key >= 0 and found[key] is NOT_KNOWN]

    def mixed_features(self) -> dict[int, int]:
        """Features that are made of several columns -> their place in what the perceptron gets."""
        return {place: -1 - key for place, key in enumerate(self._shown_order()) if key < 0}

    def _shown_order(self) -> list[int]:
        """For every feature that is shown its column, or -1 - its place in what the perceptron gets."""
        keys = [min(columns) if len(columns) == 1 else -1 - place for place, columns in enumerate(self.sources)]
        return list(dict.fromkeys(keys))

    def typical(self, statistic: str, background: Any) -> Any:
        """A typical row of original values.

        Args:
            statistic: "mean", "median" or "mode" of numbers and dates; categories have their most frequent value.
            background: The rows.

        Returns:
            The row.
        """
        assert self.raw_names is not None
        raw = background.detach().cpu().numpy() if isinstance(background, Tensor) else background
        cells = [column_of(raw, place, name) for place, name in enumerate(self.raw_names)]
        row = [typical_value(statistic, one, place in self.labels) for place, one in enumerate(cells)]
        if _columns(raw) is None:
            return np.array(row, dtype=object if any(isinstance(one, str) for one in row) else np.float64)
        return _row_like(raw, dict(zip(self.raw_names, row, strict=True)))

    def _check_columns(self, columns: list[str] | None) -> None:
        if columns is not None and self.known is not None and columns != self.known:
            reason = _difference(columns, self.known) or "they stand in another order"
            raise ValueError(
                f"explain(frame): the model was fitted with the columns {list_names(self.known)}; {reason}. "
                "Pass the same columns in the same order."
            )


def _columns(data: Any) -> list[str] | None:
    """The column names of a data frame."""
    return [str(name) for name in data.columns] if hasattr(data, "columns") else None


def _difference(given: list[str], known: list[str]) -> str:
    """Columns that are too few or too many, by name."""
    missing, other = [one for one in known if one not in given], [one for one in given if one not in known]
    parts = [f"the rows lack {list_names(missing)}"] * bool(missing) + [f"they have besides {list_names(other)}"] * bool(other)
    return " and ".join(parts)


def _row_like(frame: Any, row: Mapping[str, Any]) -> Any:
    """One row as a frame whose columns are of the kinds they had; numbers may have become fractions."""
    pandas = needs("pandas", "tabular")
    made = pandas.DataFrame([row], columns=list(row))
    for name in made.columns:
        kind = next((frame[one].dtype for one in frame.columns if str(one) == name), None)
        if kind is not None and not pandas.api.types.is_numeric_dtype(kind):
            with contextlib.suppress(TypeError, ValueError):
                made[name] = made[name].astype(kind)
    return made


def _about_output(network: Network) -> tuple[str, ...]:
    """What the only output of a classifier of two classes is."""
    if len(network.classes) != 2 or _outputs(network) != 1:
        return ()
    first, second = network.classes
    what = "logit" if network.probability is not None else f"{DECISION} (no log odds)"
    return (f"Output 0 is the {what} of class {second}; below 0 the model predicts {first}.",)


def _outputs(network: Network) -> int:
    with torch.no_grad():
        return int(network.layers(torch.zeros(1, network.width, dtype=torch.float64)).shape[1])


def _read_as_dates(names: tuple[str, ...]) -> tuple[str, ...]:
    return (f"Texts read as dates: {', '.join(names)}.",) if names else ()


def _without_prefixes(names: list[str]) -> list[str]:
    """Names as they were before a ColumnTransformer put those of its steps in front ("pca__pca0"), if they stay different."""
    short = [name.rsplit("__", 1)[-1] for name in names]
    return [one if short.count(one) == 1 else name for one, name in zip(short, names, strict=True)]


def _note_mixed(names: list[str]) -> tuple[str, ...]:
    """A note on features that are made of several columns."""
    if not names:
        return ()
    some = ", ".join(names[:5]) + (f" and {len(names) - 5} more" if len(names) > 5 else "")
    return (f"Made of several columns, and therefore shown as the model gets them: {some}.",)

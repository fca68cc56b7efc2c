"""The cells of a table: numbers, words, and what is missing."""

from __future__ import annotations

import datetime
import math
import numbers
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import numpy as np

from .._extras import needs

NO_CATEGORY, NOT_KNOWN = (type(name, (), {})() for name in ("NoCategory", "NotKnown"))  # cells of a baseline without a value
_ISO = re.compile(r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d(\.\d+)?)?)?$")


def encode_column(labels: Sequence[str], cells: Any, allow_nan: bool = False) -> tuple[np.ndarray, dict[int, str]]:
    """The numbers of a column, or its codes if it has labels, and what is wrong with single rows.

    With ``allow_nan`` nothing is wrong with a number that is missing.
    """
    listed = list(cells)
    bad: dict[int, str] = {}
    if labels:
        code_of = {label: code for code, label in enumerate(labels)}
        codes = np.zeros(len(listed))
        for row, cell in enumerate(listed):
            if is_missing(cell):
                bad[row] = "is missing"
            elif (code := code_of.get(word(cell))) is None:
                shown = ", ".join(map(repr, labels[:10])) + (" ..." if len(labels) > 10 else "")
                bad[row] = f"is {_short(cell)}, which is none of {shown}"
            else:
                codes[row] = code
        return codes, bad
    if is_numeric(cells) and hasattr(cells, "isna"):  # pandas
        found = cells.to_numpy(dtype=np.float64, na_value=np.nan)
        if np.isfinite(found).all():
            return found, bad
    found = np.zeros(len(listed))
    for row, cell in enumerate(listed):
        found[row], reason = number_of(cell)
        if reason is not None and not (allow_nan and math.isnan(found[row])):
            bad[row] = reason
    return found, bad


def number_of(cell: Any) -> tuple[float, str | None]:
    """A cell as a number, wherever it comes from (files, JSON, frames): true is 1, "44" is 44; or what is wrong with it."""
    try:
        found = math.nan if is_missing(cell) else float(cell)
    except (TypeError, ValueError, OverflowError):
        return 0.0, f"is {_short(cell)}, which is no number"
    if math.isfinite(found):
        return found, None
    return found, "is missing" if math.isnan(found) else f"is {_short(cell)}, which is not finite"


def _short(cell: Any) -> str:
    text = repr(cell)
    return text if len(text) <= 80 else f"{text[:77]}..."


def is_missing(cell: Any) -> bool:
    """None, NaN, or what pandas has for nothing."""
    if isinstance(cell, np.datetime64):
        return bool(np.isnat(cell))
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and math.isnan(cell))


def is_numeric(cells: Any) -> bool:
    """A column of numbers, by its type; true and false are none."""
    return re.match("u?int[0-9]|float|double|decimal", str(cells.dtype).lower()) is not None


def labels_of(cells: Any, coded: bool = False) -> tuple[str, ...] | None:
    """The categories of a column of a frame; None if it holds numbers that are no codes."""
    kind = str(cells.dtype).lower()
    if hasattr(getattr(cells.dtype, "categories", None), "__len__"):  # in an order that the user chose
        return tuple(map(word, cells.dtype.categories))
    if "bool" in kind:
        return ("False", "True")
    if is_numeric(cells) and not coded:
        return None
    there = {cell for cell in cells if not is_missing(cell)}
    found = list(map(word, sorted(there))) if is_numeric(cells) else sorted(set(map(word, there)))
    if not found:
        raise ValueError(
            f"Schema.from_frame(frame): the column {cells.name!r} holds nothing, so its kind is not known. Drop it."
        )
    return tuple(found)


def word(cell: Any) -> str:
    """A category as it is called: 3.0 is "3", midnight of a day is its date."""
    if isinstance(cell, (float, np.floating)) and float(cell).is_integer():
        return str(int(cell))
    if isinstance(cell, np.datetime64):
        cell = cell.astype("datetime64[us]").item()
    return str(cell).removesuffix(" 00:00:00") if isinstance(cell, datetime.datetime) else str(cell)


def is_date_column(cells: Any) -> bool:
    """Dates, or texts that all are dates in ISO form (2024-01-31), as files of text hold them."""
    there = [cell for cell in cells if not is_missing(cell)]
    return bool(there) and all(isinstance(cell, (datetime.date, np.datetime64)) or _is_iso(cell) for cell in there)


def _is_iso(cell: Any) -> bool:
    return isinstance(cell, str) and _ISO.match(cell) is not None


def read_dates(frame: Any) -> tuple[Any, tuple[str, ...]]:
    """A frame with its texts that are dates in ISO form as dates, and the names of these columns."""
    pandas = needs("pandas", "tabular")
    found = [name for name in frame.columns if not is_numeric(frame[name]) and is_date_column(frame[name])]
    texts = [name for name in found if not pandas.api.types.is_datetime64_any_dtype(frame[name])]
    return frame.assign(**{name: pandas.to_datetime(frame[name]) for name in texts}), tuple(map(str, texts))


def column_of(table: Any, place: int, name: str) -> np.ndarray:
    """One column of a frame, by name, or of an array, by place."""
    if hasattr(table, "columns"):
        own = next((column for column in table.columns if str(column) == name), None)
        cells = table[own] if own is not None else table.iloc[:, place]
        return np.asarray(cells.to_numpy(dtype=object) if hasattr(cells, "isna") else cells.to_list(), dtype=object)
    cells = table[:, [place]].toarray()[:, 0] if hasattr(table, "toarray") else np.asarray(table)[:, place]
    return np.asarray(cells)


def read_values(cells: np.ndarray, labels: Sequence[str] = ()) -> tuple[np.ndarray, tuple[str, ...]]:
    """Numbers with NaN for what is missing; or, of words, their codes and the words, those in ``labels`` first.

    ``labels`` are the categories that an encoder knows: numbers are words then, too.
    """
    listed = cells.tolist() if cells.dtype.kind != "M" else list(cells)
    there = [cell for cell in listed if not is_missing(cell)]
    if not labels and all(map(_is_number, there)):
        return np.array([math.nan if is_missing(cell) else float(cell) for cell in listed]), ()
    words = tuple(dict.fromkeys([*labels, *sorted({word(cell) for cell in there})]))
    code_of = {label: code for code, label in enumerate(words)}
    return np.array([math.nan if is_missing(cell) else code_of[word(cell)] for cell in listed]), words


def _is_number(cell: Any) -> bool:
    return isinstance(cell, numbers.Real) and not isinstance(cell, bool)


def typical_value(statistic: str, cells: np.ndarray, category: bool = False) -> Any:
    """A typical cell, as it stands in the column: of numbers and dates their mean, median or mode, else the most frequent one.

    What is missing counts as a category; of numbers and dates it is left out. None if nothing is there.
    """
    listed = cells.tolist() if cells.dtype.kind != "M" else list(cells)
    there = [cell for cell in listed if not is_missing(cell)]
    if not there:
        return listed[0] if listed else None
    if statistic != "mode" and not category:
        if all(map(_is_number, there)):
            return float(np.mean(there) if statistic == "mean" else np.median(there))
        if is_date_column(there):
            return _typical_date(statistic, there)
    counted = Counter(
        _MISSING if is_missing(cell) else cell for cell in (listed if category or not _is_ordered(there) else there)
    )
    most = counted.most_common(1)[0][0]
    return next(cell for cell in listed if is_missing(cell)) if most is _MISSING else most


_MISSING = object()  # stands for whatever a table has where nothing is


def _is_ordered(there: Sequence[Any]) -> bool:
    """Numbers or dates, which have a mean."""
    return all(map(_is_number, there)) or is_date_column(there)


def _typical_date(statistic: str, there: Sequence[Any]) -> Any:
    """The mean day, or the median, which is one of the dates; in the form that the column has."""
    if statistic == "median":
        return sorted(there, key=str)[(len(there) - 1) // 2]
    dates = [datetime.datetime.fromisoformat(cell) if isinstance(cell, str) else cell for cell in there]
    start = dates[0]
    mean = start + sum((one - start for one in dates), start - start) / len(dates)
    if isinstance(there[0], str):
        return mean.date().isoformat()
    return mean.floor("D") if hasattr(mean, "floor") else mean  # pandas: the day, without a time

"""Tables that come as files, and what their columns are."""

from __future__ import annotations

import csv
import difflib
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from .._extras import needs
from .file_errors import DataProblem, in_other_letters, short

if TYPE_CHECKING:
    import pandas

_DECIMAL_COMMA = re.compile(r"\s*[-+]?(\d+|\d{1,3}(\.\d{3})+)(,\d+)?\s*$")
FIRST = 1000  # rows by which a column of texts is known for dates
TABLES = (".csv", ".tsv", ".parquet")


def read_table(path: Path, encoding: str | None = None) -> tuple[pandas.DataFrame, tuple[str, ...]]:
    """The frame of a CSV or Parquet file, and what was left out."""
    frame = _parquet(path) if path.suffix.lower() == ".parquet" else _csv(path, encoding)
    frame.columns = [str(name).strip() for name in frame.columns]
    first = frame.columns[0] if len(frame.columns) else ""
    if (not first or first.startswith("Unnamed: ")) and len(frame.columns) > 1:
        if list(frame[first]) == list(range(len(frame))):  # the index that pandas writes
            return frame.drop(columns=first), (f"{path}: the first column has no name and counts the rows: left out.",)
    return frame, ()


def _csv(path: Path, encoding: str | None) -> pandas.DataFrame:
    pandas = needs("pandas", "tabular")
    try:
        with path.open(encoding=encoding or "utf-8-sig", newline="") as file:
            top = file.readline()
            separator = "\t" if path.suffix.lower() == ".tsv" else max(",;\t", key=top.count)
            header = next(csv.reader([top], delimiter=separator), [])
            check_header(path, [name.strip() for name in header])
            frame = pandas.read_csv(path, sep=separator, encoding=encoding or "utf-8-sig", skipinitialspace=True)
            _refuse_decimal_commas(path, frame)
            return frame
    except (UnicodeDecodeError, LookupError) as error:
        raise in_other_letters(path, encoding, error) from error
    except DataProblem:
        raise
    except Exception as error:
        raise DataProblem(f"{path}: no table can be read from it ({short(error, 160)}).") from error


def _refuse_decimal_commas(path: Path, frame: pandas.DataFrame) -> None:
    """Columns whose texts all are numbers with a comma, 3,14, would be taken for categories."""
    texts = [name for name in frame.columns if not hasattr(frame[name].dtype, "kind") or frame[name].dtype.kind in "OTU"]
    for name in texts:
        cells = [str(cell) for cell in frame[name].dropna()]
        if any("," in cell for cell in cells) and all(_DECIMAL_COMMA.match(cell) for cell in cells):
            raise DataProblem(
                f"{path}: column {str(name)!r} holds numbers with a decimal comma ({next(c for c in cells if chr(44) in c)}). "
                f"Write a point: pandas.read_csv({path.name!r}, sep=';', decimal=',').to_csv(...)."
            )


def check_header(path: str | Path, header: list[str]) -> None:
    """Each column has a name of its own, and the first line is not a row already."""
    if not any(header):
        raise DataProblem(f"{path}: it is empty. The first line has the names of the columns, each other line is a row.")
    twice = [name for name, count in Counter(header).items() if count > 1 and name]
    if twice:
        raise DataProblem(f"{path}: more than one column is called {', '.join(map(repr, twice))}. Give each a name of its own.")
    if len(header) > 1 and all(map(_is_number, header)) and header != [str(place) for place in range(len(header))]:
        raise DataProblem(
            f"{path}: the first line is numbers ({', '.join(header[:4])} ...). Put a line with names of the columns before it."
        )


def _is_number(word: str) -> bool:
    try:
        float(word)
    except ValueError:
        return False
    return True


def _parquet(path: Path) -> pandas.DataFrame:
    pandas = needs("pandas", "tabular")
    needs("pyarrow", "parquet")
    try:
        return pandas.read_parquet(path)
    except Exception as error:
        raise DataProblem(f"{path}: no table can be read from it ({short(error, 160)}).") from error


def kinds_of(frame: Any) -> dict[str, str]:
    """What each column holds: "number", "yes or no", "date", "category", or "nothing"."""
    from .._inputs.table_values import is_date_column

    types = needs("pandas", "tabular").api.types
    kinds = {}
    for name in frame.columns:
        column = frame[name]
        if column.isna().all():
            kinds[name] = "nothing"
        elif types.is_bool_dtype(column):
            kinds[name] = "yes or no"
        elif types.is_numeric_dtype(column):
            kinds[name] = "number"
        else:
            kinds[name] = "date" if types.is_datetime64_any_dtype(column) or is_date_column(column.iloc[:FIRST]) else "category"
    return kinds


def choose_columns(there: Iterable[str], wanted: Sequence[str], where: str, what: str) -> list[str]:
    """The wanted ones, if all of them are there."""
    known = list(map(str, there))
    missing = [name for name in wanted if name not in known]
    if missing:
        near = difflib.get_close_matches(missing[0], known, 1)
        hint = f"did you mean {near[0]!r}?" if near else f"there are {list_names(known)}."
        raise DataProblem(f"{where}: it has no {what} {', '.join(map(repr, missing))}; {hint}")
    return list(wanted)


def list_names(names: Sequence[str], most: int = 12) -> str:
    """Names for a message."""
    return ", ".join(map(repr, names[:most])) + (f" and {len(names) - most} more" if len(names) > most else "")

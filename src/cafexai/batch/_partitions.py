"""Folders such as ``day=3``, which readers of Parquet turn back into a column (Hive partitioning)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import numpy as np

from .._extras import needs
from ..loading.file_errors import DataProblem

if TYPE_CHECKING:
    import pyarrow as pa

NOTHING = "__HIVE_DEFAULT_PARTITION__"  # what readers take for a missing value
MOST = 256  # folders of one unit: each is an open file


def check_partitions(types: pa.Schema, names: Sequence[str], keep: Sequence[str]) -> None:
    """Refuse columns that are not kept, or whose values are no names."""
    kinds = needs("pyarrow", "batch").types
    for name in names:
        call = f"score(..., partition_by={list(names)!r})"
        if name not in keep:
            raise ValueError(f"{call}: {name!r} is no kept column. Give keep=[{name!r}], too.")
        kind = types.field(name).type
        kind = kind.value_type if kinds.is_dictionary(kind) else kind
        is_text = kinds.is_string(kind) or kinds.is_large_string(kind)
        if not (is_text or kinds.is_integer(kind) or kinds.is_boolean(kind) or kinds.is_date(kind)):
            raise ValueError(f"{call}: {name!r} is {kind}. Allowed values: text, integers, true and false, dates.")
    if len(set(names)) < len(names):
        raise ValueError(f"score(..., partition_by={list(names)!r}): a column is named twice.")


def split(table: pa.Table, names: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """The rows of each folder, in their order, without the columns that the name of the folder says."""
    if not names:
        yield "", table
        return
    arrow = needs("pyarrow", "batch")
    codes, folders = np.zeros(table.num_rows, dtype=np.int64), [""]
    for name in names:
        column = table[name].combine_chunks().dictionary_encode()
        values = [_folder(name, value) for value in column.dictionary.to_pylist()]
        codes = codes * max(len(values), 1) + column.indices.to_numpy(zero_copy_only=False)
        folders = [f"{before}{value}" for before in folders for value in values]
    rest = table.drop_columns(list(names))
    present = np.unique(codes)
    if len(present) > MOST:
        raise DataProblem(
            f"score(..., partition_by={list(names)!r}): {len(present)} folders for {table.num_rows} rows, and {MOST} are "
            "allowed. Choose a column with fewer values."
        )
    for code in present:
        yield folders[code], rest.take(arrow.array(np.flatnonzero(codes == code)))


def without_folder(table: pa.Table, names: Sequence[str]) -> dict[int, str]:
    """Rows that have no folder, and why: readers take some texts for a missing value, and some cannot read these at all."""
    compute = needs("pyarrow.compute", "batch")
    bad: dict[int, str] = {}
    for name in names:
        column = table[name].cast(needs("pyarrow", "batch").string())
        empty = compute.or_(compute.equal(column, ""), compute.equal(column, NOTHING))
        empty = compute.fill_null(empty, True).to_numpy()
        bad |= dict.fromkeys(np.flatnonzero(empty).tolist(), f"{name!r} is missing, and partition_by makes a folder of it")
    return bad


def _folder(name: str, value: Any) -> str:
    return f"{_quoted(name)}={_quoted(str(value).lower() if isinstance(value, bool) else str(value))}/"


def _quoted(text: str) -> str:
    """As Hive does it: Spark reads the bytes of other letters, if they are escaped, as letters each."""
    return "".join(quote(letter, safe=" ") if letter.isascii() else letter for letter in text)

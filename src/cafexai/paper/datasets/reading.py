"""Files into arrays: tables of numbers, idx images, and what a file says whatever way it is packed."""

from __future__ import annotations

import csv
import gzip
import hashlib
import io
import struct
from collections.abc import Iterable
from pathlib import Path

import numpy as np


def read_bytes(path: Path) -> bytes:
    """A file's content, unpacked where it is gzipped, whatever its name says."""
    data = path.read_bytes()
    return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data


def read_table(path: Path) -> tuple[tuple[str, ...], np.ndarray]:
    """Column names and float64 values of a table with one header line, separated by commas or tabs."""
    text = read_bytes(path).decode()
    header, _, body = text.partition("\n")
    separator = "\t" if "\t" in header else ","
    names = tuple(name.strip().strip('"') for name in header.split(separator))
    values = np.loadtxt(io.StringIO(body), delimiter=separator, ndmin=2, dtype=np.float64)
    if values.shape[1] != len(names):
        raise ValueError(f"{path}: {len(names)} column names and {values.shape[1]} columns.")
    return names, values


def read_records(path: Path, columns: Iterable[str]) -> list[dict[str, str]]:
    """Lines of a csv file as texts by column name; these columns must be there, and a value for each in every line."""
    records: list[dict[str, str]] = []
    for number, record in enumerate(csv.DictReader(io.StringIO(read_bytes(path).decode())), 2):
        for name in columns:
            if record.get(name) is None:
                raise ValueError(f"{path}: line {number} has no column {name!r}; the file is incomplete or another one.")
        records.append(record)
    if not records:
        raise ValueError(f"{path}: there are no rows; the file is incomplete.")
    return records


def read_idx(path: Path) -> np.ndarray:
    """Bytes of an idx file, the format of MNIST, as an array."""
    data = read_bytes(path)
    zero, kind, dimensions = struct.unpack(">HBB", data[:4])
    if zero != 0 or kind != 8:
        raise ValueError(f"{path}: not an idx file of bytes.")
    shape = struct.unpack(f">{dimensions}I", data[4 : 4 + 4 * dimensions])
    values = np.frombuffer(data, np.uint8, offset=4 + 4 * dimensions)
    if values.size != np.prod(shape):
        raise ValueError(f"{path}: {values.size} bytes where {shape} are announced; the file is incomplete.")
    return values.reshape(shape)


def table_digest(path: Path) -> str:
    """SHA-256 of the column names and numbers of a table: the same for commas and tabs, 1 and 1.0."""
    names, values = read_table(path)
    return hashlib.sha256(",".join(names).encode() + values.astype("<f8").tobytes()).hexdigest()


def bytes_digest(path: Path) -> str:
    """SHA-256 of the unpacked file."""
    return hashlib.sha256(read_bytes(path)).hexdigest()

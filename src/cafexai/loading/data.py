"""Data that come as files: tables, arrays, folders of images, files of texts."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from .._extras import needs, progress
from .file_errors import DataProblem, existing, in_other_letters, short
from .tables import TABLES, choose_columns, kinds_of, read_table

IMAGES = (".png", ".jpg", ".jpeg", ".bmp", ".gif", ".tif", ".tiff", ".webp")
KINDS = "a table (.csv, .tsv, .parquet), arrays (.npz, .npy), a folder of images, or texts (.txt, one per line)"


@dataclass(frozen=True)
class Data:
    """Rows of a file.

    Args:
        form: "table", "arrays", "images" or "texts".
        rows: A data frame, an array by name for each input, or a list of images or texts.
        names: Names of the columns, or of the arrays.
        kinds: Column -> "number", "category" ...
        places: The positions of the rows in the file.
        labels: Names of the rows: the names of images.
        notes: What was left out.
    """

    form: str
    rows: Any
    names: tuple[str, ...] = ()
    kinds: Mapping[str, str] = field(default_factory=dict)
    places: tuple[int, ...] = ()
    labels: tuple[str, ...] | None = None
    notes: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.places)

    def take(self, places: Sequence[int]) -> Data:
        """Some of the rows.

        Args:
            places: Their positions.

        Returns:
            The rows, with their names and kinds.
        """
        kept = list(places)
        if self.form == "table":
            rows = self.rows.iloc[kept].reset_index(drop=True)  # labels are kept apart
        elif self.form == "arrays":
            rows = {name: array[kept] for name, array in self.rows.items()}
        else:
            rows = [self.rows[place] for place in kept]
        labels = None if self.labels is None else tuple(self.labels[place] for place in kept)
        return replace(self, rows=rows, places=tuple(self.places[place] for place in kept), labels=labels)


def read_data(
    path: str | os.PathLike[str], columns: Sequence[str] | None = None, *, encoding: str | None = None, what: str = "the data"
) -> Data:
    """The rows of a file or folder, by its ending.

    Args:
        path: The file or folder.
        columns: Columns of a table, or arrays, in this order; None takes all.
        encoding: The encoding of a text file; None detects it.
        what: A name for the data in messages.

    Returns:
        The rows.

    Raises:
        DataProblem: The file cannot be read, or a column is missing.

    Example:
        >>> from pathlib import Path
        >>> from cafexai.loading import read_data
        >>> _ = Path("people.csv").write_text("age,income" + chr(10) + "41,1.5")
        >>> read_data("people.csv").names
        ('age', 'income')
    """
    place = existing(os.fspath(path), DataProblem, what)
    ending = place.suffix.lower()
    if place.is_dir():
        data = _images(place)
    elif ending in TABLES:
        frame, notes = read_table(place, encoding)
        if columns is not None:
            frame, notes = frame[choose_columns(frame.columns, columns, str(place), "column")], ()
        names = tuple(map(str, frame.columns))
        data = Data("table", frame, names, kinds_of(frame), tuple(range(len(frame))), notes=notes)
    elif ending in (".npz", ".npy"):
        data = _arrays(place, columns)
    elif ending == ".txt":
        data = _texts(place, encoding)
    else:
        raise DataProblem(f"{place}: unknown kind of data. Allowed kinds: {KINDS}.")
    if not len(data):
        raise DataProblem(f"{place}: it holds no rows, so there is nothing to explain.")
    if columns is not None and data.form in ("images", "texts"):
        raise DataProblem(f"{place}: {data.form} have no columns to choose. Leave --columns out.")
    return data


def _arrays(path: Path, names: Sequence[str] | None) -> Data:
    import numpy as np

    try:
        loaded = np.load(path, allow_pickle=False)
        found = {name: loaded[name] for name in loaded.files} if path.suffix.lower() == ".npz" else {path.stem: loaded}
    except Exception as error:
        raise DataProblem(
            f"{path}: no arrays of numbers can be read from it ({short(error, 120)}). Write them by numpy.savez(path, x=array)."
        ) from error
    kept = found if names is None else {name: found[name] for name in choose_columns(list(found), names, str(path), "array")}
    lengths = {name: array.shape[0] if array.ndim else 0 for name, array in kept.items()}
    if len(set(lengths.values())) > 1:
        told = ", ".join(f"{name} {kept[name].shape}" for name in kept)
        raise DataProblem(f"{path}: its arrays have different numbers of rows: {told}. Choose some by --columns name,name.")
    return Data("arrays", kept, tuple(kept), {}, tuple(range(next(iter(lengths.values()), 0))))


def _images(folder: Path) -> Data:
    files = sorted(file for file in folder.iterdir() if file.suffix.lower() in IMAGES)
    if not files:
        raise DataProblem(f"{folder}: there are no images in this folder. Images end in {', '.join(IMAGES)}.")
    rows = []
    for file in progress(files, "reading images", "image"):
        rows.append(_image(file))
    return Data("images", rows, places=tuple(range(len(rows))), labels=tuple(file.name for file in files))


def _image(file: Path) -> Any:
    """One image, upright."""
    images, operations = needs("PIL.Image", "data"), needs("PIL.ImageOps", "data")
    try:
        with images.open(file) as image:
            image.load()
            return operations.exif_transpose(image)
    except Exception as error:
        raise DataProblem(f"{file}: no image can be read from it ({short(error, 120)}). Take it out of the folder.") from error


def _texts(path: Path, encoding: str | None) -> Data:
    try:
        lines = path.read_bytes().decode(encoding or "utf-8-sig").splitlines()
    except (UnicodeDecodeError, LookupError) as error:
        raise in_other_letters(path, encoding, error) from error
    places = tuple(place for place, line in enumerate(lines) if line.strip())
    empty = len(lines) - len(places)
    notes = (f"{path}: {empty} empty line{'s' * (empty > 1)} left out.",) if empty else ()
    return Data("texts", [lines[place].strip() for place in places], places=places, notes=notes)

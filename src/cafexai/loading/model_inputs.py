"""Rows of a file in the form that a model takes."""

from __future__ import annotations

import inspect
import os
from pathlib import Path
from typing import Any

from .._extras import needs
from .data import Data
from .file_errors import DataProblem, ModelProblem, existing, short
from .tables import choose_columns, list_names
from .user_code import attribute, describe_error


def model_inputs(model: Any, data: Data, *, schema: Any = None, preprocess: Any = None) -> tuple[Any, Any]:
    """Rows of a file as a model takes them.

    Args:
        model: The model.
        data: The rows.
        schema: A ``cafexai.Schema``.
        preprocess: A function from one picture, or row, to the tensor that the model takes.

    Returns:
        What the model gets (a frame, an array, several of them, or texts), and the values to show, or None.

    Raises:
        DataProblem: The rows do not fit the model.
    """
    if schema is not None and data.form != "table":
        raise DataProblem(f"a schema describes the columns of a table, and these are {data.form}. Leave --schema out.")
    if data.form == "texts":
        return data.rows, None
    if data.form == "images":
        return _images(data, preprocess)
    if data.form == "arrays":
        return _arrays(model, data, preprocess)
    if schema is not None:
        return _describe_columns(schema, data), None
    frame = _frame(model, data)
    return frame, None if hasattr(model, "from_raw") else frame  # with the digits of the file


def columns_of_model(model: Any) -> list[str] | None:
    """The columns that a scikit-learn model was fitted on.

    Args:
        model: The model.

    Returns:
        Their names; None if the model does not know them.
    """
    for owner in (getattr(model, "steps", None), model):
        names = getattr(owner, "feature_names_in_", None)
        if names is not None:
            return list(map(str, names))
    known = getattr(model, "known", None)
    return None if known is None or not hasattr(model, "from_raw") else list(known)


def _frame(model: Any, data: Data) -> Any:
    known = columns_of_model(model)
    if known is not None:
        return data.rows[choose_columns(data.names, known, "the data", "column")]
    if hasattr(model, "from_raw"):
        return data.rows
    words = [name for name, kind in data.kinds.items() if kind not in ("number", "yes or no")]
    if words:
        raise DataProblem(
            f"the columns {list_names(words)} hold no numbers, and the model takes numbers. Choose its columns with --columns, "
            "describe the codes of words with --schema, or give a scikit-learn pipeline, which encodes them."
        )
    lacking = data.rows.isna()
    if lacking.to_numpy().any():
        name = next(name for name in data.rows.columns if lacking[name].any())
        row = data.places[int(lacking[name].to_numpy().argmax())]
        count = int(lacking.to_numpy().sum())
        raise DataProblem(
            f"{count} value{'s are' if count > 1 else ' is'} missing, the first in row {row}, column {name!r}, and the model "
            "takes none. Fill in what is missing, choose other --rows, or give a pipeline with an imputer."
        )
    return data.rows


def _describe_columns(schema: Any, data: Data) -> Any:
    """The columns of a schema, with what it knows in all of them."""
    frame = data.rows[choose_columns(data.names, schema.names, "the data", "column")]
    bad = schema.check(frame)
    if bad:
        row, reason = min(bad.items())
        raise DataProblem(
            f"row {data.places[row]}, column {reason} ({len(bad)} such row{'s' * (len(bad) > 1)}). Fill in what is missing, "
            "add new categories to the schema, or choose other --rows."
        )
    return frame


def _arrays(model: Any, data: Data, preprocess: Any) -> tuple[Any, Any]:
    import numpy as np

    odd = [name for name, array in data.rows.items() if array.dtype.kind not in "iufb"]
    if odd:
        raise DataProblem(f"the array {odd[0]!r} holds {data.rows[odd[0]].dtype}, not numbers. Choose arrays by --columns.")
    named = data.rows
    if len(named) > 1:
        takes = getattr(model, "input_names", None) or inspect.signature(getattr(model, "forward", model)).parameters
        named = {name: named[name] for name in takes if name in named} or named
    arrays = [array.astype("float32") if array.dtype.kind == "b" else array for array in named.values()]
    if len(arrays) > 1:
        return tuple(arrays), None
    if preprocess is not None:
        return _make_rows(preprocess, list(arrays[0]), data)
    if arrays[0].dtype == np.uint8 and arrays[0].ndim == 4:
        return _pixels(arrays[0]), None
    return arrays[0], None


def _images(data: Data, preprocess: Any) -> tuple[Any, Any]:
    if preprocess is not None:
        return _make_rows(preprocess, data.rows, data)
    import numpy as np

    plain = [image if image.mode in ("L", "RGB") else image.convert("RGB") for image in data.rows]
    if len({image.mode for image in plain}) > 1:
        plain = [image.convert("RGB") for image in plain]
    sizes = {image.size for image in plain}
    if len(sizes) > 1:
        told = ", ".join(f"{width} x {height}" for width, height in sorted(sizes)[:3])
        raise DataProblem(
            f"the images have different sizes ({told}). Give --preprocess package.module:function, which makes them equal."
        )
    stack = np.stack([np.asarray(image) for image in plain])
    return _pixels(stack if stack.ndim == 4 else stack[..., None]), None


def _pixels(stack: Any) -> Any:
    """Bytes with the channels last or first -> numbers from 0 to 1, channels first."""
    last = stack.shape[3] <= 4 and stack.shape[1] > 4
    return (stack.transpose(0, 3, 1, 2) if last else stack).astype("float32") / 255


def _make_rows(preprocess: Any, rows: list[Any], data: Data) -> tuple[Any, Any]:
    """Every row as the function of the user makes it, and the pictures where they keep their size."""
    from .._inputs.images import preprocess_images

    place = iter(data.places)

    def one(row: Any) -> Any:
        number = next(place)
        try:
            return preprocess(row)
        except Exception as error:
            raise ModelProblem(f"--preprocess: it failed at row {number}: {describe_error(error)}.") from error

    try:
        return preprocess_images(rows, one, "--preprocess")
    except ModelProblem:
        raise
    except ValueError as error:
        raise ModelProblem(str(error).replace("--preprocess(..., preprocess=...)", "--preprocess")) from error


def load_function(spec: str | None) -> Any:
    """A function of the user."""
    found = None if spec is None else attribute(spec)
    if spec is not None and not callable(found):
        raise ModelProblem(f"--preprocess {spec}: it is a {type(found).__name__}, not a function.")
    return found


def load_tokenizer(folder: str | os.PathLike[str] | None) -> Any:
    """The tokenizer of a folder; nothing is downloaded."""
    if folder is None:
        return None
    place = existing(os.fspath(folder), ModelProblem, "the tokenizer")
    transformers = needs("transformers", "text")
    try:
        return transformers.AutoTokenizer.from_pretrained(Path(place).resolve(), local_files_only=True)
    except Exception as error:
        raise ModelProblem(
            f"--tokenizer {folder}: no tokenizer can be read from it ({short(error, 160)}). It is the folder that "
            "tokenizer.save_pretrained(folder) wrote."
        ) from error

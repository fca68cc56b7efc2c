"""What a model and its settings are, in a few letters: another weight, another line of code, another fingerprint."""

from __future__ import annotations

import dataclasses
import hashlib
import inspect
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from .. import __version__
from .._engine.request import Request
from ..cafe import CAFE
from ._model_code import code_of, describe_module, plain, settings_of

UNSEEN = ("show_progress", "batch_size", "display", "per_row")  # options that change no score beyond its last digits


@dataclass(frozen=True)
class Fingerprints:
    """What made some scores: two that are equal were made by the same model, schema, baseline and settings.

    Args:
        model: Weights, code of classes, fitted pipeline.
        schema: Columns and their categories.
        baseline: What rows are compared with, and the background.
        settings: c, the variant and other options of the explainer, those of ``explain``, and the version of cafexai.
    """

    model: str
    schema: str
    baseline: str
    settings: str

    @classmethod
    def of(cls, cafe: CAFE, request: Request | None = None, columns: Sequence[str] | None = None) -> Fingerprints:
        """The fingerprints of an explainer and what is asked of it.

        Args:
            cafe: The explainer.
            request: The options of ``explain``.
            columns: The features, where neither a schema nor the explainer names them.

        Returns:
            The same fingerprints that parts of ``batch`` and answers of ``serve`` carry.

        Example:
            >>> Fingerprints.of(CAFE(model), Request(target=1), ["age", "income"]).as_dict()  # doctest: +SKIP
        """
        asked = {name: value for name, value in vars(request or Request()).items() if name not in UNSEEN}
        baseline = asked.pop("baselines")
        names = ("c", "variant", "class_names", "probability", "allow_nan")
        settings = {**{name: getattr(cafe, name) for name in names}, "version": __version__, **asked}
        return cls(
            fingerprint(cafe.model),
            fingerprint((cafe.schema, list(columns or cafe.feature_names or ()))),
            fingerprint((baseline, cafe.background)),
            fingerprint(settings),
        )

    def as_dict(self) -> dict[str, str]:
        """All of them, and ``id``, which is of all together."""
        return {"id": fingerprint(vars(self)), **vars(self)}


def fingerprint(value: Any) -> str:
    """Of numbers, words, tensors, arrays, frames, modules, functions and fitted models."""
    total = hashlib.blake2b(digest_size=16)
    _add(total, value)
    return total.hexdigest()


def _add(total: Any, value: Any) -> None:
    if isinstance(value, nn.Module):
        _add_module(total, value)
        return
    total.update(f"\n{type(value).__module__}.{type(value).__qualname__} ".encode())
    if isinstance(value, Tensor):
        total.update(value.detach().cpu().contiguous().flatten().view(torch.uint8).numpy().data if value.numel() else b"")
        total.update(f"{value.dtype} {tuple(value.shape)}".encode())
    elif isinstance(value, np.ndarray) and value.dtype != object:
        total.update(f"{value.dtype} {value.shape}".encode())
        total.update(np.ascontiguousarray(value).data if value.size else b"")
    elif value is None or isinstance(value, (str, int, float, bool, complex, bytes)):
        total.update(repr(value).encode())
    elif dataclasses.is_dataclass(value) and not isinstance(value, type):
        _add(total, {field.name: getattr(value, field.name) for field in dataclasses.fields(value)})
    elif isinstance(value, Mapping):
        total.update(str(len(value)).encode())
        for key in sorted(value, key=repr):
            _add(total, key)
            _add(total, value[key])
    elif isinstance(value, (list, tuple)):
        total.update(str(len(value)).encode())
        for one in value:
            _add(total, one)
    elif hasattr(value, "columns") and hasattr(value, "to_numpy"):
        _add(total, (list(map(str, value.columns)), [_column(value[name]) for name in value.columns]))
    elif inspect.isroutine(value) or inspect.isclass(value):
        _add(total, code_of([value]))
    else:
        _add_object(total, value)


def _add_module(total: Any, module: nn.Module) -> None:
    """Names, weights, what is set, and the code of classes that are not torch's own."""
    total.update(describe_module(module).encode())
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        _add(total, (name, tensor))
    _add(total, code_of(sorted({type(one) for one in module.modules()}, key=str)))
    if not hasattr(type(module), "from_raw"):
        _add(total, settings_of(module))
        return
    for name, value in sorted(vars(module).items()):  # it holds a fitted pipeline, which is no tensor
        if not name.startswith("_") and name != "training":
            _add(total, (name, value))


def _add_object(total: Any, value: Any) -> None:
    """Fitted models of others, by what they are made of."""
    try:
        import joblib
    except ModuleNotFoundError:
        _add(total, plain(value))
    else:
        total.update(str(joblib.hash(value)).encode())


def _column(cells: Any) -> Any:
    found = np.asarray(cells)
    return found if found.dtype != object else [repr(cell) for cell in found]

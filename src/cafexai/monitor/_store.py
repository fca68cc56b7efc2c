"""Monitors on disk: one safetensors file, with everything that is no array as JSON in its header."""

from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from .._files import read_file, write_file
from ..batch._fingerprint import fingerprint
from ._baselines import decode_baselines, encode_baselines, uses_background
from ._bins import Bins
from ._reference import Reference
from ._window import ARRAYS, NUMBERS, Window

if TYPE_CHECKING:
    from ..cafe import CAFE

FORMAT = "monitor-4"


def fingerprint_fit(cafe: CAFE, reference: Reference, options: dict[str, Any]) -> dict[str, str]:
    """Of all that decides on scores and verdicts, by what it is about."""
    bins = [(one.points, one.few, one.low, one.high) for one in reference.bins]
    fitted = (bins, reference.window.counts, reference.ranks, dict(reference.limits))
    baselines = options["baselines"]
    background = cafe.background if uses_background(cafe, baselines) else None
    with contextlib.suppress(TypeError):  # a function has its code
        baselines = json.dumps(encode_baselines(baselines))
    parts = {
        "model": cafe.model,
        "variant": str(cafe.variant),
        "c": str(cafe.c),
        "schema": cafe.schema,
        "preprocessing": (cafe.preprocess, cafe.allow_nan),
        "background": background,
        "baselines": baselines,
        "target": options["target"],
        "reference": (reference.features, fitted),
    }
    return {name: fingerprint(part) for name, part in parts.items()}


def save_monitor(
    path: str | os.PathLike[str], identity: dict[str, str], reference: Reference, window: Window, options: dict[str, Any]
) -> None:
    """Write a monitor."""
    try:
        plain = {**options, "baselines": encode_baselines(options["baselines"])}
        json.dumps(plain)
    except TypeError as error:
        raise ValueError(
            f"monitor.save({os.fspath(path)!r}): target and baselines are written as JSON, and this cannot be: {error}. Give "
            'Monitor.fit rows, numbers or words, such as baselines="median".'
        ) from None
    windows = {"reference": reference.window, "window": window}
    arrays: dict[str, Any] = {"ranks": reference.ranks, "spreads": reference.spreads}
    arrays |= {"pair_noise": reference.pair_noise, "points": np.concatenate([one.points for one in reference.bins])}
    arrays |= {f"{prefix}.{name}": getattr(one, name) for prefix, one in windows.items() for name in ARRAYS}
    described = {
        "format": FORMAT,
        "fingerprint": identity,
        "features": list(reference.features),
        "categories": {name: list(words) for name, words in reference.categories.items()},
        "bins": [(len(one.points), one.few, one.low, one.high) for one in reference.bins],
        "limits": dict(reference.limits),
        "false_alarms": reference.false_alarms,
        "chunk_rows": reference.chunk_rows,
        "options": plain,
        **{prefix: {name: int(getattr(one, name)) for name in NUMBERS} for prefix, one in windows.items()},
    }
    tensors = {name: torch.from_numpy(np.ascontiguousarray(value)) for name, value in arrays.items()}
    write_file(path, "Monitor", tensors, described)


def load_monitor(path: str | os.PathLike[str]) -> tuple[dict[str, str], Reference, Window, dict[str, Any]]:
    """What ``save_monitor`` wrote: fingerprints, reference, window, options."""
    tensors, described = read_file(path, "Monitor", FORMAT, None)
    points, bins, start = tensors["points"].numpy(), [], 0
    for size, few, low, high in described["bins"]:
        bins.append(Bins(points[start : start + size], few, low, high))
        start += size
    reference = Reference(
        tuple(described["features"]),
        {name: tuple(words) for name, words in described["categories"].items()},
        tuple(bins),
        tensors["ranks"].numpy(),
        _window("reference", tensors, described),
        tensors["pair_noise"].numpy(),
        described["limits"],
        described["false_alarms"],
        described["chunk_rows"],
        tensors["spreads"].numpy(),
    )
    options = {**described["options"], "baselines": decode_baselines(described["options"]["baselines"])}
    return described["fingerprint"], reference, _window("window", tensors, described), options


def _window(prefix: str, tensors: dict[str, Tensor], described: dict[str, Any]) -> Window:
    found: dict[str, Any] = {name: tensors[f"{prefix}.{name}"].numpy() for name in ARRAYS}
    return Window(**described[prefix], **found)

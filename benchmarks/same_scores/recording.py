"""Compute parts and keep what they give: numbers, and texts for what was raised, warned of, frozen or noted."""

from __future__ import annotations

import dataclasses
import importlib
import itertools
import logging
import re
import sys
import time
import warnings
import zlib
from collections.abc import Mapping
from pathlib import Path

import numpy as np
import torch
from entries import TENSORS, TEXTS, packed, summary
from torch import Tensor

import cafexai
from cafexai import Explanation, Explanations

FOLDER = Path(__file__).resolve().parent.name


def dump(path, parts, every):
    """Compute every ``every``-th run of the parts and write what they give."""
    print(f"cafexai of {Path(cafexai.__file__).parent}, torch {torch.__version__}")
    make_repeatable()
    entries = {}
    for part in parts:
        start = time.perf_counter()
        found = computed(part, every)
        entries |= found
        print(f"{part}: {summary(found)}, {time.perf_counter() - start:.0f} s", flush=True)
    torch.save(packed(entries), path)
    print(f"in all: {summary(entries)}, written to {path}")


def make_repeatable():
    """The same numbers in every process, and silence."""
    torch.set_num_threads(1)
    torch.backends.mkldnn.set_flags(False)  # its GELU of one row depends on the calls before: kernels are kept by shape alone
    logging.disable(logging.WARNING)
    warnings.simplefilter("ignore")  # where models are built; outcomes keep theirs


def computed(part, every=1):
    """All entries of every ``every``-th run of a part."""
    entries = {}
    for name, compute in itertools.islice(importlib.import_module(f"of_{part}").runs(), 0, None, every):
        new = outcome(f"{part}/{name}", compute)
        if repeated := entries.keys() & new.keys():
            raise ValueError(f"Two entries are named {min(repeated)}.")
        entries.update(new)
    return entries


def outcome(name, compute):
    """What a computation gives, or what it raises, by name."""
    torch.manual_seed(zlib.crc32(name.encode()))
    np.random.seed(0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            entries = dict(flat(name, compute()))
        except Exception as error:  # refusals are compared as well
            entries = {f"{name}/error": f"{type(error).__name__}: {error}"}
    if caught:
        entries[f"{name}/warnings"] = "\n".join(dict.fromkeys(str(warning.message) for warning in caught))
    return {key: sys.intern(tidy(value)) if isinstance(value, str) else value for key, value in entries.items()}


def tidy(text):
    """A text without what says nothing about the computation: folders, lines, files of this folder and places in memory."""
    text = re.sub(rf"[^\s'\"(]*\b{FOLDER}/\w+\.py(:\d+)?", f"{FOLDER}.py", text)
    text = re.sub(r"[^\s'\"(]*/(\w+\.py)(:\d+)?", r"\1", text)
    return re.sub(r"0x[0-9a-f]+", "0x", text)


def flat(name, value):
    """(name, tensor or text) of everything in a result."""
    if isinstance(value, Tensor):
        yield name, value.detach().cpu().clone()
    elif isinstance(value, (bool, int, float)):
        yield name, torch.tensor(value, dtype=torch.float64)
    elif isinstance(value, Explanations):
        yield from stacked(name, [dict(flat("", explanation)) for explanation in value.values()])
        yield f"{name}/keys", f"{value.by} {list(value)}"
    elif (parts := parts_of(value)) is not None:
        for key, part in parts.items():
            yield from flat(f"{name}/{key}", part)
    elif value is not None:
        yield name, str(value)


def parts_of(value):
    """What a result consists of, by name; None if it is one piece."""
    if isinstance(value, Explanation):
        tensors = {field: getattr(value, field, None) for field in TENSORS}
        tensors["s_conf"] = value.s_conf if hasattr(value, "s_conf") else value.conflict  # its name before 0.2
        return tensors | {field: str(getattr(value, field)) for field in TEXTS}
    if dataclasses.is_dataclass(value):
        return {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return value
    return dict(enumerate(value)) if isinstance(value, (tuple, list)) else None


def stacked(name, parts):
    """Those of several explanations, tensors of one field as one."""
    for field in dict.fromkeys(field for part in parts for field in part):
        values = [part[field] for part in parts if field in part]
        if isinstance(values[0], Tensor):
            yield name + field, torch.stack(values)
        else:
            yield name + field, "\n".join(dict.fromkeys(values))

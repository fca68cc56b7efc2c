"""Tensors with a description on disk: safetensors files that are written as a whole and checked when they are read."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from ._extras import needs


def replace_file(path: str | os.PathLike[str], call: str, write: Callable[[str], object]) -> None:
    """Write beside the place, then rename; only a regular file is replaced, a symbolic link is followed to its file."""
    place = os.path.realpath(os.fspath(path))
    if os.path.lexists(place) and not os.path.isfile(place):
        raise ValueError(f"{call}: something that is no regular file is there, and is not replaced. Give another name.")
    if not os.path.isdir(os.path.dirname(place)):
        raise FileNotFoundError(f"{call}: there is no folder {os.path.dirname(place)!r}. Make it first.")
    part = f"{place}.{secrets.token_hex(4)}.part"
    try:
        write(part)
        if os.path.exists(place):
            shutil.copymode(place, part)
        os.replace(part, place)
    finally:
        with contextlib.suppress(FileNotFoundError):
            os.remove(part)


def write_file(path: str | os.PathLike[str], kind: str, tensors: Mapping[str, Tensor], described: Mapping[str, Any]) -> None:
    """A safetensors file with a checksum, there as a whole or not at all."""
    name = os.fspath(path)
    call = f"{kind}.save({name!r})"
    safetensors = needs("safetensors.torch", "io")
    if not name.endswith(".safetensors"):
        raise ValueError(
            f"{call}: it writes a safetensors file; let the name end in .safetensors. A table is written by "
            "e.to_frame().to_csv(...)."
        )
    contiguous = {key: tensor.detach().cpu().contiguous().clone() for key, tensor in tensors.items()}
    text = json.dumps(described)
    header = {"cafexai": text, "checksum": checksum(contiguous, text)}
    replace_file(path, call, lambda part: safetensors.save_file(contiguous, part, header))


def read_file(path: str | os.PathLike[str], kind: str, form: Any, unchecked: Any) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """What ``write_file`` wrote, if its checksum is right; files of the form ``unchecked``, of version 0.1, have none."""
    safetensors = needs("safetensors", "io")
    call = f"{kind}.load({os.fspath(path)!r})"
    try:
        with safetensors.safe_open(os.fspath(path), "pt") as file:
            header = file.metadata() or {}
            described = json.loads(header.get("cafexai", "null"))
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except FileNotFoundError:
        raise
    except Exception as error:
        raise ValueError(f"{call}: not a safetensors file ({error}).") from error
    found = described.pop("format", None) if isinstance(described, dict) else None
    if found not in (form, unchecked):
        raise ValueError(f"{call}: the file was not written by {kind}.save of this version.")
    if (found == form or "checksum" in header) and header.get("checksum") != checksum(tensors, header["cafexai"]):
        raise ValueError(f"{call}: the file has changed since it was written: its checksum is wrong. Explain the rows again.")
    return tensors, described


def checksum(tensors: Mapping[str, Tensor], text: str) -> str:
    """Of the description, and of the name, kind, shape and bytes of every tensor."""
    total = hashlib.sha256(text.encode())
    for name in sorted(tensors):
        tensor = tensors[name]
        total.update(f"\n{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        total.update(tensor.flatten().view(torch.uint8).numpy().data)
    return total.hexdigest()

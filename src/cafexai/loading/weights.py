"""Weights for a model: safetensors, or torch's own files read without running code."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._extras import needs
from .file_errors import ModelProblem, short

NESTED = ("state_dict", "model_state_dict", "model")  # where trainers keep the weights of a checkpoint


def load_weights(model: Any, path: Path, trust: bool = False) -> None:
    """Load the weights of a file into the model; refused unless they are just the ones it has."""
    given = _read(path, trust)
    own = model.state_dict()
    missing, other = [name for name in own if name not in given], [name for name in given if name not in own]
    wrong = [
        f"{name} is {tuple(given[name].shape)} in the file and {tuple(own[name].shape)} in the model"
        for name in own
        if name in given and given[name].shape != own[name].shape
    ]
    told = [
        *([f"the file lacks {_list_names(missing)}"] if missing else []),
        *([f"the model has no {_list_names(other)}"] if other else []),
        *wrong[:3],
    ]
    if told:
        raise ModelProblem(f"--weights {path}: they do not fit the model: {'; '.join(told)}. Are they those of this model?")
    model.load_state_dict(given)


def _read(path: Path, trust: bool) -> dict[str, Any]:
    import torch

    try:
        if path.suffix.lower() == ".safetensors":
            found = needs("safetensors.torch", "io").load_file(path)
        else:
            found = torch.load(path, map_location="cpu", weights_only=not trust)
    except ModuleNotFoundError:
        raise
    except Exception as error:
        told = str(error)
        if "weights_only" in told and ("GLOBAL" in told or "Unsupported" in told):
            raise ModelProblem(
                f"--weights {path}: it holds more than tensors, and reading that runs code. Save model.state_dict() alone; if "
                "you know who made the file, add --trust."
            ) from error
        raise ModelProblem(
            f"--weights {path}: no weights can be read from it ({short(error, 120)}). Is it complete? Files of safetensors end "
            "in .safetensors, those of torch.save(model.state_dict(), path) in .pt."
        ) from error
    for name in NESTED:
        if isinstance(found, Mapping) and isinstance(found.get(name), Mapping):
            found = found[name]
    if isinstance(found, torch.nn.Module):
        found = found.state_dict()
    if not isinstance(found, Mapping) or not all(isinstance(value, torch.Tensor) for value in found.values()):
        raise ModelProblem(f"--weights {path}: it holds no weights by name. Save them as torch.save(model.state_dict(), path).")
    return dict(found)


def _list_names(names: list[str], most: int = 3) -> str:
    return ", ".join(names[:most]) + (f" and {len(names) - most} more" if len(names) > most else "")

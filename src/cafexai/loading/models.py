"""Models that come as files, or from the user's code."""

from __future__ import annotations

import contextlib
import inspect
import os
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from .._extras import needs
from .._inputs.trees import refuse_trees
from .file_errors import ModelProblem, existing, short
from .user_code import attribute, describe_error, find_own_modules
from .weights import load_weights

KINDS = "package.module:factory, .skops and .onnx; with --trust also .pt2, .pt, .pkl and .joblib"

_OPTIMIZERS = "sklearn.neural_network._stochastic_optimizers"
HARMLESS = ("numpy.dtype", f"{_OPTIMIZERS}.AdamOptimizer", f"{_OPTIMIZERS}.SGDOptimizer")  # in every fitted perceptron


def load_model(spec: str | os.PathLike[str], weights: str | os.PathLike[str] | None = None, trust: bool = False) -> Any:
    """Load a model that is given as text.

    Args:
        spec: ``package.module:factory`` or ``file.py:factory``, code of the user: a module, or a function that makes one.
            Else a file: ``.onnx``, ``.skops``, ``.pt2``, ``.pkl``, ``.joblib``, or ``.pt`` with a whole model.
        weights: A file of weights, which are loaded into the module that the code made.
        trust: Allow files that can run code when they are read: ``.pt2`` (of torch), ``.pkl``, ``.joblib``, ``.pt``.

    Returns:
        The model, ready to be explained.

    Raises:
        ModelProblem: The model cannot be loaded; the message says why.
    """
    name = os.fspath(spec)
    ending = Path(name).suffix.lower()
    in_code = ":" in Path(name).name and ending not in _READERS
    if not in_code and ending not in _READERS:
        remedy = f" Code is named as {name}:factory." if ending == ".py" else ""
        raise ModelProblem(f"{name}: unknown kind of model. Allowed kinds: {KINDS}.{remedy}")
    if trust:
        find_own_modules()  # what a trusted file needs
    made = _call_factory(name) if in_code else _READERS[ending](existing(name, ModelProblem, "the model"), trust)
    model = _as_network(made, name)
    if weights is not None:
        if not hasattr(model, "load_state_dict") or hasattr(model, "from_raw"):
            raise ModelProblem(f"--weights {weights}: {name} is no PyTorch module that takes weights.")
        load_weights(model, existing(os.fspath(weights), ModelProblem, "the weights"), trust)
    with contextlib.suppress(NotImplementedError):  # exported programs have no modes
        if hasattr(model, "eval"):
            model.eval()
    return model


def _call_factory(spec: str) -> Any:
    """A model of the user's code."""
    found = attribute(spec)
    if not callable(found):
        raise ModelProblem(f"{spec}: it is a {type(found).__name__}, neither a model nor something that makes one.")
    if not inspect.isclass(found) and (hasattr(found, "parameters") or _of_sklearn(found)):
        return found
    needed = _without_default(found)
    if needed:
        raise ModelProblem(
            f"{spec}: a factory is called without arguments, and this one needs {', '.join(needed)}. Write a function that "
            "makes the model with these set."
        )
    try:
        return found()
    except Exception as error:
        raise ModelProblem(f"{spec}(): it failed: {describe_error(error)}.") from error


def _without_default(found: Callable[..., Any]) -> list[str]:
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return []
    plain = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return [one.name for one in parameters if one.default is one.empty and one.kind not in plain]


def _of_sklearn(model: Any) -> bool:
    return hasattr(model, "get_params") and hasattr(model, "predict") and not hasattr(model, "module_")  # skorch has one


def _as_network(made: Any, name: str) -> Any:
    if _of_sklearn(made):
        from ..sklearn import from_sklearn

        try:
            return from_sklearn(made)
        except ValueError as error:
            raise ModelProblem(f"{name}: {error}") from error
    try:
        refuse_trees(made, f"load_model({Path(name).name!r})")
    except ValueError as error:
        raise ModelProblem(f"{name}: {error}") from error
    if not callable(made) and not hasattr(made, "module_"):
        raise ModelProblem(f"{name}: it holds a {type(made).__name__}, which is no model.")
    return made


def _refuse(path: Path, why: str, instead: str) -> ModelProblem:
    return ModelProblem(f"{path}: {why}. If you know who made it, add --trust; safer is {instead}.")


@contextlib.contextmanager
def _reading(path: Path) -> Iterator[None]:
    try:
        yield
    except (ModelProblem, KeyboardInterrupt):
        raise
    except ModuleNotFoundError as error:
        if "pip install" in str(error):
            raise
        raise ModelProblem(f"{path}: it needs the module {error.name!r}. Start in the folder that holds it.") from error
    except Exception as error:
        raise ModelProblem(
            f"{path}: it cannot be read ({short(error)}). Is it complete, and written by a fitting version?"
        ) from error


def _load_exported(path: Path, trust: bool) -> Any:
    if not trust:
        raise _refuse(path, "reading an exported program can run code that is in it", "package.module:factory with --weights")
    import torch

    with _reading(path):
        return torch.export.load(path).module()


def _skops(path: Path, trust: bool) -> Any:
    io = needs("skops.io", "skops")
    with _reading(path):
        unknown = [kind for kind in io.get_untrusted_types(file=path) if trust or kind not in HARMLESS]
    if unknown and not trust:
        raise _refuse(path, f"it holds types that are not known to be harmless: {', '.join(unknown)}", "to leave them out")
    with _reading(path):
        return io.load(path, trusted=[*unknown, *HARMLESS])


def _load_pickled(path: Path, trust: bool) -> Any:
    if not trust:
        raise _refuse(path, "reading a pickle runs code that is in it", "a .skops file (skops.io.dump(model, path))")
    with _reading(path):
        if path.suffix.lower() == ".joblib":
            return needs("joblib", "sklearn").load(path)
        import pickle

        with path.open("rb") as file:
            return pickle.load(file)


def _whole(path: Path, trust: bool) -> Any:
    """A file of torch.save that should hold a whole module."""
    import torch

    if zipfile.is_zipfile(path) and any("/code/" in name for name in zipfile.ZipFile(path).namelist()):
        raise ModelProblem(f"{path}: it is a scripted model, whose calls cannot be followed. Give package.module:factory.")
    if _only_weights(path):
        raise ModelProblem(
            f"{path}: it holds weights and no model. Say how the model is made, and give them beside it: "
            f"cafexai explain package.module:factory DATA --weights {path}."
        )
    if not trust:
        raise _refuse(path, "reading a whole model runs code that is in it", "package.module:factory with --weights")
    with _reading(path):
        return torch.load(path, map_location="cpu", weights_only=False)


def _only_weights(path: Path) -> bool:
    import torch

    try:
        torch.load(path, map_location="cpu", weights_only=True)
    except Exception:
        return False
    return True


def _onnx(path: Path, trust: bool) -> Any:
    from ..onnx import from_onnx

    with _reading(path):
        return from_onnx(path)


_READERS: dict[str, Callable[[Path, bool], Any]] = {
    ".pt2": _load_exported,
    ".skops": _skops,
    ".onnx": _onnx,
    ".pkl": _load_pickled,
    ".pickle": _load_pickled,
    ".joblib": _load_pickled,
    ".pt": _whole,
    ".pth": _whole,
}

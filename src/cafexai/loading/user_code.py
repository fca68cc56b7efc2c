"""Things that live in the user's code: ``package.module:name`` or ``file.py:name``."""

from __future__ import annotations

import difflib
import importlib
import importlib.util
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from .file_errors import ModelProblem, existing, short


def attribute(spec: str) -> Any:
    """Import an object of the user's code.

    Args:
        spec: ``package.module:name``, or ``file.py:name``. Modules in the current folder are found too.

    Returns:
        The object.

    Raises:
        ModelProblem: The module cannot be imported, or has no such name.
    """
    module, _, name = spec.rpartition(":")
    if not module or not name:
        raise ModelProblem(f"{spec}: name something in your code as package.module:name, such as model:make.")
    found: Any = _from_file(module) if module.endswith(".py") else _by_name(module, spec)
    for part in name.split("."):
        if not hasattr(found, part):
            known = [word for word in vars(found) if not word.startswith("_")]
            near = difflib.get_close_matches(part, known, 1)
            there = f"did you mean {near[0]!r}?" if near else f"there are {', '.join(known[:20]) or 'no names'}."
            raise ModelProblem(f"{spec}: there is no {part!r} in {module}; {there}")
        found = getattr(found, part)
    return found


def find_own_modules() -> str:
    """Let modules in the current folder be imported; the folder."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    return here


def _by_name(module: str, spec: str) -> ModuleType:
    here = find_own_modules()
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and (module == error.name or module.startswith(f"{error.name}.")):
            raise ModelProblem(
                f"{spec}: there is no module {error.name!r}, neither installed nor in {here}. Start in the folder that holds "
                "it, or put that folder on PYTHONPATH."
            ) from error
        raise ModelProblem(f"{spec}: importing {module} needs {error.name!r}, which is not installed.") from error
    except Exception as error:
        raise ModelProblem(f"{spec}: importing {module} failed: {describe_error(error)}.") from error


def _from_file(path: str) -> ModuleType:
    place = existing(path, ModelProblem, "Python code").resolve()
    spec = importlib.util.spec_from_file_location(place.stem, place)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.path.insert(0, str(place.parent))
    sys.modules.setdefault(place.stem, module)
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ModelProblem(f"{path}: importing it failed: {describe_error(error)}.") from error
    return module


def describe_error(error: Exception) -> str:
    """An error of the user's code with the line that raised it."""
    lines = traceback.extract_tb(error.__traceback__)
    where = f" ({Path(lines[-1].filename).name}, line {lines[-1].lineno})" if lines else ""
    return f"{type(error).__name__}: {short(error)}{where}".rstrip(".")
